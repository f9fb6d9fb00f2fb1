from __future__ import annotations

import numpy as np
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.merge_reshaped_transposes import MergeReshapedTransposesPass
from tests.passes.rewrites.applying import check, numbers, parse

SHAPES = """<int64[3] heads = {-1, 4, 5}, int64[4] back = {2, 3, 5, 4}, int64[4] other = {3, 2, 5, 4},
int64[3] tail = {2, 3, 20}, int64[4] same = {2, 3, 4, 5}, int64[2] matrix = {6, 20}, int64[3] lower = {2, 3, 20}>"""


def merged(body: str, *, modified: bool = True, batch: str = "2") -> list[str]:
    model = parse(f"g (float[{batch},3,4,5] x) => (y) {SHAPES} {{ {body} }}")
    InferShapesPass()(model)
    check(model, MergeReshapedTransposesPass(), inputs=[numbers(2, 3, 4, 5)], modified=modified)
    return [node.op_type for node in model.graph if node.outputs[0].uses() or node.outputs[0].is_graph_output()]  # fmt: skip


def body(first: str, order: str, second: str) -> str:
    return f"r = Reshape(x, {first})\n t = Transpose<perm=[{order}]>(r)\n y = Reshape(t, {second})"


@pytest.mark.parametrize(("order", "second"), [("0,2,1", "back"), ("0,1,2", "same")])
def test_a_transposition_of_keys_is_one_transpose(order: str, second: str) -> None:
    model = parse(f"g (float[2,3,4,5] x) => (y) {SHAPES} {{ {body('heads', order, second)} }}")
    InferShapesPass()(model)
    check(model, MergeReshapedTransposesPass(), inputs=[numbers(2, 3, 4, 5)])
    (last,) = (node for node in model.graph if node.outputs[0].name == "y")
    assert (last.op_type, last.inputs[0]) == ("Transpose", model.graph.inputs[0])


@pytest.mark.parametrize(
    ("first", "order", "second"),
    [
        ("heads", "0,2,1", "other"),  # divided in another way
        ("heads", "1,0,2", "back"),  # the axis that was merged moves
        ("tail", "0,2,1", "back"),  # others are merged
        ("same", "0,1,3,2", "back"),  # none is merged
    ],
)
def test_other_rearrangements_stay(first: str, order: str, second: str) -> None:
    assert merged(body(first, order, second), modified=False) == ["Reshape", "Transpose", "Reshape"]


def test_what_others_read_stays() -> None:
    text = "r = Reshape(x, heads)\n t = Transpose<perm=[0,2,1]>(r)\n u = Reshape(t, back)\n v = Reshape(t, back)\n y = Add(u, v)"  # fmt: skip
    assert "Reshape" in merged(text, modified=False)


def test_dynamic_shapes_stay() -> None:
    assert merged(body("heads", "0,2,1", "back"), modified=False, batch="n")[0] == "Reshape"


def test_only_a_reshape_before_and_behind_is_merged() -> None:
    """A logarithm of sums along an axis of one element has the shapes of a Reshape."""
    text = """r = ReduceLogSum<keepdims = 0>(u, first)
    t = Transpose<perm=[0,2,1]>(r)
    y = Reshape(t, one)"""
    model = parse(
        f"""g (float[1,3,4,5] u) => (y) <int64[1] first = {{0}}, int64[4] one = {{1, 3, 5, 4}}> {{ {text} }}"""
    )
    InferShapesPass()(model)
    inputs = [np.abs(numbers(1, 3, 4, 5)) + 0.5]
    check(model, MergeReshapedTransposesPass(), inputs=inputs, modified=False)


def test_nodes_without_operands_and_refusals_later_change_nothing() -> None:
    text = f"""k = Constant<value_float = 2.0>()
    {body("heads", "0,2,1", "back")}
    s = Reshape(y, tail)
    u = Transpose<perm=[0,2,1]>(s)
    v = Reshape(u, back)
    z = Mul(v, k)"""
    model = parse(f"g (float[2,3,4,5] x) => (z) {SHAPES} {{ {text} }}")
    InferShapesPass()(model)
    check(model, MergeReshapedTransposesPass(), inputs=[numbers(2, 3, 4, 5)])
