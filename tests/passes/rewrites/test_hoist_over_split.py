from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.hoist_over_split import HoistOverSplitPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from tests.passes.rewrites.applying import check, numbers, operators, parse

SPLIT = "p, q = Split<axis=2>(x, sizes)"
CONSTANTS = """<int64[2] sizes = {8, 4}, int64[4] heads = {2, 3, -1, 4}, int64[4] open = {0, 3, -1, 4},
int64[4] other = {2, 3, 2, -1}, int64[2] flat = {-1, 4}>"""


def hoisted(body: str, *, batch: str = "2", modified: bool = True) -> ir.Model:
    model = parse(f"g (float[{batch},3,12] x) => (y, z) {CONSTANTS} {{ {SPLIT}\n {body} }}")
    InferShapesPass()(model)
    return check(model, HoistOverSplitPass(), inputs=[numbers(2, 3, 12)], modified=modified)


@pytest.mark.parametrize(("batch", "shape"), [("2", "heads"), ("batch", "open")])
def test_heads_are_divided_once(batch: str, shape: str) -> None:
    model = hoisted(f"y = Reshape(p, {shape})\n z = Reshape(q, {shape})", batch=batch)
    assert operators(model) == ["Reshape", "Split"]
    reshape, split = model.graph
    assert reshape.inputs[1] is not None
    assert reshape.inputs[1].const_value is not None
    assert reshape.inputs[1].const_value.numpy().tolist() == [2 if batch == "2" else 0, 3, 3, 4]
    assert split.attributes["axis"].as_int() == 2
    assert [value.name for value in split.outputs] == ["y", "z"]


def test_pieces_are_transposed_once() -> None:
    model = hoisted("y = Transpose<perm=[2,0,1]>(p)\n z = Transpose<perm=[2,0,1]>(q)")
    assert operators(model) == ["Transpose", "Split"]
    assert model.graph[1].attributes["axis"].as_int() == 0


@pytest.mark.parametrize(
    "body",
    [
        "y = Reshape(p, heads)\n z = Reshape(q, other)",  # sizes behind the first differ
        "y = Reshape(p, flat)\n z = Reshape(q, flat)",  # other axes change
        "y = Transpose<perm=[2,0,1]>(p)\n z = Transpose<perm=[2,1,0]>(q)",
        "y = Transpose<perm=[2,0,1]>(p)\n z = Reshape(q, heads)",
        "y = Neg(p)\n z = Neg(q)",
        "y = Add(p, p)\n z = Neg(q)",
    ],
)
def test_pieces_of_different_fate_stay(body: str) -> None:
    assert operators(hoisted(body, modified=False))[0] == "Split"


def test_a_piece_that_is_an_output_stays() -> None:
    model = parse(
        f"g (float[2,3,12] x) => (p, z) {CONSTANTS} {{ {SPLIT}\n z = Reshape(q, heads) }}"
    )
    InferShapesPass()(model)
    check(model, HoistOverSplitPass(), inputs=[numbers(2, 3, 12)], modified=False)
