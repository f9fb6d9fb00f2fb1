"""On a processor without VNNI: right PEFs of quantised models are right, wrong ones are not, and it is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import samba_onnx
from samba_onnx.comparing.value_comparison import compare_values
from samba_onnx.comparing.verification import verify
from samba_onnx.runtime.engine.onnxruntime import child_sample
from samba_onnx.runtime.engine.onnxruntime.engine import OnnxRuntimeEngine
from samba_onnx.runtime.engine.onnxruntime.saturation import departure_of, products_saturate
from samba_onnx.runtime.engine.protocol import Computation, EngineSettings
from samba_onnx.safety.exchange import read_arrays, write_arrays
from tests.saturating_kernels import without_vnni

SAYS = "onnxruntime's own kernels for uint8 times int8 saturate on this processor: "


@pytest.fixture
def saturating(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    with without_vnni(monkeypatch) as counts:
        yield counts


def network(*, computed: bool = False, factor: float = 1.0, seed: int = 0) -> onnx.ModelProto:
    """Two layers that quantise what they read, with weights over the whole range of int8.

    Args:
        computed: Whether a weight is the output of a node, which no session entry is for.
        factor: What the scale of the second layer is multiplied by.
        seed: Of the weights.
    """
    random = np.random.default_rng(seed)
    nodes, tensors, value = [], [], "x"
    for layer, (into, out) in enumerate(((32, 24), (24, 8))):
        weight = random.integers(-128, 128, (into, out)).astype(np.int8)
        scale = np.float32(0.002 * (factor if layer else 1))
        names = {part: f"{part}{layer}" for part in ("w", "s", "q", "qs", "qz", "i", "f", "p", "r")}
        tensors += [numpy_helper.from_array(weight.T if computed else weight, names["w"])]
        tensors.append(numpy_helper.from_array(scale, names["s"]))
        read = names["w"]
        if computed:
            read = f"t{layer}"
            nodes.append(helper.make_node("Transpose", [names["w"]], [read]))
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [value], [names["q"], names["qs"], names["qz"]]),
            helper.make_node("MatMulInteger", [names["q"], read, names["qz"]], [names["i"]]),
            helper.make_node("Cast", [names["i"]], [names["f"]], to=TensorProto.FLOAT),
            helper.make_node("Mul", [names["qs"], names["s"]], [names["p"]]),
            helper.make_node("Mul", [names["f"], names["p"]], [names["r"]]),
        ]  # fmt: skip
        value = names["r"]
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 8])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plain(model: onnx.ModelProto, x: Any) -> Any:
    """What onnxruntime by itself answers."""
    return ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def in_integers() -> Any:
    """What the network is, by integer arithmetic of numpy."""
    tensors = {t.name: numpy_helper.to_array(t) for t in network().graph.initializer}
    value = X
    for layer in range(2):
        low, high = min(value.min(), 0), max(value.max(), 0)
        step = np.float32((high - low) / 255)
        zero = np.rint(-low / step)
        whole = np.clip(np.rint(value / step) + zero, 0, 255).astype(np.int64) - int(zero)
        product = whole @ tensors[f"w{layer}"].astype(np.int64)
        value = product.astype(np.float32) * (step * tensors[f"s{layer}"])
    return value


X = np.random.default_rng(3).normal(size=(6, 32)).astype(np.float32)


def test_the_stand_in_saturates_and_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = in_integers()
    with without_vnni(monkeypatch) as counts:
        wrong = plain(network(), X)
        assert counts == [2]
        assert np.abs(wrong - right).max() > 0.05 * np.abs(right).max()
        assert products_saturate()
        assert departure_of(network()).startswith(f"{SAYS}2 products of the original")
    assert departure_of(onnx.ModelProto()) == ""


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.usefixtures("saturating")
def test_a_right_pef_is_right_and_the_report_says_what_the_processor_does(
    computed: bool, tmp_path: Path
) -> None:
    model = network(computed=computed)
    with samba_onnx.convert(model, tmp_path / "m.pef") as pef:
        result = verify(model, pef)
        assert [output for output in result.outputs if not output.passed] == []
        assert result.departure.startswith(
            f"{SAYS}2 products of the original were computed exactly"
        )
        assert samba_onnx.self_test(pef).passed
        assert compare_values(model, pef).passed


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.usefixtures("saturating")
def test_planted_errors_stay_found(computed: bool, tmp_path: Path) -> None:
    spoiled = network(computed=computed, factor=1.01)
    with samba_onnx.convert(spoiled, tmp_path / "m.pef", sample=False) as pef:
        assert not verify(network(computed=computed), pef).passed


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.usefixtures("saturating")
def test_fallbacks_multiply_exactly_too(computed: bool) -> None:
    """A product that stays whole, and is executed on the host by the same kernels."""
    engine = OnnxRuntimeEngine(EngineSettings())
    actual = engine.prepare(Computation(network(computed=computed), "a fallback")).run({"x": X})[0]
    np.testing.assert_allclose(actual, in_integers(), rtol=1e-5, atol=1e-5 * np.abs(actual).max())


@pytest.mark.usefixtures("saturating")
def test_the_stored_sample_is_that_of_exact_products(tmp_path: Path) -> None:
    """As the child process makes it, from a file."""
    onnx.save(network(), tmp_path / "m.onnx")
    record = write_arrays(tmp_path / "in", {"x": X})
    answer = child_sample.sample(
        str(tmp_path / "m.onnx"), [str(tmp_path / "in")], [record], str(tmp_path), None, False, 1, []
    )  # fmt: skip
    (written,) = answer["outputs"]
    sample = read_arrays(tmp_path / "outputs.0.safetensors", written)["y"]
    assert np.abs(sample - plain(network(), X)).max() > 0.05 * np.abs(sample).max()
    np.testing.assert_allclose(sample, in_integers(), rtol=1e-5, atol=1e-5 * np.abs(sample).max())


@pytest.mark.usefixtures("saturating")
def test_the_guard_of_passes_sees_no_fault(tmp_path: Path) -> None:
    samba_onnx.convert(network(), tmp_path / "m.pef", sample=False, check_passes=True).close()
