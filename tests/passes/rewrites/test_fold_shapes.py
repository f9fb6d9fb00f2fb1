from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.fold_shapes import FoldShapesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.rewriting import constant, integers, small_array
from tests.passes.rewrites.applying import add_weights, check, numbers, operators, parse

CONSTANTS = "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] m3 = {-3}, int64 s1 = {1}, int64[1] m1 = {-1}, int64[1] four = {4}, int64[1] giga = {2000000000}, int64[1] big = {9223372036854775807}>"  # fmt: skip


@pytest.mark.parametrize(
    ("body", "left"),
    [
        # the static part of a partially dynamic shape
        ("s = Shape(x)\n d = Gather(s, s1)\n y = Add(d, s1)", 0),
        ("s = Shape<start=1>(x)\n y = Identity(s)", 0),
        ("s = Shape(x)\n t = Slice(s, one, big, zero)\n y = ReduceProd<keepdims=1>(t)", 0),
        ("s = Shape(x)\n d = Gather(s, two)\n q = Squeeze(d)\n u = Unsqueeze(q, zero)\n y = Mul(u, two)", 0),
        ("s = Shape(x)\n d = Gather(s, two)\n e = Equal(d, m1)\n y = Where(e, one, d)", 0),
        ("s = Shape(x)\n d = Gather(s, one)\n c = Concat<axis=0>(d, two)\n i = Cast<to=6>(c)\n y = Cast<to=7>(i)", 0),
        ("s = Shape(x)\n d = Gather(s, one)\n t = Sub(d, four)\n y = Div(t, two)", 0),
        # a dynamic dimension equals itself and is never negative
        ("s = Shape(x)\n d = Gather(s, zero)\n e = Equal(d, d)\n y = Where(e, one, two)", 0),
        ("s = Shape(x)\n d = Gather(s, zero)\n e = Equal(d, m1)\n y = Where(e, one, two)", 0),
        # what would trap, or be beyond 32 bits, is left to who runs it
        ("s = Shape(x)\n t = Div(s, zero)\n y = Gather(t, one)", None),
        ("s = Shape(x)\n d = Gather(s, one)\n y = Div(zero, d)", 0),
        ("s = Shape(x)\n c = Concat<axis=0>(s, big)\n i = Cast<to=6>(c)\n g = Gather(i, m1)\n y = Cast<to=7>(g)", None),
        ("s = Shape(x)\n d = Gather(s, one)\n y = Mul(d, giga)", None),
        ("s = Shape(x)\n d = Gather(s, one)\n t = Add(d, giga)\n y = Add(t, giga)", None),
        ("s = Shape(x)\n d = Gather(s, one)\n t = Sub(d, giga)\n y = Sub(t, giga)", None),
        # what depends on it stays
        ("s = Shape(x)\n d = Gather(s, zero)\n y = Mul(d, two)", 3),
        ("y = Size(x)", 1),
    ],
)  # fmt: skip
def test_static_elements_become_constants(body: str, left: int | None) -> None:
    model = parse(f"g (float[N,3,5] x) => (int64[?] y) {CONSTANTS} {{ {body} }}")
    if "Size" in body or "s1)\n y = Add" in body:
        model = parse(f"g (float[N,3,5] x) => (int64 y) {CONSTANTS} {{ {body} }}")
    if left is None:
        InferShapesPass()(model)
        last = operators(model)[-1]
        FoldShapesPass()(model)
        assert operators(model)[-1] == last
        return
    check(
        model, InferShapesPass(), FoldShapesPass(), FoldConstantsPass(),
        inputs=[numbers(2, 3, 5)], modified=None,
    )  # fmt: skip
    last = next(node for node in model.graph if node.outputs[0].name == "y")
    assert (last.op_type == "Identity" and last.inputs[0].producer() is None) == (left == 0)  # type: ignore[union-attr]


def followed(body: str, *, opset: int = 21) -> list[int] | None:
    """Return the elements of ``y`` when FoldShapes alone makes a constant of it.

    ``x`` has the shape [N, 3, 5], a static ``w`` the shape [2, 3]; ``n7`` is a constant vector of
    7, ``m7`` one of -7, ``k7`` the number 7, ``rest`` says 1 and 2, the places of 3 and 5.
    """
    names = sorted(set(re.findall(r"\b[nmk]\d+\b", body)))
    constants = "".join(
        f", int64{'' if name[0] == 'k' else '[1]'} {name} = {{{name.replace('m', '-').strip('nk')}}}"
        for name in names
    )
    model = parse(
        "g (float[N,3,5] x, float[2,3] w, int64[2] i, int64[65] long) => (y) "
        f"<int64[2] rest = {{1, 2}}{constants}> {{ s = Shape(x)\n {body} }}",
        opset=opset,
    )
    InferShapesPass()(model)
    inputs = [numbers(4, 3, 5), numbers(2, 3), np.array([6, 7]), np.arange(65)]
    check(model, FoldShapesPass(), inputs=inputs, modified=None)
    (value,) = model.graph.outputs
    node = value.producer()
    if node is None or node.op_type != "Identity" or constant(node.inputs[0]) is None:
        return None
    array = small_array(node.inputs[0])
    return None if array is None else [int(item) for item in array.ravel()]


