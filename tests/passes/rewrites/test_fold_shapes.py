from __future__ import annotations

import pytest

from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.fold_shapes import FoldShapesPass
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.rewriting import integers
from tests.passes.rewrites.applying import check, numbers, operators, parse

CONSTANTS = "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64 s1 = {1}, int64[1] m1 = {-1}, int64[1] four = {4}, int64[1] giga = {2000000000}, int64[1] big = {9223372036854775807}>"  # fmt: skip


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


def reshape(target: str, output: str = "?,?,?") -> list[int] | None:
    model = parse(
        f"""g (float[batch,seq,8] x) => (float[{output}] y) {CONSTANTS} {{
 s = Shape(x)
 b = Gather(s, zero)
 q = Gather(s, one)
 t = Concat<axis=0>({target})
 y = Reshape(x, t) }}"""
    )
    check(
        model,
        InferShapesPass(),
        FoldShapesPass(),
        inputs=[numbers(2, 6, 8) if output != "four" else numbers(4, 6, 8)],
        modified=None,
    )
    node = next(node for node in model.graph if node.op_type == "Reshape")
    return integers(node.inputs[1])


def test_reshape_with_dynamic_dimensions_gets_a_constant_shape() -> None:
    assert reshape("b, q, four, two", "?,?,?,?") == [0, 0, 4, 2]
    assert reshape("b, m1, four") == [0, -1, 4]
    assert reshape("four, q, m1") == [4, 0, -1]
    assert reshape("q, m1, four") is None  # two sizes that may both be zero
    assert reshape("b, q, m1") is None


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
