from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.float_twins import WHOLE
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.remove_noops import RemoveNoopsPass
from tests.passes.rewrites.applying import add_weights, check, numbers, operators, parse, run

CONSTANTS = "<int64[3] same = {2, 3, 4}, int64[3] ones = {1, 1, 1}, int64[6] none = {0,0,0,0,0,0}, int64[1] zero = {0}, int64[1] big = {9}, int64[1] back = {-1}, int64[1] low = {-9}, int64[1] unit = {1}, int64[2] turned = {0, -1}, int64[2] lows = {9, -9}, int64[2] pair = {0, 1}, int64[2] mixed = {1, -1}, float one = {1.0}, float nil = {0.0}, float half = {0.5}, bool yes = {1}, bool no = {0}, int64[6] shift = {1,0,0,-1,0,0}, int64[2] flat = {6, 4}, int64[2] copy = {0, -1}, float[1,1,1,1] wide = {1.0}, float[1,1,4] wider = {1.0, 1.0, 1.0, 1.0}, float[1,1,1] single = {1.0}, int64[4] twice = {2, 2, 3, 4}, int64[3] pairs = {1, 1, 2}>"  # fmt: skip


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("u = Identity(x)", []),
        ("u = Dropout(x)", []),
        ("u = Dropout(x, half)", []),
        ("u = Dropout(x, half, no)", []),
        ("u = Cast<to=1>(x)", []),
        ("u = Cast<to=11>(x)\n v = Cast<to=1>(u)", ["Cast", "Cast"]),
        ("u = CastLike(x, half)", []),
        ("u = Transpose<perm=[0,1,2]>(x)", []),
        ("t = Transpose<perm=[1,2,0]>(x)\n u = Transpose<perm=[2,0,1]>(t)", []),
        ("u = Concat<axis=1>(x)", []),
        ("u = Sum(x)", []),
        ("u = Reshape(x, same)", []),
        ("u = Expand(x, ones)", []),
        ("u = Tile(x, ones)", []),
        ("u = Slice(x, zero, big)", []),
        ("u = Slice(x, back, big, zero)", ["Slice"]),
        ("u = Slice(x, zero, big, zero, unit)", []),
        ("u = Slice(x, back, low, zero, back)", ["Slice"]),
        ("u = Slice(x, turned, lows, pair, mixed)", ["Slice"]),
        ("u = Pad(x, none)", []),
        ("u = Pad(x, shift)", ["Pad"]),
        ("u = Mul(x, wider)", ["Mul"]),
        ("u = Mul(x, single)", []),
        ("u = Add(x, nil)", ["Add"]),
        ("u = Sub(x, one)", ["Sub"]),
        ("u = Div(x, half)", ["Div"]),
        ("u = Max(x, half)", ["Max"]),
        ("u = Expand(x, twice)", ["Expand"]),
        ("u = Tile(x, pairs)", ["Tile"]),
        ("t = Transpose(x)\n u = Transpose(t)", []),
        ("t = Transpose(x)\n u = Transpose<perm=[0,2,1]>(t)", ["Transpose"]),
        ("u = Mul(x, one)", []),
        ("u = Div(x, one)", []),
        ("u = Sub(x, nil)", []),
        ("u = Div(one, x)", ["Div"]),
        ("u = Mul(x, half)", ["Mul"]),
        ("w = Mul(x, wide)\n u = Squeeze(w, zero)", ["Mul", "Squeeze"]),
        ("t = Transpose<perm=[1,2,0]>(x)\n u = Transpose<perm=[0,2,1]>(t)", ["Transpose"]),
        ("t = Reshape(x, flat)\n u = Reshape(t, same)", []),
        ("t = Reshape(x, flat)\n u = Reshape(t, copy)", ["Reshape"]),
    ],
)
def test_only_what_changes_nothing_goes(body: str, kept: list[str]) -> None:
    from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass

    last = "v" if " v = " in body else "u"
    model = parse(f"g (float[2,3,4] x) => (float[?,?,?] y) {CONSTANTS} {{ {body}\n y = Exp({last}) }}"
                  .replace("[?,?,?] y", "[?,?] y" if "copy)" in body else "[?,?,?] y"))  # fmt: skip
    InferShapesPass()(model)
    check(model, RemoveNoopsPass(), RemoveNoopsPass(), inputs=[numbers(2, 3, 4)], modified=None)
    alive = [node for node in model.graph if any(out.uses() for out in node.outputs)]
    assert [node.op_type for node in alive] == kept