ARITHMETIC = [
    (operator, first, second)
    for operator in ("Add", "Sub", "Mul", "Div")
    for first in ("k0", "n1", "n8", "m1", "n4")
    for second in ("n1", "n2", "m1", "m2", "k3")
]


@pytest.mark.parametrize(("operator", "first", "second"), ARITHMETIC)
def test_arithmetic_beside_a_dynamic_dimension_is_what_the_runtime_computes(
    operator: str, first: str, second: str
) -> None:
    """Quotients are rounded towards zero."""
    assert followed(f"u = Sub(s, {first})\n t = {operator}(u, {second})\n y = Gather(t, rest)")


@pytest.mark.parametrize(
    ("body", "elements"),
    [
        ("y = Shape<start=1>(x)", [3, 5]),
        ("y = Shape<start=1, end=2>(x)", [3]),
        ("y = Shape<start=-2, end=-1>(x)", [3]),
        ("y = Shape<end=1>(x)", None),
        ("y = Size(w)", [6]),
        ("y = Size(x)", None),
        ("y = Gather(s, m1)", [5]),
        ("t = Identity(s)\n y = Gather(t, rest)", [3, 5]),
        ("t = Slice(s, n1, n9)\n u = Concat<axis=0>(t, n2)\n y = ReduceProd<noop_with_empty_axes=1>(u)", None),
        ("y = Gather<axis=-1>(s, k1)", [3]),
        ("y = Slice(s, n1, n9)", [3, 5]),
        ("y = Slice(s, n1, m1, n0)", [3]),
        ("t = Slice(s, n0, n9, n0, n2)\n y = Gather(t, n1)", [5]),
        ("t = Slice(s, m1, m9, n0, m1)\n y = Gather(t, n0)", None),
        ("u = Slice(i, n0, n1)\n v = Sub(u, u)\n t = Slice(s, v, n9)\n y = Gather(t, m1)", None),
        ("t = Concat<axis=0>(i, s)\n y = Gather(t, m1)", [5]),
        ("u = Slice(long, n0, n61)\n t = Concat<axis=0>(u, s)\n y = Gather(t, m1)", [5]),
        ("u = Slice(long, n0, n62)\n t = Concat<axis=0>(u, s)\n y = Gather(t, m1)", None),
        ("t = Concat<axis=0>(long, s)\n y = Gather(t, m1)", None),
        ("t = Cast<to=6>(s)\n u = Cast<to=7>(t)\n y = Gather(u, n2)", [5]),
        ("t = Cast<to=1>(s)\n u = Cast<to=7>(t)\n y = Gather(u, n2)", None),
        ("t = Concat<axis=0>(s, n2147483647)\n u = Cast<to=7>(t)\n y = Gather(u, m1)", [2147483647]),
        ("t = Concat<axis=0>(s, n2147483648)\n u = Cast<to=7>(t)\n y = Gather(u, m1)", None),
        ("t = Concat<axis=0>(s, m2147483648)\n u = Cast<to=7>(t)\n y = Gather(u, m1)", None),
        ("t = Add(s, n2147483642)\n y = Gather(t, n2)", [2147483647]),
        ("t = Add(s, n2147483643)\n y = Gather(t, n2)", None),
        ("t = Sub(s, n2147483652)\n y = Gather(t, n2)", [-2147483647]),
        ("t = Sub(s, n2147483653)\n y = Gather(t, n2)", None),
        ("t = Mul(s, n429496730)\n y = Gather(t, n2)", None),
        ("t = Concat<axis=0>(s, n4294967296)\n u = Div(t, n2)\n y = Gather(u, m1)", None),
        ("t = ReduceProd<keepdims=0>(s)\n y = Add(t, k0)", None),
        ("t = Slice(s, n1, n9)\n u = Concat<axis=0>(t, n2)\n y = ReduceProd<keepdims=1>(u)", [30]),
        ("t = Slice(s, n1, n9)\n u = Concat<axis=0>(t, n1073741824)\n y = ReduceProd<keepdims=1>(u)", None),
        ("e = Equal(s, n3)\n t = Cast<to=7>(e)\n y = Gather(t, rest)", [1, 0]),
        ("e = Equal(n3, s)\n t = Cast<to=6>(e)\n y = Gather(t, rest)", [1, 0]),
        ("y = Equal(s, s)", [1, 1, 1]),
        ("y = Equal(s, m1)", [0, 0, 0]),
        ("y = Equal(m1, s)", [0, 0, 0]),
        ("y = Equal(s, n0)", None),
        ("y = Equal(n0, s)", None),
        ("u = Mul(s, n2)\n y = Equal(u, m1)", None),
        ("u = Mul(s, n2)\n y = Equal(u, u)", None),
        ("e = Equal(s, n3)\n t = Where(e, s, n7)\n y = Gather(t, rest)", [3, 7]),
        ("e = Equal(s, n4)\n y = Where(e, n7, n7)", [7, 7, 7]),
        ("e = Equal(s, n9)\n t = Where(e, n7, n8)\n y = Gather(t, n0)", None),
        ("e = Equal(s, n4)\n t = Where(e, s, s)\n y = Gather(t, rest)", [3, 5]),
    ],
)  # fmt: skip
def test_elements_are_followed_past_a_dynamic_dimension(
    body: str, elements: list[int] | None
) -> None:
    assert followed(body) == elements


