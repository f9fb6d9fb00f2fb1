from __future__ import annotations

import pytest

from samba_onnx.passes.rewrites.drop_empty_pieces import DropEmptyPiecesPass
from tests.passes.rewrites.applying import check, numbers, operators, parse

GRAPH = """g (float[2, 6] x) => (float[2, a] y, float[2, b] z{more})
<int64[{count}] sizes = {{{sizes}}}> {{ {pieces} = Split <axis = 1> (x, sizes) y = Relu(p) z = Neg(q) }}"""


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [("2, 4, 0", "p, q, r"), ("0, 2, 4", "r, p, q"), ("2, 0, 4, 0", "p, r, q, s")],
)
def test_pieces_without_elements_go(sizes: str, pieces: str) -> None:
    text = GRAPH.format(sizes=sizes, pieces=pieces, count=sizes.count(",") + 1, more="")
    model = check(parse(text), DropEmptyPiecesPass(), inputs=[numbers(2, 6)])
    assert operators(model) == ["Split", "Relu", "Neg"]
    assert [value.name for value in model.graph[0].outputs] == ["p", "q"]
    assert not DropEmptyPiecesPass()(model).modified


@pytest.mark.parametrize(
    ("sizes", "pieces", "more", "reason"),
    [
        ("2, 4", "p, q", "", "not some of its pieces are empty"),
        ("2, 4, 0", "p, q, r", ", float[2, c] r", "a piece without elements is read"),
    ],
)
def test_pieces_that_somebody_reads_stay(sizes: str, pieces: str, more: str, reason: str) -> None:
    text = GRAPH.format(sizes=sizes, pieces=pieces, count=sizes.count(",") + 1, more=more)
    rewrite = DropEmptyPiecesPass()
    check(parse(text), rewrite, inputs=[numbers(2, 6)], modified=False)
    assert reason in rewrite.refusals.lines()[0]


def test_sizes_that_are_computed_stay() -> None:
    model = parse("""g (float[6] x, int64[2] n) => (float[a] y) { y, z = Split(x, n) }""")
    assert not DropEmptyPiecesPass()(model).modified