def test_graph_outputs_keep_their_names() -> None:
    model = parse("""g (float[2] x) => (float[2] same, float[2] y, float[2] z, float[2] w) {
 same = Dropout(x)
 r = Relu(x)
 y = Identity(r)
 z = Identity(r)
 w = Identity(y) }""")
    check(model, RemoveNoopsPass(), inputs=[numbers(2)])
    assert operators(model) == ["Identity", "Relu", "Identity", "Identity"]


def test_branches_never_return_what_is_outside() -> None:
    model = parse("""g (bool c, float[2] x) => (float[2] y) {
 r = Relu(x)
 y = If (c) <then_branch = t () => (float[2] a) { a = Identity(r) },
             else_branch = e () => (float[2] b) { n = Neg(r)
 m = Identity(n)
 b = Identity(m) }> }""")
    check(model, RemoveNoopsPass(), inputs=[np.array(True), numbers(2)])
    assert [n.op_type for n in model.graph.all_nodes()].count("Identity") == 1


def test_training_dropout_and_read_masks_stay() -> None:
    model = parse("""g (float[2] x, bool t) => (float[2] y, float[2] z, bool[2] m, float[2] w)
<float half = {0.5}, bool yes = {1}> { y = Dropout(x, half, t)
 z, m = Dropout(x)
 w = Dropout(x, half, yes) }""")
    assert not RemoveNoopsPass()(model).modified


def test_cast_like_of_a_known_type_becomes_a_cast() -> None:
    model = parse("g (float[2] x, double[1] l) => (double[2] y) { y = CastLike(x, l) }")
    check(model, RemoveNoopsPass(), inputs=[numbers(2), np.zeros(1)], modified=True)
    assert operators(model) == ["Cast"]


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("axes", [[0], [1], [2], [-1], [0, 1], [0, 1, 2]])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_slice_that_turns_an_axis_round_stays(opset: int, axes: list[int], size: int) -> None:
    """It keeps the shape, and nothing else."""
    from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass

    count = len(axes)
    bounds = {
        "starts": np.full(count, -1),
        "ends": np.full(count, -(1 << 40)),
        "axes": np.asarray(axes),
        "steps": np.full(count, -1),
    }
    inputs = ", ".join(f"int64[{count}] {name}" for name in bounds)
    model = parse(
        f"g (float[{size},{size},{size}] x, {inputs}) => (float[{size},{size},{size}] y) "
        "{ u = Slice(x, starts, ends, axes, steps)\n y = Exp(u) }",
        opset=opset,
    )
    add_weights(model, bounds)
    InferShapesPass()(model)
    check(model, RemoveNoopsPass(), inputs=[numbers(size, size, size)], modified=False)


def test_a_mask_that_is_an_output_keeps_its_dropout() -> None:
    model = parse("g (float[2] x) => (float[2] y, bool[2] m) { d, m = Dropout(x)\n y = Exp(d) }")
    rewrite = RemoveNoopsPass()
    assert not rewrite(model).modified
    assert rewrite.refusals.lines() == ("Dropout 'd': its other outputs are read",)
    model = parse("g (float[2] x) => (float[2] y) { d, m = Dropout(x)\n y = Exp(d) }")
    check(model, RemoveNoopsPass(), inputs=[numbers(2)])
    assert operators(model) == ["Exp"]


def test_the_saturation_of_a_cast_is_kept() -> None:
    model = parse(
        "g (float[2] x, float8e4m3fn[1] l) => (float8e4m3fn[2] y) { y = CastLike<saturate=0>(x, l) }"
    )
    assert RemoveNoopsPass()(model).modified
    attributes = {name: item.as_int() for name, item in model.graph[0].attributes.items()}
    assert attributes == {"saturate": 0, "to": int(ir.DataType.FLOAT8E4M3FN)}


def test_a_cast_like_of_unknown_type_stays() -> None:
    model = parse(
        "g (float[2] x) => (y) { l = my.Op(x)\n y = CastLike(x, l) }", imports=', "my": 1'
    )
    assert not RemoveNoopsPass()(model).modified


