"""Einsum by products, against onnxruntime: the sums have at most 30 products of numbers around one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.legalisation.legalising import legalised, refusal

ROUNDINGS = 2e-6
"""Largest difference of sums of 30 products, rounded to float32 in another order."""


def text(equation: str, shapes: list[tuple[int, ...]], dtype: str = "float") -> str:
    inputs = ", ".join(f"{dtype}[{','.join(map(str, s))}] x{n}" for n, s in enumerate(shapes))
    names = ", ".join(f"x{n}" for n in range(len(shapes)))
    return f'g ({inputs}) => ({dtype} y) {{ y = Einsum<equation="{equation}">({names}) }}'


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bhij,bhjd->bhid", [(2, 3, 4, 6), (2, 3, 6, 5)]),
        ("bind,bjnd->bnij", [(2, 4, 3, 5), (2, 6, 3, 5)]),
        ("nchw,cd->ndhw", [(2, 3, 4, 5), (3, 6)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(5,), (5,)]),
        ("ij,ij->ij", [(3, 4), (3, 4)]),
        ("ij->ji", [(3, 4)]),
        ("ij->i", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("bii->bi", [(2, 4, 4)]),
        ("iij,j->i", [(4, 4, 3), (3,)]),
        ("...ij,...jk->...ik", [(2, 5, 3, 4), (2, 5, 4, 2)]),
        ("i...,i...->...", [(3, 2, 4), (3, 2, 4)]),
        ("...ij", [(2, 3, 4)]),
        ("ba,ac", [(3, 4), (4, 2)]),
        ("Ab, bC -> AC", [(3, 4), (4, 2)]),
        ("abc,d,ce->ade", [(2, 3, 4), (2,), (4, 3)]),
        ("ij,jkl->ikl", [(3, 4), (4, 2, 5)]),
        ("nabi,nij->nabj", [(2, 3, 4, 5), (2, 5, 6)]),
        ("nij,njab->niab", [(2, 3, 4), (2, 4, 5, 6)]),
        # A label that is kept is broadcast from either side, as numpy's and onnxruntime's are.
        ("bij,bjk->bik", [(1, 3, 4), (2, 4, 5)]),
        ("bij,bjk->bik", [(2, 3, 4), (1, 4, 5)]),
        ("abij,abjk->abik", [(1, 2, 3, 4), (5, 1, 4, 2)]),
        ("bij,bj->bi", [(1, 3, 4), (2, 4)]),
        ("bcij,bj->bci", [(1, 2, 3, 4), (3, 4)]),
        ("ij,ij->ij", [(1, 4), (3, 4)]),
        ("ij,ij->ij", [(3, 4), (3, 1)]),
        ("ij,ij,ij->ij", [(1, 4), (3, 1), (1, 1)]),
        ("...ij,...jk->...ik", [(1, 5, 3, 4), (2, 1, 4, 2)]),
    ],
)
def test_every_kind_of_equation(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    made = legalised(text(equation, shapes), inputs, atol=ROUNDINGS)
    assert set(made) <= {"MatMul", "Mul", "Transpose", "Reshape", "ReduceSum", "Gather", "Identity"}


def test_attention_is_one_product_of_matrices() -> None:
    shapes = [(2, 3, 4, 5), (2, 3, 6, 5)]
    inputs = [numbers(*shape) for shape in shapes]
    made = legalised(text("bhid,bhjd->bhij", shapes), inputs, atol=ROUNDINGS)
    assert made == ["Transpose", "MatMul"]


def test_what_sums_nothing_is_an_elementwise_product() -> None:
    inputs = [numbers(3, 4, seed=seed) for seed in (0, 1)]
    made = legalised(text("ij,ij->ij", [(3, 4), (3, 4)]), inputs, atol=ROUNDINGS)
    assert (made.count("Mul"), made.count("MatMul")) == (1, 0)


def test_integers_are_exact() -> None:
    inputs = [np.arange(12, dtype=np.int32).reshape(3, 4) for _ in range(2)]
    legalised(text("ij,kj->ik", [(3, 4), (3, 4)], "int32"), inputs)


@pytest.mark.parametrize(
    ("equation", "shapes", "reason"),
    [
        ("ij,jk->ik", [(3, 1), (4, 2)], "its label 'j' is summed over and has two sizes"),
        ("ij->i", [(3, 4, 5)], "its equation 'ij->i' does not fit the ranks of its operands"),
        ("ij,jk->ik", [(3, 4)], "its equation 'ij,jk->ik' does not fit its operands"),
        ("ij->ji->ij", [(3, 4)], "its equation 'ij->ji->ij' does not fit its operands"),
        ("ii->i", [(3, 4)], "its label 'i' has two sizes"),
    ],
)
def test_what_is_not_defined_stays(
    equation: str, shapes: list[tuple[int, ...]], reason: str
) -> None:
    graph = text(equation, shapes).replace("(float y)", "(float[a,b] y)")
    assert refusal(graph) == f"Einsum 'y': {reason}"
