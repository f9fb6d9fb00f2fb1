"""Every operator in bfloat16: what is converted runs, its numbers are those of one rounding, integers are exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import samba_onnx
from samba_onnx.comparing.sample_limits import RANDOM_OPERATORS
from samba_onnx.comparing.verification import compare, run_original
from samba_onnx.errors import ExecutionError
from samba_onnx.passes.targets.target import load_target
from tests.backend_cases import BackendCase, node_cases, node_modules

SCATTERS: Mapping[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
PRECISIONS = ("bf16", "mixed", "bf16-throughout")


def narrow(array: Any) -> Any:
    """Round to bfloat16, to nearest even, by ml_dtypes."""
    return np.asarray(array, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


def run(model: onnx.ModelProto, feeds: Mapping[str, Any], precision: str, folder: Path) -> Any:
    with (
        samba_onnx.convert(model, folder / "m.pef", precision=precision, sample=False) as pef,
        samba_onnx.Device(pef, threads=1) as device,
    ):
        return device.run(feeds)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("operator", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", SCATTERS)
def test_scatters_that_combine_run_and_round_once(
    operator: str, reduction: str, precision: str, tmp_path: Path
) -> None:
    """Several updates of one place: each sum is float32's, and is rounded when all of them are in it.

    Behind a product, so that they compute in bfloat16 in ``mixed``, too, if anything like them does.
    """
    random = np.random.default_rng(0)
    shape = "[6,5]" if operator == "ScatterElements" else "[6,1]"
    places = random.integers(0, 3, (6, 5) if operator == "ScatterElements" else (6, 1))
    options = 'axis=0, reduction="{}"' if operator == "ScatterElements" else 'reduction="{}"'
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> '
        f"g (float[6,4] a, float[4,5] b, float[6,5] u, int64{shape} i) => (float[6,5] y) "
        f"{{ x = MatMul(a, b) y = {operator}<{options.format(reduction)}>(x, i, u) }}"
    )
    feeds = {
        "a": random.standard_normal((6, 4)).astype(np.float32),
        "b": random.standard_normal((4, 5)).astype(np.float32),
        "u": random.standard_normal((6, 5)).astype(np.float32) + 1,
        "i": places,
    }
    # A product is rounded in every one of them. What combines is no product, and keeps float32 in mixed.
    rounds = narrow if precision != "mixed" else np.asarray
    expected = narrow(narrow(feeds["a"]) @ narrow(feeds["b"]))
    updates = rounds(feeds["u"])
    for row in range(6):
        for column in range(5):
            place = places[row, column] if operator == "ScatterElements" else places[row, 0]
            old = expected[place, column]
            expected[place, column] = SCATTERS[reduction](old, updates[row, column])
    actual = run(model, feeds, precision, tmp_path)["y"]
    if precision == "mixed":
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(actual, narrow(expected))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("length", [120, 700])
@pytest.mark.parametrize("computed", [False, True])
def test_products_of_integers_are_exact(
    computed: bool, length: int, precision: str, tmp_path: Path
) -> None:
    """In one piece and in several: sums such as 8613, of which bfloat16 makes 8640."""
    random = np.random.default_rng(0)
    weight = random.integers(-128, 128, (length, 5)).astype(np.int8)
    more = f", int8[{length},5] w" if computed else ""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        f"g (float[4,{length}] x{more}) => (int32[4,5] y, uint8[4,{length}] q, uint8 o, float[4,5] z) "
        "{ q, s, o = DynamicQuantizeLinear(x) y = MatMulInteger(q, w, o) f = Cast<to=1>(y) z = Relu(f) }"
    )
    feeds = {"x": random.standard_normal((4, length)).astype(np.float32)}
    if computed:
        feeds["w"] = weight
    else:
        model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    results = run(model, feeds, precision, tmp_path)
    # Which integers the range makes of rounded numbers is not asked here; of these the sum is exact.
    exact = (results["q"].astype(np.int64) - int(results["o"])) @ weight.astype(np.int64)
    assert np.abs(exact).max() > 8192
    np.testing.assert_array_equal(results["y"], exact)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_quantised_products_round_to_their_integers_only(precision: str, tmp_path: Path) -> None:
    """As numpy has them in integers; not to bfloat16 before that, which has as few digits."""
    random = np.random.default_rng(0)
    data = random.integers(0, 256, (6, 200)).astype(np.uint8)
    weight = random.integers(-128, 128, (200, 9)).astype(np.int8)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (uint8[6,200] x) => (uint8[6,9] y) '
        "<float s = {0.125}, uint8 o = {120}, int8 n = {3}, float r = {128.0}> "
        "{ y = QLinearMatMul(x, s, o, w, s, n, r, o) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    total = (data.astype(np.int64) - 120) @ (weight.astype(np.int64) - 3)
    expected = np.clip(np.rint(total / 64 / 128) + 120, 0, 255).astype(np.uint8)
    assert expected.min() < 100
    assert expected.max() > 140
    np.testing.assert_array_equal(run(model, {"x": data}, precision, tmp_path)["y"], expected)


TARGET = load_target("sn40l")


def cases_of(module: str) -> Iterator[BackendCase]:
    """Yield the cases of single operators that the target has, and that compute with float32."""
    for case in node_cases([module]):
        nodes = case.model.graph.node
        kinds = [value.type.tensor_type.elem_type for value in case.model.graph.input]
        known = len(nodes) == 1 and TARGET.knows(nodes[0].domain, nodes[0].op_type)
        drawn = nodes[0].op_type in RANDOM_OPERATORS
        if known and not drawn and case.eligible and not case.is_old and TensorProto.FLOAT in kinds:
            yield case


@pytest.mark.parametrize("precision", ["bf16", "mixed"])
@pytest.mark.parametrize("module", node_modules())
def test_an_operator_runs_in_a_lower_precision(module: str, precision: str, tmp_path: Path) -> None:
    """All of ONNX's own cases of it; onnxruntime's answers in float32 are as near as roundings allow."""
    for case in cases_of(module):
        model, (inputs, _) = case.runnable(), case.data_sets()[0]
        given = dict(zip([value.name for value in model.graph.input], inputs, strict=False))
        # Numbers that bfloat16 holds: what rounding an input costs is no matter of the operator.
        feeds = {name: _narrow(value) for name, value in given.items() if value is not None}
        if not _runs(model, feeds, tmp_path):
            continue  # a kernel that onnxruntime lacks in float32, too
        actual = run(model, feeds, precision, tmp_path)
        result = compare(actual, run_original(model, feeds), against="onnxruntime", coarser=8.0)
        assert [o.name for o in result.outputs if not o.passed] == [], case.name


def _narrow(value: Any) -> Any:
    is_float = isinstance(value, np.ndarray) and value.dtype == np.float32
    return narrow(value) if is_float else value


def _runs(model: onnx.ModelProto, feeds: Mapping[str, Any], folder: Path) -> bool:
    """Tell whether onnxruntime runs it in float32, where something reads the result, as a Cast does here.

    It lacks kernels, and of pools whose last window begins in the padding it knows the shape of outputs only.
    """
    read = onnx.ModelProto()
    read.CopyFrom(model)
    for output in read.graph.output:
        if output.type.tensor_type.elem_type == TensorProto.FLOAT:
            read.graph.node.append(onnx.helper.make_node("Neg", [output.name], [f"{output.name}-"]))
            output.name = f"{output.name}-"
    try:
        run(read, feeds, "fp32", folder)
    except ExecutionError:
        return False
    return True