def test_nothing_is_taken_for_equal_whose_type_or_shape_is_unknown() -> None:
    body = (
        "c = Cast<to=1>(a)\n r = Reshape(c, same)\n t = Transpose(r)\n m = Mul(t, one)\n y = Neg(m)"
    )
    model = parse(
        f"g (float[2] x) => (y) {CONSTANTS} {{ a = my.Op(x)\n {body} }}", imports=', "my": 1'
    )
    assert not RemoveNoopsPass()(model).modified


def test_a_sequence_is_no_tensor_of_its_element_type() -> None:
    model = parse("g (seq(float) s, float[2] x) => (y) { y = CastLike(x, s) }")
    assert not RemoveNoopsPass()(model).modified


@pytest.mark.parametrize(("allowzero", "skipped"), [(0, False), (1, True)])
def test_a_zero_that_copies_keeps_the_reshape_before_it(allowzero: int, skipped: bool) -> None:
    model = parse(
        "g (float[0,4] x) => (float[0,2,2] y) <int64[2] flat = {4, 0}, int64[3] last = {0, 2, 2}> "
        f"{{ t = Reshape<allowzero=1>(x, flat)\n y = Reshape<allowzero={allowzero}>(t, last) }}"
    )
    RemoveNoopsPass()(model)
    assert (model.graph[-1].inputs[0] is model.graph.inputs[0]) == skipped


def test_a_reshape_to_a_computed_shape_follows_what_is_before_it() -> None:
    model = parse("g (float[2,3] x, int64[2] s) => (float[?,?] y) <int64[1] flat = {6}> { t = Reshape(x, flat)\n y = Reshape(t, s) }")  # fmt: skip
    check(model, RemoveNoopsPass(), inputs=[numbers(2, 3), np.array([3, 2])], modified=False)


def test_paddings_and_steps_that_are_computed_stay() -> None:
    model = parse("g (float[2] x, int64[2] p, int64[1] s) => (float[2] y) <int64[1] zero = {0}, int64[1] big = {9}> { t = Pad(x, p)\n u = Slice(t, zero, big, zero, s)\n y = Exp(u) }")  # fmt: skip
    for node in list(model.graph)[:2]:
        node.outputs[0].shape = ir.Shape([2])
    assert not RemoveNoopsPass()(model).modified


def test_pads_of_an_old_operator_set_stay() -> None:
    model = parse("g (float[2] x) => (float[2] y) { t = Pad<pads=[0, 0]>(x)\n y = Exp(t) }", opset=9, ir_version=8)  # fmt: skip
    assert not RemoveNoopsPass()(model).modified


@pytest.mark.parametrize("reduce", ["Mean", "Sum", "Max", "Min", "Prod"])
def test_reducing_over_axes_of_size_1_changes_nothing(reduce: str) -> None:
    body = f"p = Reduce{reduce}(x, one)\n q = Reduce{reduce}<keepdims=0>(x, one)"
    model = parse(f"g (float[2,1] x) => (y, z) <int64[1] one = {{1}}> {{ {body}\n y = Neg(p)\n z = Neg(q) }}")  # fmt: skip
    InferShapesPass()(model)
    check(model, RemoveNoopsPass(), inputs=[numbers(2, 1)])
    assert operators(model) == [f"Reduce{reduce}", "Neg", "Neg"]


OPEN = """<int64[2] nought = {0, 0}, int64[2] far = {9223372036854775807, 2147483647}, int64[2] near = {9, 2147483647},
int64[2] up = {1, 1}, int64[2] down = {-1, 1}, int64[2] axes = {0, 1}, int64[2] some = {1, 0}>"""


@pytest.mark.parametrize(
    ("bounds", "left"),
    [
        ("nought, far", []),
        ("nought, far, axes, up", []),
        ("nought, near", ["Slice"]),
        ("some, far", ["Slice"]),
        ("nought, far, axes, down", ["Slice"]),
    ],
)
def test_a_slice_of_everything_is_known_without_the_shape(bounds: str, left: list[str]) -> None:
    model = parse(f"g (float[n,m] x) => (float[a,b] y) {OPEN} {{ s = Slice(x, {bounds})\n y = Neg(s) }}")  # fmt: skip
    check(model, RemoveNoopsPass(), inputs=[numbers(3, 4)], modified=not left)
    assert operators(model) == [*left, "Neg"]


