"""Operators on types that onnxruntime lacks: what is missing, the numbers, and what stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, parser

from samba_onnx.runtime.engine.lowerings.missing_kernels import MISSING, compute_missing_kernels
from samba_onnx.runtime.engine.onnxruntime.values import HostSession
from tests.versions import is_older

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'

# How each operator is applied to x and y of a type, and what numpy says of it.
EXAMPLES: dict[str, tuple[str, Any]] = {
    "Where": ("Where(c, x, y)", lambda c, x, y: np.where(c, x, y)),
    "Clip": ("Clip(x, low, high)", lambda c, x, y: np.clip(x, 1, 2)),
    "Max": ("Max(x, y)", lambda c, x, y: np.maximum(x, y)),
    "Min": ("Min(x, y)", lambda c, x, y: np.minimum(x, y)),
    "Pad": ("Pad(x, pads, low)", lambda c, x, y: np.pad(x, 1, constant_values=1)),
    "Relu": ("Relu(x)", lambda c, x, y: np.maximum(x, 0)),
    "Trilu": ("Trilu(x, one)", lambda c, x, y: np.triu(x, 1)),
    "CumSum": ("CumSum(x, one)", lambda c, x, y: np.cumsum(x, 1, dtype=x.dtype)),
    "ReduceProd": ("ReduceProd<keepdims=0>(x)", lambda c, x, y: np.prod(x, dtype=x.dtype)),
    "ReduceSum": ("ReduceSum<keepdims=0>(x)", lambda c, x, y: np.sum(x, dtype=x.dtype)),
    "ReduceMax": ("ReduceMax<keepdims=0>(x)", lambda c, x, y: np.max(x)),
    "ReduceMin": ("ReduceMin<keepdims=0>(x)", lambda c, x, y: np.min(x)),
    "ReduceMean": (
        "ReduceMean<keepdims=0>(x)",
        lambda c, x, y: (np.sum(x, dtype=np.uint64) // x.size).astype(x.dtype),
    ),
    "ArgMax": ("ArgMax<axis=1, keepdims=0>(x)", lambda c, x, y: np.argmax(x, 1)),
    "ArgMin": ("ArgMin<axis=1, keepdims=0>(x)", lambda c, x, y: np.argmin(x, 1)),
    "ScatterND": (
        'ScatterND<reduction="mul">(x, first_twice, y)',
        lambda c, x, y: np.stack([x[0] * y[0] * y[1], x[1]]),
    ),
    "ScatterElements": (
        'ScatterElements<axis=1, reduction="mul">(x, places, y)',
        lambda c, x, y: np.stack([x[:, 0] * y[:, 0] * y[:, 1], x[:, 1], x[:, 2] * y[:, 2]], 1),
    ),
    "NonZero": ("NonZero(x)", lambda c, x, y: np.array(np.nonzero(x))),
}
HAS_IT = pytest.mark.skipif(
    not is_older("onnxruntime", "1.30"), reason="onnxruntime has the kernel from 1.30 on"
)
CASES = [
    pytest.param(
        operator,
        dtype,
        id=f"{operator}-{onnx.TensorProto.DataType.Name(dtype)}",
        marks=[HAS_IT] * ((operator, dtype) == ("Trilu", onnx.TensorProto.INT32)),
    )
    for operator, row in MISSING.items()
    for dtype in row.types
]


def model(operator: str, dtype: int, operands: dict[str, Any]) -> tuple[onnx.ModelProto, Any]:
    """Return a model of one operator, and what numpy computes."""
    text, reference = EXAMPLES[operator]
    wanted = np.asarray(reference(operands["c"], operands["x"], operands["y"]))
    kind = "bool" if dtype == onnx.TensorProto.BOOL else str(operands["x"].dtype)
    kind = "double" if kind == "float64" else kind
    result = {"float64": "double"}.get(str(wanted.dtype), str(wanted.dtype))
    shape = f"[{','.join(map(str, wanted.shape))}]" if wanted.shape else ""
    proto = parser.parse_model(
        HEADER + f"g (bool[2,3] c, {kind}[2,3] x, {kind}[2,3] y, {kind} low, {kind} high) => "
        f"({result}{shape} z) <int64[2,1] first_twice = {{0, 0}}, "
        f"int64[2,3] places = {{0, 0, 2, 0, 0, 2}}, int64 one = {{1}}, int64[4] pads = {{1,1,1,1}}> {{ z = {text} }}"
    )
    return proto, wanted


def operands_of(dtype: int) -> dict[str, Any]:
    """Return operands at the ends of what a type holds, and zero among them."""
    numpy_type = helper.tensor_dtype_to_np_dtype(dtype)
    x = np.array([[1, 0, 3], [2, 1, 0]]).astype(numpy_type)
    y = np.array([[0, 2, 2], [1, 5, 1]]).astype(numpy_type)
    if x.dtype.kind in "iu":
        ends = np.iinfo(x.dtype)
        x[0, 0], y[0, 1] = ends.max, ends.min
    return {
        "c": np.array([[True, False, True], [False, True, False]]),
        "x": x,
        "y": y,
        "low": numpy_type.type(1),
        "high": numpy_type.type(2),
    }


def run(proto: onnx.ModelProto, operands: dict[str, Any]) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options)
    host = HostSession(session)
    return host.run({name: np.asarray(operands[name]) for name in host.inputs})[0]


@pytest.mark.parametrize(("operator", "dtype"), CASES)
def test_what_onnxruntime_refuses_is_computed(operator: str, dtype: int) -> None:
    operands = operands_of(dtype)
    proto, wanted = model(operator, dtype, operands)
    # A row that is needed no longer, because a newer onnxruntime has the kernel, fails here.
    with pytest.raises(
        Exception, match=r"(?i)not find an implementation|NOT_IMPLEMENTED|is not supported"
    ):
        run(proto, operands)
    assert compute_missing_kernels(proto) == {}
    onnx.checker.check_model(proto, full_check=True)
    actual = run(proto, operands)
    assert actual.dtype == wanted.dtype
    np.testing.assert_array_equal(actual, wanted)


def test_a_node_stands_between_casts() -> None:
    proto = parser.parse_model(
        HEADER + "g (bool[2] c, bool[2] x, bool[2] y) => (bool[2] z) { z = Where(c, x, y) }"
    )
    compute_missing_kernels(proto)
    assert [node.op_type for node in proto.graph.node] == ["Cast", "Cast", "Where", "Cast"]
    # The condition is of the same type, and stays what it is.
    assert proto.graph.node[2].input[0] == "c"


def test_a_result_whose_type_nobody_declares_has_that_of_the_operands() -> None:
    proto = parser.parse_model(
        HEADER
        + "g (int16[2] x, int16[2] y) => (int16[4] z) { a = Max(x, y) z = Concat<axis=0>(a, x) }"
    )
    compute_missing_kernels(proto)
    x, y = np.array([1, -2], np.int16), np.array([-1, 2], np.int16)
    wanted = np.concatenate([np.maximum(x, y), x])
    np.testing.assert_array_equal(run(proto, {"x": x, "y": y}), wanted)


def test_subgraphs_are_looked_at_with_the_types_around_them() -> None:
    proto = parser.parse_model(
        HEADER + "g (bool c, int16[2] x, int16[2] y) => (int16[2] z) "
        "{ z = If (c) <then_branch = a () => (int16[2] r) { r = Max(x, y) }, "
        "else_branch = b () => (int16[2] s) { s = Min(x, y) }> }"
    )
    compute_missing_kernels(proto)
    x, y = np.array([1, -2], np.int16), np.array([-1, 2], np.int16)
    for condition, wanted in ((True, np.maximum(x, y)), (False, np.minimum(x, y))):
        operands = {"c": np.array(condition), "x": x, "y": y}
        np.testing.assert_array_equal(run(proto, operands), wanted)


KEPT = {
    "a type that onnxruntime has": "g (int8[2] x, int8[2] y) => (int8[2] z) { z = Max(x, y) }",
    "a domain of somebody else": "g (int16[2] x) => (int16[2] z) { z = other.Max(x) }",
    "a scatter that overwrites": (
        "g (float16[2] x, int64[1,1] i, float16[1] u) => (float16[2] z) { z = ScatterND(x, i, u) }"
    ),
    "a scatter that overwrites along an axis": (
        "g (float16[2,1] x, int64[1,1] i, float16[1,1] u) => (float16[2,1] z) "
        "{ z = ScatterElements<axis=0>(x, i, u) }"
    ),
    "a scatter that says that it overwrites": (
        "g (float16[2] x, int64[1,1] i, float16[1] u) => (float16[2] z) "
        '{ z = ScatterND<reduction="none">(x, i, u) }'
    ),
    "an operator without a row": "g (int16[2] x, int16[2] y) => (int16[2] z) { z = Add(x, y) }",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT.keys())
def test_others_stay(text: str) -> None:
    proto = parser.parse_model(HEADER.replace("]>", ', "other" : 1]>') + text)
    before = proto.SerializeToString(deterministic=True)
    assert compute_missing_kernels(proto) == {}
    assert proto.SerializeToString(deterministic=True) == before


def test_an_operand_of_unknown_type_stays() -> None:
    proto = parser.parse_model(
        HEADER + "g (int16[2] x) => (int16[2] z) { y = Abs(x) z = Max(y, y) }"
    )
    before = proto.SerializeToString(deterministic=True)
    assert compute_missing_kernels(proto) == {"z": "the type of its operand is not declared"}
    assert proto.SerializeToString(deterministic=True) == before


def test_a_place_whose_type_nobody_declares_stays_a_place() -> None:
    proto = parser.parse_model(
        HEADER + "g (uint16[3] x) => (int64[1] z) { p = ArgMax<axis=0>(x) z = Sub(p, p) }"
    )
    compute_missing_kernels(proto)
    assert [node.op_type for node in proto.graph.node] == ["Cast", "ArgMax", "Sub"]
    onnx.checker.check_model(proto, full_check=True)
