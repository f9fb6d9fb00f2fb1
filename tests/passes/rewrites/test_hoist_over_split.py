from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.hoist_over_split import HoistOverSplitPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from tests.passes.rewrites.applying import TRACE, add_weights, check, numbers, operators, parse

SPLIT = "p, q = Split<axis=2>(x, sizes)"
CONSTANTS = """<int64[2] sizes = {8, 4}, int64[4] heads = {2, 3, -1, 4}, int64[4] open = {0, 3, -1, 4},
int64[4] other = {2, 3, 2, -1}, int64[2] flat = {-1, 4},
int64[4] swapped = {3, 2, -1, 4}>"""


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
    whole = split.inputs[0]
    assert whole is not None
    assert (whole.name, whole.dtype) == ("y_whole", ir.DataType.FLOAT)
    assert whole.shape == ir.Shape([2 if batch == "2" else batch, 3, 3, 4])
    assert [value.name for value in (*reshape.inputs, split.inputs[1]) if value is not None] == [
        "x", "y_shape", "y_sizes",
    ]  # fmt: skip
    assert reshape.metadata_props[TRACE].endswith("line 2, in forward")


def test_pieces_are_transposed_once() -> None:
    model = hoisted("y = Transpose<perm=[2,0,1]>(p)\n z = Transpose<perm=[2,0,1]>(q)")
    assert operators(model) == ["Transpose", "Split"]
    assert model.graph[1].attributes["axis"].as_int() == 0
    assert model.graph[0].outputs[0].shape == ir.Shape([12, 2, 3])


@pytest.mark.parametrize(
    "body",
    [
        "y = Reshape(p, heads)\n z = Reshape(q, other)",  # sizes behind the first differ
        "y = Reshape(p, flat)\n z = Reshape(q, flat)",  # other axes change
        "y = Transpose<perm=[2,0,1]>(p)\n z = Transpose<perm=[2,1,0]>(q)",
        "y = Transpose<perm=[2,0,1]>(p)\n z = Reshape(q, heads)",
        "y = Reshape(p, swapped)\n z = Reshape(q, swapped)",  # axes in front change
        "y = Transpose(p)\n z = Transpose(q)",
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


def split_of(shape: str, attributes: str, widths: str, first: str, second: str) -> ir.Model:
    """Return a model whose two pieces are reshaped to shapes, with all shapes inferred."""
    count, rank = len(widths.split(",")), len(first.split(","))
    model = parse(f"""g (float[{shape}] x) => (float[{first}] y, float[{second}] z)
    <int64[{count}] widths = {{{widths}}}, int64[{rank}] a = {{{first}}}, int64[{rank}] b = {{{second}}}> {{
        p, q = Split{attributes}(x, widths)
        y = Reshape(p, a)
        z = Reshape(q, b)
    }}""")
    InferShapesPass()(model)
    return model


def test_axes_behind_the_one_that_is_split_stay() -> None:
    model = split_of("2,12,5,6", "<axis=1>", "8,4", "2,2,4,5,6", "2,1,4,5,6")
    check(model, HoistOverSplitPass(), inputs=[numbers(2, 12, 5, 6)])
    assert operators(model) == ["Reshape", "Split"]
    whole = model.graph[0].outputs[0]
    assert whole.shape == ir.Shape([2, 3, 4, 5, 6])


def test_axes_behind_that_change_stay_where_they_are() -> None:
    model = split_of("2,12,5,6", "<axis=1>", "8,4", "2,2,4,6,5", "2,1,4,6,5")
    check(model, HoistOverSplitPass(), inputs=[numbers(2, 12, 5, 6)], modified=False)


@pytest.mark.parametrize("attributes", ["", "<axis=-1>"])
def test_a_vector_is_split_along_its_only_axis(attributes: str) -> None:
    model = split_of("12", attributes, "8,4", "2,4", "1,4")
    check(model, HoistOverSplitPass(), inputs=[numbers(12)])
    assert operators(model) == ["Reshape", "Split"]
    assert model.graph[1].attributes["axis"].as_int() == 0


def test_the_first_axis_is_split_unless_another_is_named() -> None:
    model = split_of("12,8", "", "8,4", "2,4,8", "1,4,8")
    check(model, HoistOverSplitPass(), inputs=[numbers(12, 8)])
    assert operators(model) == ["Reshape", "Split"]


def test_an_axis_that_is_dropped_is_not_divided() -> None:
    model = split_of("3,2", "<axis=1>", "1,1", "3", "3")
    check(model, HoistOverSplitPass(), inputs=[numbers(3, 2)], modified=False)


@pytest.mark.parametrize(("sizes", "applies"), [(["N", 5], True), (["N", "M"], False)])
def test_one_axis_behind_may_be_dynamic(sizes: list[str | int], applies: bool) -> None:
    trail = ",".join(map(str, sizes))
    model = parse(f"""g (float[2,12,{trail}] x, int64[5] a, int64[5] b) => (y, z)
    <int64[2] widths = {{8, 4}}> {{
        p, q = Split<axis=1>(x, widths)
        y = Reshape(p, a)
        z = Reshape(q, b)
    }}""")
    add_weights(model, {"a": np.array([2, 2, 4, -1, 5]), "b": np.array([2, 1, 4, -1, 5])})
    InferShapesPass()(model)
    for head, output in zip((2, 1), model.graph.outputs, strict=True):
        output.shape = ir.Shape([2, head, 4, *sizes])  # which onnx's inference does not follow
    check(model, HoistOverSplitPass(), inputs=[numbers(2, 12, 3, 5)], modified=applies)
    assert operators(model)[0] == ("Reshape" if applies else "Split")


def test_an_operator_of_another_domain_is_no_reshape() -> None:
    model = parse(
        f"g (float[2,3,12] x) => (y, z) {CONSTANTS} {{ {SPLIT}\n"
        " y = custom.Reshape(p, heads)\n z = custom.Reshape(q, heads) }",
        imports=', "custom": 1',
    )
    InferShapesPass()(model)
    for value, head in zip(model.graph.outputs, (2, 1), strict=True):
        value.shape = ir.Shape([2, 3, head, 4])
    assert not HoistOverSplitPass()(model).modified