@pytest.mark.parametrize(
    ("first", "second"), [("{0}", "{0}"), ("{1}", "{0, 3}"), ("{-1}", "{-1}"), ("{-3}", "{1, -1}")]
)
def test_neighbouring_unsqueezes_become_one(first: str, second: str) -> None:
    count = second.count(",") + 1
    model = parse(f"""g (float[2,3] x) => (y)
<int64[1] a = {first}, int64[{count}] b = {second}> {{ u = Unsqueeze(x, a)\n y = Unsqueeze(u, b) }}""")
    model = check(model, RemoveNoopsPass(), inputs=[numbers(2, 3)])
    (node,) = (node for node in model.graph if node.outputs[0].name == "y")
    assert node.inputs[0] is model.graph.inputs[0]


@pytest.mark.parametrize(
    ("kind", "body", "gone"),
    [
        ("int64", "Add(x, nought)", True),
        ("int64", "Add(nought, x)", True),
        ("float", "Add(x, zero)", False),  # -0.0 + 0.0 is 0.0
        ("float", "Mul(single, x)", True),
        ("float", "Mul(matrix, x)", False),  # of a higher rank
        ("bool", "And(true, x)", True),
        ("bool", "And(x, false)", False),
        ("bool", "Or(false, x)", True),
        ("bool", "Or(x, true)", False),
    ],
)
def test_a_neutral_number_is_left_out_on_either_side(kind: str, body: str, gone: bool) -> None:
    constants = "<int64 nought = {0}, float zero = {0.0}, float single = {1.0}, float[1,1] matrix = {1.0}, bool true = {1}, bool false = {0}>"  # fmt: skip
    model = parse(f"g ({kind}[3] x) => (y) {constants} {{ p = {body}\n y = Identity(p) }}")
    InferShapesPass()(model)
    x = np.array([-0.0, 1.0, 2.0]).astype({"float": np.float32}.get(kind, kind))
    expected = run(model, [x])[0]
    RemoveNoopsPass()(model)
    result = run(model, [x])[0]
    np.testing.assert_array_equal(
        np.signbit(result.astype(float)), np.signbit(expected.astype(float))
    )
    np.testing.assert_array_equal(result, expected)
    assert (operators(model) == ["Identity"]) == gone


@pytest.mark.parametrize(
    ("shape", "gone"),
    [
        ("0, 0, 3", True),
        ("0, -1, 3", True),
        ("-1, 0, 0", True),
        ("0, 3, -1", False),
        ("-1, 3, 0", False),
    ],
)
def test_a_reshape_that_copies_every_dimension_goes(shape: str, gone: bool) -> None:
    model = parse(f"g (float[n,m,3] x) => (float[a,b,c] y) <int64[3] s = {{{shape}}}> {{ r = Reshape(x, s)\n y = Neg(r) }}")  # fmt: skip
    check(model, RemoveNoopsPass(), inputs=[numbers(3, 3, 3)], modified=gone)
    assert operators(model) == ([] if gone else ["Reshape"]) + ["Neg"]


@pytest.mark.parametrize(
    ("marked", "through", "skipped"),
    [(True, 6, True), (False, 6, False), (True, 3, False), (True, 7, False)],
)
def test_whole_numbers_that_become_integers_and_floats_again_are_what_they_were(
    marked: bool, through: int, skipped: bool
) -> None:
    model = parse(
        f"""g (float[4] x) => (float[4] y)
        {{ w = Round(x) i = Cast<to={through}>(w) f = Cast<to=1>(i) y = Neg(f) }}"""
    )
    model = InferShapesPass()(model).model
    if marked:
        model.graph[0].outputs[0].meta[WHOLE] = 0
    check(model, RemoveNoopsPass(), inputs=[numbers(4) * 9], modified=skipped)
    (negative,) = (node for node in model.graph if node.op_type == "Neg")
    assert (negative.inputs[0] is model.graph[0].outputs[0]) is skipped


