from __future__ import annotations

import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.simplify_concats import SimplifyConcatsPass
from tests.passes.rewrites.applying import check, numbers, operators, parse

HEAD = "g (float[2,n] x, float[2,3] w, float[2,0] e) => (float[2,m] y)"


def simplified(body: str, *, modified: bool = True) -> list[list[str]]:
    """Return the operands of every Concat after the pass."""
    model = parse(f"{HEAD} {{ {body} }}")
    InferShapesPass()(model)
    inputs = [numbers(2, 4), numbers(2, 3), numbers(2, 0)]
    check(model, SimplifyConcatsPass(), inputs=inputs, modified=modified)
    return [
        [str(value.name) for value in node.inputs if value is not None]
        for node in model.graph
        if node.op_type == "Concat" and any(value.uses() or value.is_graph_output() for value in node.outputs)
    ]  # fmt: skip


@pytest.mark.parametrize("axis", [1, -1])
def test_empty_operands_go(axis: int) -> None:
    assert simplified(f"y = Concat<axis={axis}>(e, x, e, w)") == [["x", "w"]]


def test_of_empty_operands_one_stays() -> None:
    assert simplified("c = Concat<axis=1>(e, e)\n y = Concat<axis=1>(x, c)") == [["x"]]


def test_of_empty_operands_alone_the_first_stays() -> None:
    model = parse("g (float[2,0] e) => (float[2,m] y) { y = Concat<axis=1>(e, e, e) }")
    check(model, SimplifyConcatsPass(), inputs=[numbers(2, 0)])
    assert [value is not None and value.name for value in model.graph[0].inputs] == ["e"]


@pytest.mark.parametrize("inner", [1, -1])
def test_neighbours_along_one_axis_become_one(inner: int) -> None:
    assert simplified(f"c = Concat<axis={inner}>(w, x)\n y = Concat<axis=1>(x, c, w)") == [
        ["x", "w", "x", "w"]
    ]


@pytest.mark.parametrize(
    "body",
    [
        "y = Concat<axis=1>(x, w)",
        "c = Concat<axis=0>(w, w)\n d = Concat<axis=0>(w, w)\n f = Concat<axis=1>(c, d)\n z, y = Split<axis=0, num_outputs=2>(f)",
        "c = Concat<axis=1>(w, x)\n n = Neg(c)\n y = Concat<axis=1>(n, c)",
    ],
)
def test_other_operands_stay(body: str) -> None:
    simplified(body, modified=False)


def test_an_empty_operand_along_another_axis_is_an_error_and_stays_one() -> None:
    model = parse("g (float[0,3] x, float[2,3] w) => (float[a,b] y) { y = Concat<axis=1>(x, w) }")
    SimplifyConcatsPass()(model)
    assert operators(model) == ["Concat"]
    assert len(model.graph[0].inputs) == 2


def test_an_axis_from_the_end_is_the_same_axis_for_an_empty_operand() -> None:
    model = parse("g (float[0,3] e, float[2,3] x) => (float[2,3] y) { y = Concat<axis=-2>(e, x) }")
    check(model, SimplifyConcatsPass(), inputs=[numbers(0, 3), numbers(2, 3)])
    assert [value is not None and value.name for value in model.graph[0].inputs] == ["x"]


@pytest.mark.parametrize(("inner", "merges"), [(1, True), (0, False), (-1, False)])
def test_operands_of_unknown_rank_are_joined_along_the_very_same_axis(
    inner: int, merges: bool
) -> None:
    model = parse(
        f"""g (float[2,3] x) => (y)
        {{ c = Concat<axis={inner}>(x, x) y = Concat<axis=1>(c, x) }}"""
    )
    SimplifyConcatsPass()(model)
    assert (len(model.graph[-1].inputs) == 3) is merges


def test_an_axis_that_no_operand_has_is_left_to_who_refuses_the_model() -> None:
    model = parse("g (float[2] x) => (y) { y = Concat<axis=1>(x, x) }")
    assert not SimplifyConcatsPass()(model).modified
