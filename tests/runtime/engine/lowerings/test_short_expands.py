"""Expands of short rows as concatenations: before and after, the numbers, and what stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from samba_onnx.runtime.engine.lowerings.short_expands import concatenate_short_expands

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


def model(before: tuple[int, ...], after: tuple[int, ...]) -> onnx.ModelProto:
    one, other = (",".join(map(str, shape)) for shape in (before, after))
    return parser.parse_model(
        HEADER + f"g (float[{one}] x) => (float[{other}] y) "
        f"<int64[{len(after)}] shape = {{{other}}}> {{ y = Expand(x, shape) }}"
    )


def run(proto: onnx.ModelProto, value: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    result: np.ndarray = ort.InferenceSession(proto.SerializeToString(), options).run(
        None, {"x": value}
    )[0]
    return result


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((6, 1, 1), (6, 2, 1)),
        ((6, 1, 4), (6, 8, 4)),
        ((2, 1), (2, 3)),
        ((1, 5, 1, 8), (1, 5, 4, 8)),
        ((3, 1, 32), (3, 2, 32)),
    ],
)
def test_a_few_short_rows_are_concatenated(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    proto = model(before, after)
    assert concatenate_short_expands(proto) == {}
    assert [node.op_type for node in proto.graph.node] == ["Concat"]
    onnx.checker.check_model(proto, full_check=True)
    value = np.random.default_rng(0).standard_normal(before).astype(np.float32)
    np.testing.assert_array_equal(run(proto, value), np.broadcast_to(value, after))


KEPT = {
    "long rows": ((6, 1, 33), (6, 2, 33), "its rows are long"),
    "no rows": ((6, 1, 0), (6, 2, 0), "its rows are long"),
    "many copies": ((6, 1, 4), (6, 9, 4), "it makes many copies"),
    "two axes": ((6, 1, 1), (6, 2, 2), "it does not repeat along one axis"),
    "more axes": ((3, 2), (4, 3, 2), "it adds axes"),
}


@pytest.mark.parametrize(("before", "after", "reason"), KEPT.values(), ids=KEPT.keys())
def test_others_stay(before: tuple[int, ...], after: tuple[int, ...], reason: str) -> None:
    proto = model(before, after)
    content = proto.SerializeToString(deterministic=True)
    assert concatenate_short_expands(proto) == {"y": reason}
    assert proto.SerializeToString(deterministic=True) == content


def test_an_expand_to_a_shape_that_is_computed_stays() -> None:
    proto = parser.parse_model(
        HEADER + "g (float[6,1,1] x, int64[3] shape) => (float[A,B,C] y) { y = Expand(x, shape) }"
    )
    assert concatenate_short_expands(proto) == {"y": "a shape is not declared"}


def test_each_expand_of_a_graph_is_looked_at() -> None:
    """Whatever stands before it; a node keeps its name."""
    proto = parser.parse_model(
        HEADER + "g (float[6,1] x) => (float[6,2] y, float[6,9] z) "
        "<float[6,1] n, int64[2] two = {6,2}, int64[2] nine = {6,9}> "
        "{ n = Neg(x) z = Expand(n, nine) y = Expand(n, two) }"
    )
    proto.graph.node[2].name = "grow"
    assert concatenate_short_expands(proto) == {"z": "it makes many copies"}
    assert [node.op_type for node in proto.graph.node] == ["Neg", "Expand", "Concat"]
    assert proto.graph.node[2].name == "grow"
