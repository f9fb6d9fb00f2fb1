"""Operators that are computed by ONNX's definition of them: against numpy, and against onnxruntime where it can."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from samba_onnx.runtime.engine.lowerings.function_bodies import (
    BODIES,
    REMAINDER,
    expand_function_bodies,
)

X = np.array([-700.0, -3.5, -1.0, -0.25, -0.0, 0.0, 0.3, 1.0, 2.75, 600.0])
SLOPE = np.linspace(-0.5, 0.5, X.size)

REFERENCES: dict[str, tuple[dict[str, float], Any]] = {
    "Elu": ({"alpha": 1.5}, lambda x: np.where(x < 0, 1.5 * np.expm1(np.minimum(x, 0)), x)),
    "HardSigmoid": ({"alpha": 0.25, "beta": 0.5}, lambda x: np.clip(0.25 * x + 0.5, 0, 1)),
    "HardSwish": ({}, lambda x: x * np.clip(np.float32(1 / 6) * x + 0.5, 0, 1)),
    "LeakyRelu": ({"alpha": 0.125}, lambda x: np.where(x < 0, 0.125 * x, x)),
    "Mish": ({}, lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "PRelu": ({}, lambda x: np.where(x < 0, SLOPE * x, x)),
    "Selu": ({"alpha": 1.5, "gamma": 2.0}, lambda x: 2 * np.where(x < 0, 1.5 * np.expm1(np.minimum(x, 0)), x)),
    "Softplus": ({}, lambda x: np.logaddexp(x, 0)),
    "Softsign": ({}, lambda x: x / (1 + np.abs(x))),
    "SwiGLU": ({"alpha": 0.5}, None),
    "Swish": ({"alpha": 0.5}, lambda x: x / (1 + np.exp(-0.5 * x))),
    "ThresholdedRelu": ({"alpha": 0.5}, lambda x: np.where(x > 0.5, x, 0)),
}  # fmt: skip


def _model(op_type: str, dtype: int, opset: int, **attributes: Any) -> onnx.ModelProto:
    names = ["x", "z"] if op_type in ("PRelu", "SwiGLU", REMAINDER) else ["x"]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        "g",
        [value(name, dtype, ["n"]) for name in names],
        [value("y", dtype, ["n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _run(model: onnx.ModelProto, *operands: NDArray[Any]) -> NDArray[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    named = dict(zip((i.name for i in session.get_inputs()), operands, strict=True))
    return np.asarray(session.run(None, named)[0])


def test_every_row_has_a_reference() -> None:
    assert BODIES.keys() == REFERENCES.keys()


@pytest.mark.parametrize("opset", [18, 21, 22])
@pytest.mark.parametrize("op_type", [name for name in BODIES if not name.startswith("Sw")])
def test_numbers_in_double_are_those_of_numpy(op_type: str, opset: int) -> None:
    attributes, reference = REFERENCES[op_type]
    model = _model(op_type, TensorProto.DOUBLE, opset, **attributes)
    assert not expand_function_bodies(model)
    assert op_type not in {node.op_type for node in model.graph.node}
    operands = (X, SLOPE) if op_type == "PRelu" else (X,)
    # ONNX's definition of Softplus adds 1 to an exponential: a unit of 1 is what it loses of small ones.
    np.testing.assert_allclose(_run(model, *operands), reference(X), rtol=1e-14, atol=1e-13)


@pytest.mark.parametrize("op_type", [name for name in BODIES if not name.startswith("Sw")])
def test_numbers_are_those_of_onnxruntime_at_the_version_of_the_bodies(op_type: str) -> None:
    attributes, _ = REFERENCES[op_type]
    model = _model(op_type, TensorProto.DOUBLE, 18, **attributes)
    operands = (X, SLOPE) if op_type == "PRelu" else (X,)
    expected = _run(model, *operands)
    expand_function_bodies(model)
    np.testing.assert_allclose(_run(model, *operands), expected, rtol=1e-15)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 24, reason="onnx knows no Swish")
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-11)])
def test_swish_is_written_at_any_version(dtype: str, tolerance: float) -> None:
    attributes, reference = REFERENCES["Swish"]
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = _model("Swish", number, 24, **attributes)
    expand_function_bodies(model)
    model.opset_import[0].version = 21
    x = np.clip(X, -9, 9).astype(dtype)  # beyond, onnxruntime's Sigmoid is 0 or an approximation
    np.testing.assert_allclose(_run(model, x), reference(x.astype(float)), rtol=tolerance)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="onnx knows no SwiGLU")
def test_a_body_in_a_body_is_written_too() -> None:
    model = _model("SwiGLU", TensorProto.FLOAT, 28, alpha=0.5)
    expand_function_bodies(model)
    assert {node.op_type for node in model.graph.node} == {"Cast", "Constant", "Mul", "Sigmoid"}
    model.opset_import[0].version = 21
    x, z = np.clip(X, -9, 9).astype(np.float32), SLOPE.astype(np.float32)
    wide = x.astype(float)
    np.testing.assert_allclose(_run(model, x, z), wide / (1 + np.exp(-0.5 * wide)) * z, rtol=1e-5)


SPECIAL = np.array([-np.inf, -7.5, -3.0, -1.0, -0.0, 0.0, 1.0, 2.5, 6.0, np.inf, np.nan])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_the_remainder_has_the_sign_of_the_divisor(dtype: str) -> None:
    x, z = (array.ravel().astype(dtype) for array in np.meshgrid(SPECIAL, SPECIAL))
    model = _model(REMAINDER, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), 21)
    with pytest.raises(Exception, match="fmod attribute must be true"):
        _run(model, x, z)
    expand_function_bodies(model)
    with np.errstate(invalid="ignore"):
        expected = np.mod(x, z)
    actual = _run(model, x, z)
    np.testing.assert_array_equal(actual, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[known]), np.signbit(expected[known]))


@pytest.mark.parametrize(
    ("op_type", "dtype", "opset", "attributes", "reason"),
    [
        ("Elu", TensorProto.FLOAT, 21, {}, None),
        ("Elu", TensorProto.DOUBLE, 17, {}, "operator set 17"),
        ("Elu", TensorProto.UNDEFINED, 21, {}, "not declared"),
        (REMAINDER, TensorProto.FLOAT, 21, {"fmod": 1}, None),
        (REMAINDER, TensorProto.INT64, 21, {}, None),
        ("Relu", TensorProto.DOUBLE, 21, {}, None),
    ],
)
def test_what_stays(
    op_type: str, dtype: int, opset: int, attributes: dict[str, int], reason: str | None
) -> None:
    model = _model(op_type, dtype, opset, **attributes)
    before = model.SerializeToString()
    reasons = expand_function_bodies(model)
    assert model.SerializeToString() == before
    assert (reason is None) == (not reasons)
    assert reason is None or reason in reasons["y"]


def test_nodes_of_branches_are_written() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
g (bool c, double[3] x) => (double[3] y) {
 y = If (c) <then_branch = t () => (double[3] a) { a = Softplus(x) },
             else_branch = e () => (double[3] b) { b = Mish(x) }> }""")
    expand_function_bodies(model)
    x = np.array([-1.0, 0.5, 2.0])
    for condition, wanted in ((True, "Softplus"), (False, "Mish")):
        expected = REFERENCES[wanted][1](x)
        np.testing.assert_allclose(_run(model, np.array(condition), x), expected, rtol=1e-14)