@pytest.mark.parametrize(("length", "folds"), [(64, True), (65, False)])
def test_long_vectors_are_no_shapes(length: int, folds: bool) -> None:
    model = parse(
        f"g (float[N] x, int64[{length}] ones, int64[1] m1) => (bool[{length}] y) "
        "{ s = Shape(x)\n t = Mul(ones, s)\n y = Equal(t, m1) }"
    )
    add_weights(model, {"ones": np.ones(length, np.int64), "m1": np.array([-1])})
    InferShapesPass()(model)
    check(model, FoldShapesPass(), inputs=[numbers(3)], modified=folds)


def test_a_constant_condition_chooses() -> None:
    model = parse(
        "g (float[N,3] x) => (int64[2] y) <bool[2] c = {0, 1}, int64[2] k = {7, 8}> "
        "{ s = Shape(x)\n y = Where(c, s, k) }"
    )
    check(model, InferShapesPass(), FoldShapesPass(), inputs=[numbers(2, 3)])
    assert "Where" not in operators(model)


def test_the_shape_of_a_scalar_is_empty_and_stays_so() -> None:
    model = parse(
        "g (float z, float[N] x) => (int64[1] y) "
        "{ e = Shape(z)\n s = Shape(x)\n t = Add(e, s)\n y = Concat<axis=0>(t, s) }"
    )
    check(model, InferShapesPass(), FoldShapesPass(), inputs=[np.array(1, np.float32), numbers(2)])
    assert "Add" not in operators(model)


def test_slices_whose_bounds_are_attributes_stay() -> None:
    """As in operator sets before version 10, which a model may keep."""
    model = parse("g (float[N,3] x) => (int64[1] y) { s = Shape(x)\n y = Slice<starts=[1], ends=[2]>(s) }", opset=9, ir_version=8)  # fmt: skip
    check(model, InferShapesPass(), FoldShapesPass(), inputs=[numbers(2, 3)], modified=None)
    assert operators(model) == ["Shape", "Slice"]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_shape_as_numbers_with_a_fraction_stays(kind: str) -> None:
    model = parse(f"g (float[N,3] x) => ({kind}[2] y) {{ s = Shape(x)\n y = Cast<to={1 if kind == 'float' else 11}>(s) }}")  # fmt: skip
    check(model, InferShapesPass(), FoldShapesPass(), inputs=[numbers(2, 3)], modified=None)
    assert operators(model) == ["Shape", "Cast"]


@pytest.mark.parametrize(
    "body",
    [
        "a = Shape(w)\n b = Add(a, a)\n y = Add(b, s)",  # b is left to FoldConstants
        "r = Reshape(x, s)\n y = Reshape(r, n)",
        "a = Shape(w)\n r = Reshape(x, n)\n y = Concat<axis=0>(a, n)",
        "a = my.Shape(w)\n y = Shape(w)",
    ],
)
def test_what_stays_does_not_hide_what_changed(body: str) -> None:
    model = parse(
        f"g (float[N,6] x, float[2,3] w, int64[2] n) => (y) {{ s = Shape(x)\n {body} }}",
        imports=', "my": 1',
    )
    InferShapesPass()(model)
    before = operators(model)
    assert FoldShapesPass()(model).modified
    assert not FoldShapesPass()(model).modified
    assert len(operators(model)) <= len(before)


