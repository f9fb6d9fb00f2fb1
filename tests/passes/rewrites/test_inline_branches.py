from __future__ import annotations

import numpy as np
import pytest

from samba_onnx.passes.rewrites.inline_branches import InlineBranchesPass
from tests.passes.rewrites.applying import check, numbers, operators, parse

GRAPH = """g (float[2] x) => (float[2] y, float[2] z) <bool c = {%d}> {
 r = Relu(x)
 y, h = If (c) <then_branch = t () => (float[2] a, float[2] b) { a = Neg(r)
 b = Exp(a) }, else_branch = e () => (float[2] a, float[2] b) { a = Abs(r)
 b = Identity(x) }>
 z = Add(h, r) }"""


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (1, ["Relu", "Neg", "Exp", "Identity", "Add"]),
        (0, ["Relu", "Abs", "Identity", "Identity", "Add"]),
    ],
)
def test_the_branch_that_is_taken_replaces_the_if(condition: int, found: list[str]) -> None:
    model = check(parse(GRAPH % condition), InlineBranchesPass(), inputs=[numbers(2)])
    assert sorted(operators(model)) == sorted(found)


def test_unknown_conditions_stay() -> None:
    model = parse(
        (GRAPH % 0).replace("float[2] x)", "float[2] x, bool c)", 1).replace("<bool c = {0}>", "")
    )
    check(model, InlineBranchesPass(), inputs=[numbers(2), np.array(True)], modified=False)
    assert operators(model) == ["Relu", "If", "Add"]
