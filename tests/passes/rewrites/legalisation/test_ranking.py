from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.legalisation.legalising import legalised, refusal


def tied(*shape: int) -> np.ndarray:
    """Return numbers many of which are equal, infinities among them."""
    draw = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
    draw[draw == 3] = np.inf
    draw[draw == -3] = -np.inf
    return draw


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_ties_go_to_the_lowest_index(axis: int, largest: int) -> None:
    text = f"""g (float[5,6,7] x) => (float[a,b,c] y, int64[a,b,c] i) <int64[1] k = {{4}}>
{{ y, i = TopK<axis={axis}, largest={largest}>(x, k) }}"""
    assert "TopK" not in legalised(text, [tied(5, 6, 7)])


def test_integers_have_a_rank() -> None:
    text = """g (int64[3,8] x) => (int64[a,b] y, int64[a,b] i) <int64[1] k = {8}>
{ y, i = TopK(x, k) }"""
    legalised(text, [tied(3, 8).clip(-2, 2).astype(np.int64)])


def test_one_output_may_be_enough() -> None:
    text = "g (float[3,8] x) => (int64[a,b] i) <int64[1] k = {2}> { y, i = TopK(x, k) }"
    assert "GatherElements" not in legalised(text, [tied(3, 8)])


def test_a_long_axis_and_a_computed_count_stay() -> None:
    text = "g (float[3,300] x) => (float[a,b] y) <int64[1] k = {2}> { y, i = TopK(x, k) }"
    assert refusal(text) == "TopK 'y': its axis has 300 elements, more than 256"
    text = "g (float[3,30] x, int64[1] k) => (float[a,b] y) { y, i = TopK(x, k) }"
    assert refusal(text) == "TopK 'y': its K 'k' is not constant"


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_last_of_equal_elements(operator: str, keepdims: int) -> None:
    rank = "a,b,c" if keepdims else "a,b"
    text = f"""g (float[4,5,6] x) => (int64[{rank}] y)
{{ y = {operator}<axis=1, select_last_index=1, keepdims={keepdims}>(x) }}"""
    assert legalised(text, [tied(4, 5, 6)]) == ["Gather", operator, "Sub"]


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_the_extreme_of_integers(operator: str, last: int) -> None:
    text = f"""g (int32[4,9] x) => (int64[a,b] y) {{ y = {operator}<axis=-1, select_last_index={last}>(x) }}"""
    legalised(text, [tied(4, 9).clip(-2, 2).astype(np.int32)])