def test_nodes_that_are_none_of_ours_stay() -> None:
    model = parse("g (float[2,3] w, float[N,6] x) => (int64[2] y, float[M,3] z) <int64[2] k = {-1, 3}> { y = my.Shape(w)\n z = Reshape(x, k) }", imports=', "my": 1')  # fmt: skip
    assert not FoldShapesPass()(model).modified
    assert operators(model) == ["Shape", "Reshape"]


def test_a_row_of_a_table_is_not_its_first_number() -> None:
    model = parse("g (float[N,3] x) => (int64 y) <int64[2,2] table = {1, 2, 4, 5}, int64 one = {1}> { s = Shape(x)\n row = Gather(table, one)\n p = Mul(row, s)\n y = Gather(p, one) }")  # fmt: skip
    check(model, InferShapesPass(), FoldShapesPass(), inputs=[numbers(2, 3)], modified=None)


def test_contradictions_are_left_to_the_checks_behind() -> None:
    """A declared size that the elements do not have, and operands that do not fit."""
    model = parse("g (float[N,3,5] x) => (int64[4] y) { y = Shape<start=1>(x) }")
    assert not FoldShapesPass()(model).modified
    model = parse("g (float[N,3,5] x) => (int64[2] y) <int64[2] k = {1, 2}> { s = Shape(x)\n y = Add(s, k) }")  # fmt: skip
    model.graph[0].outputs[0].shape = ir.Shape([3])
    assert not FoldShapesPass()(model).modified
    model = parse("g (float[3,5] x) => (int64[2] y) <int64[3] k = {1, 2, 3}, int64[1] one = {1}> { s = Shape(x)\n t = Add(s, k)\n y = Add(t, one) }")  # fmt: skip
    for node in model.graph:
        node.outputs[0].shape = ir.Shape([2])
    FoldShapesPass()(model)
    assert operators(model)[-2:] == ["Add", "Add"]
    model = parse("g (float[N,3,5] x) => (int64[1] y) <int64[1] k = {3}> { s = Shape(x)\n y = Gather(s, k) }")  # fmt: skip
    model.graph[0].outputs[0].shape = ir.Shape([3])
    assert not FoldShapesPass()(model).modified


def test_a_product_over_no_axes_is_no_product_where_its_length_is_not_known() -> None:
    model = parse("g (float[N,3,5] x) => (int64[?] y) <int64[2] k = {1, 2}> { s = Shape(x)\n t = Gather(s, k)\n u = ReduceProd<noop_with_empty_axes=1>(t)\n y = Add(u, u) }")  # fmt: skip
    InferShapesPass()(model)
    for node in list(model.graph)[2:]:
        node.outputs[0].shape = ir.Shape([None])
    check(model, FoldShapesPass(), inputs=[numbers(2, 3, 5)])
    assert operators(model)[-2:] == ["ReduceProd", "Add"]


def reshape(target: str, output: str = "?,?,?", attributes: str = "") -> list[int] | None:
    model = parse(
        f"""g (float[batch,seq,8] x) => (float[{output}] y) {CONSTANTS} {{
 s = Shape(x)
 b = Gather(s, zero)
 q = Gather(s, one)
 first = Gather(s, m3)
 kept = Div(b, one)
 moved = Add(b, zero)
 added = Add(zero, b)
 lowered = Sub(b, zero)
 scaled = Mul(b, one)
 times = Mul(one, b)
 other = Mul(b, two)
 less = Sub(b, one)
 more = Add(b, one)
 half = Div(b, two)
 t = Concat<axis=0>({target})
 y = Reshape{attributes}(x, t) }}"""
    )
    InferShapesPass()(model)
    check(model, FoldShapesPass(), inputs=[numbers(2, 6, 8)], modified=None)
    node = next(node for node in model.graph if node.op_type == "Reshape")
    return integers(node.inputs[1])


def test_reshape_with_dynamic_dimensions_gets_a_constant_shape() -> None:
    assert reshape("b, q, four, two", "?,?,?,?") == [0, 0, 4, 2]
    assert reshape("b, m1, four") == [0, -1, 4]
    assert reshape("b, one, m1") == [0, 1, -1]
    assert reshape("four, q, m1") == [4, 0, -1]
    assert reshape("other, four, m1") is None
    assert reshape("other, four, two, three", "?,?,?,?") == [-1, 4, 2, 3]
    assert reshape("q, m1, four") is None  # two sizes that may both be zero
    assert reshape("b, q, m1") == [0, 0, 8]
    assert reshape("four, zero, m1") is None
    assert reshape("b, q, four, two", "?,?,?,?", "<allowzero=1>") == [0, 0, 4, 2]


