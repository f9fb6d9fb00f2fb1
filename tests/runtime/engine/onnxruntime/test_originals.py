"""Models that onnxruntime refuses for their versions run where nothing in them is as new."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import samba_onnx
from samba_onnx.errors import ExecutionError
from samba_onnx.runtime.engine.evaluation import evaluate_original
from samba_onnx.runtime.engine.onnxruntime.originals import runnable_source
from samba_onnx.runtime.engine.onnxruntime.versions import newest_ir_version, newest_opset
from samba_onnx.safety.sampling import run_sample

NEWEST = onnx.defs.onnx_opset_version()
PLAIN = 'g (float[2,3] x) => (float[2,3] y) { y = Einsum<equation="ij->ij">(x) }'


def model(
    text: str, opset: int = NEWEST, ir_version: int = int(onnx.IR_VERSION)
) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["": {opset}]> {text}'
    )


@pytest.mark.skipif(newest_opset() == NEWEST, reason="onnx knows nothing that onnxruntime lacks")
def test_what_is_newer_than_onnxruntime_is_stamped_as_the_newest_that_it_knows() -> None:
    given = model(PLAIN)
    source = runnable_source(given)
    assert source is not None
    made = onnx.load_from_string(source[0])
    assert made.ir_version == newest_ir_version()
    assert [entry.version for entry in made.opset_import] == [newest_opset()]
    assert given.opset_import[0].version == NEWEST


def test_what_onnxruntime_takes_and_what_uses_newer_operators_stays_as_it_is() -> None:
    assert runnable_source(model(PLAIN, newest_opset(), newest_ir_version())) is None
    schemas = onnx.defs.get_all_schemas()
    newer = [s for s in schemas if s.domain == "" and s.since_version > newest_opset()]
    known = {
        s.name
        for s in onnx.defs.get_all_schemas_with_history()
        if s.domain == "" and s.since_version <= newest_opset()
    }
    names = [schema.name for schema in newer if schema.name not in known]
    if not names:
        pytest.skip("onnx has no operator that onnxruntime lacks")
    given = model(f"g (float[2,4] x) => (float[2,2] y) {{ y = {names[0]}(x) }}")
    assert runnable_source(given) is None


def test_newest_models_convert_verify_and_test_themselves(tmp_path: Path) -> None:
    given = model(PLAIN)
    onnx.save(given, tmp_path / "m.onnx")
    with samba_onnx.convert(tmp_path / "m.onnx") as pef:
        assert pef.manifest.reference is not None
        assert samba_onnx.verify(tmp_path / "m.onnx", pef).passed
        assert samba_onnx.self_test(pef).passed
        with samba_onnx.Device(pef, threads=1) as device:
            x = np.ones((2, 3), np.float32)
            np.testing.assert_array_equal(device.run({"x": x})["y"], x)


def test_a_type_that_is_new_is_refused_still(tmp_path: Path) -> None:
    from samba_onnx.runtime.engine.evaluation import open_original

    given = model("g (bool[2,3] x) => (bool[2,3] y) { y = Celu(x) }")
    with pytest.raises(ExecutionError):
        open_original(given)


def _few_bits() -> onnx.ModelProto:
    """A product with weights of four bits, whose other operand a kernel may make eight bits of."""
    generator = np.random.default_rng(0)
    packed = generator.integers(0, 256, (8, 2, 8), np.uint8)
    scales = generator.uniform(0.5, 1.5, (8, 2)).astype(np.float32)
    product = onnx.helper.make_node(
        "MatMulNBits",
        ["x", "packed", "scales"],
        ["y"],
        domain="com.microsoft",
        K=32,
        N=8,
        bits=4,
        block_size=16,
        accuracy_level=4,
    )
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [product],
        "g",
        [value("x", onnx.TensorProto.FLOAT, [3, 32])],
        [value("y", onnx.TensorProto.FLOAT, [3, 8])],
        [
            onnx.numpy_helper.from_array(packed, "packed"),
            onnx.numpy_helper.from_array(scales, "scales"),
        ],
    )
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=newest_ir_version())


def _product(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Return what the model above computes, from the definition of its operator."""
    packed, scales = map(onnx.numpy_helper.to_array, proto.graph.initializer)
    halves = np.stack([packed & 15, packed >> 4], axis=-1).reshape(8, 2, 16).astype(np.float64)
    return x @ ((halves - 8) * scales[..., None]).reshape(8, 32).T


def test_an_original_is_not_computed_with_fewer_bits_than_it_has(tmp_path: Path) -> None:
    original = _few_bits()
    path = tmp_path / "m.onnx"
    onnx.save(original, path)
    x = np.random.default_rng(1).normal(size=(3, 32)).astype(np.float32)
    expected = _product(original, x)
    largest = np.abs(expected).max()
    runs = [evaluate_original(model, {"x": x})["y"] for model in (original, path)]
    runs += [run_sample(model, [{"x": x}]).outputs[0]["y"] for model in (original, path)]
    for result in runs:
        # 32 products in float32; with eight bits of the operand, the error is about 1e-2.
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6 * largest)
    assert onnx.load(path) == original == _few_bits()


def test_a_quantised_original_is_computed_as_it_is_written() -> None:
    text = """g (float[1,16] x) => (float[1,16] y)
        <float s = {0.05}, int8 z = {0}, float t = {0.004}, int8 u = {-128}> {
          q = QuantizeLinear(x, s, z)
          d = DequantizeLinear(q, s, z)
          e = Softmax(d)
          r = QuantizeLinear(e, t, u)
          y = DequantizeLinear(r, t, u)
        }"""
    x = np.linspace(-3, 3, 16, dtype=np.float32)[None]
    rounded = np.rint(x.astype(np.float64) / 0.05).clip(-128, 127) * 0.05
    parts = np.exp(rounded) / np.exp(rounded).sum()
    expected = np.rint(parts / 0.004).clip(0, 255) * 0.004
    result = evaluate_original(model(text, 21, newest_ir_version()), {"x": x})["y"]
    # A step of the last quantisation is 0.004: none of the numbers is near the middle of one.
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)