@pytest.mark.parametrize(
    "body",
    [
        "u = Relu(x)\n y = Unsqueeze(u, axes)",
        "u = Unsqueeze(x, axes)\n y = Squeeze(u, other)",
        "u = Squeeze(x, other)\n y = Unsqueeze(u, other)",
    ],
)
def test_only_unsqueezes_are_merged_with_unsqueezes(body: str) -> None:
    model = parse(
        f"g (float[1,3] x) => (y) <int64[1] axes = {{2}}, int64[1] other = {{0}}> {{ {body} }}"
    )
    model = InferShapesPass()(model).model
    check(model, RemoveNoopsPass(), inputs=[numbers(1, 3)], modified=False)


def test_a_zero_that_is_no_copy_keeps_a_reshape() -> None:
    text = """g (float[n,3] x) => (float[m,3] y) <int64[2] s = {0, 3}>
        { u = Reshape<allowzero=ALLOW>(x, s)\n y = Abs(u) }"""
    for allow, left in (("1", ["Reshape", "Abs"]), ("0", ["Abs"])):
        model = parse(text.replace("ALLOW", allow))
        RemoveNoopsPass()(model)
        assert [
            node.op_type
            for node in model.graph
            if node.op_type != "Reshape" or node.outputs[0].uses()
        ] == left


def test_a_dimension_of_one_beside_the_rest_is_no_obstacle() -> None:
    model = parse(
        "g (float[1,n] x) => (float[1,m] y) <int64[2] s = {1, -1}> { u = Reshape(x, s)\n y = Abs(u) }"
    )
    assert RemoveNoopsPass()(model).modified
    assert model.graph[-1].inputs[0] is model.graph.inputs[0]


def test_only_a_cast_reads_the_whole_numbers_behind_another() -> None:
    model = parse(
        "g (float[2] x) => (int32[2] y) { w = Round(x)\n i = Cast<to=6>(w)\n y = Mul(i, i) }"
    )
    InferShapesPass()(model)
    model.graph[0].outputs[0].meta[WHOLE] = 0
    assert not RemoveNoopsPass()(model).modified


def test_a_neutral_number_as_the_first_operand_is_a_change() -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) <float one = {1.0}> { u = Mul(one, x)\n y = Abs(u) }"
    )
    assert RemoveNoopsPass()(model).modified
    assert model.graph[-1].inputs[0] is model.graph.inputs[0]


@pytest.mark.parametrize(
    ("scales", "attributes", "gone"),
    [
        ("1.0, 1.0, 1.0, 1.0", "", True),
        ("1.0, 1.0, 1.0, 1.0", '<mode="cubic">', True),
        ("1.0, 1.0, 1.0, 2.0", "", False),
        ("1.0, 1.0, 1.0, 1.0", '<coordinate_transformation_mode="tf_crop_and_resize">', False),
    ],
)
def test_a_resize_by_one_changes_nothing(scales: str, attributes: str, gone: bool) -> None:
    text = (
        "g (float[1,2,3,4] x, float[8] r) => (float[i,j,k,l] y) "
        f"<float[4] s = {{{scales}}}> {{ z = Resize{attributes}(x, r, s)\n y = Neg(z) }}"
    )
    model = parse(text)
    region = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)
    check(model, RemoveNoopsPass(), inputs=[numbers(1, 2, 3, 4), region], modified=gone)
    assert operators(model) == (["Neg"] if gone else ["Resize", "Neg"])


def test_operators_of_old_sets_have_their_numbers_as_attributes() -> None:
    """A model stays at an older operator set where nothing newer expresses one of its nodes."""
    text = """g (float[2,3] x) => (float[1,1,2,2] y) { a = Slice<axes=[1], starts=[0], ends=[2]>(x)
 b = Unsqueeze<axes=[0]>(a)\n y = Unsqueeze<axes=[0]>(b) }"""
    model = parse(text, opset=9, ir_version=8)
    InferShapesPass()(model)
    assert not RemoveNoopsPass()(model).modified
    whole = parse(
        "g (float[2,3] x) => (float[2,3] y) { a = Slice<starts=[0], ends=[9]>(x)\n y = Neg(a) }",
        opset=9,
        ir_version=8,
    )
    InferShapesPass()(whole)
    check(whole, RemoveNoopsPass(), inputs=[numbers(2, 3)])
    assert operators(whole) == ["Neg"]