@pytest.mark.parametrize(
    "dimension", ["first", "kept", "moved", "added", "lowered", "scaled", "times"]
)
def test_a_dimension_that_arithmetic_leaves_as_it_is_is_still_copied(dimension: str) -> None:
    assert reshape(f"{dimension}, q, four, two", "?,?,?,?") == [0, 0, 4, 2]


@pytest.mark.parametrize("dimension", ["less", "more", "half", "other"])
def test_a_dimension_that_arithmetic_changes_is_not_copied(dimension: str) -> None:
    assert reshape(f"{dimension}, m1", "?,?") is None


def test_a_shape_with_more_places_than_the_input_has() -> None:
    assert reshape("b, four, two, q", "?,?,?,?") == [0, 4, 2, -1]
    assert reshape("b, q, four, two, one", "?,?,?,?,?") == [0, 0, 4, 2, 1]


def test_unnamed_dimensions_are_not_taken_for_equal() -> None:
    model = parse(
        f"""g (float[?,?] x) => (int64[1] y) {CONSTANTS} {{
 s = Shape(x)
 a = Gather(s, zero)
 b = Gather(s, one)
 e = Equal(a, b)
 y = Where(e, one, two) }}"""
    )
    check(model, FoldShapesPass(), inputs=[numbers(2, 3)], modified=False)
    assert "Where" in operators(model)


def test_the_shape_of_a_large_weight_is_known_without_reading_it() -> None:
    """Also where nothing but the weight is an operand, and another node reads the weight."""

    class Unreadable(ir.ExternalTensor):
        def numpy(self) -> np.ndarray:
            raise AssertionError("the weight was read")

    model = parse("""g (float[1024,1024] w, float[1024,1024] x) => (float[1024,1024] y, int64[2] s, int64 n) {
 s = Shape(w)
 n = Size(w)
 y = MatMul(x, w) }""")
    value = model.graph.inputs.pop(0)
    value.const_value = Unreadable(
        "missing.bin", 0, 1 << 22, ir.DataType.FLOAT, shape=ir.Shape((1024, 1024)), name="w"
    )
    model.graph.register_initializer(value)
    assert FoldShapesPass()(model).modified
    assert operators(model) == ["Identity", "Identity", "MatMul"]


def test_with_allowzero_a_dimension_is_copied_all_the_same() -> None:
    model = parse("""g (float[n,2,3] x) => (float[a,b] y) <int64[1] six = {6}> {
 s = Shape<start=0, end=1>(x)
 t = Concat<axis=0>(s, six)
 y = Reshape<allowzero=1>(x, t) }""")
    InferShapesPass()(model)
    check(model, FoldShapesPass(), inputs=[numbers(4, 2, 3)])
    (reshape,) = (node for node in model.graph if node.op_type == "Reshape")
    assert reshape.inputs[1] is not None
    assert reshape.inputs[1].const_value is not None
    assert reshape.inputs[1].const_value.numpy().tolist() == [0, 6]
    assert "allowzero" not in reshape.attributes


@pytest.mark.parametrize(
    ("source", "shape", "written"),
    [
        # where two copied dimensions may be empty, -1 would be undetermined
        ("a,b,c,d", "Concat<axis=0>(first, n)", None),
        # 12 elements: -1 is not 12 // 1 where another size is unknown
        ("2,6", "Concat<axis=0>(n, m1)", None),
        ("2,6", "Concat<axis=0>(zero, m1)", None),
        ("0,3", "Concat<axis=0>(three, m1)", [3, -1]),
        ("1,1", "Concat<axis=0>(one, m1)", [1, 1]),
        ("?,6", "Concat<axis=0>(two, m1)", [2, -1]),
        ("2,6", "Concat<axis=0>(three, m1)", [3, 4]),
    ],
)
def test_what_the_rest_of_a_reshape_stands_for(
    source: str, shape: str, written: list[int] | None
) -> None:
    model = parse(f"""g (float[{source}] x, int64[1] n) => (y) {CONSTANTS} {{
        whole = Shape(x)
        first = Slice(whole, zero, two)
        s = {shape}
        y = Reshape(x, s)
    }}""")
    InferShapesPass()(model)
    FoldShapesPass()(model)
    assert integers(model.graph[-1].inputs[1]) == written
