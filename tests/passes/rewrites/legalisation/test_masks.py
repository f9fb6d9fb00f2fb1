from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.legalisation.legalising import legalised, refusal


@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 1), (1, 0), (1, 1)])
def test_running_sums_add_in_the_order_that_they_did(exclusive: int, reverse: int) -> None:
    text = f"""g (float[3,7] x) => (float[a,b] y) <int64 axis = {{1}}>
{{ y = CumSum<exclusive={exclusive}, reverse={reverse}>(x, axis) }}"""
    assert "CumSum" in legalised(text, [numbers(3, 7)])


def test_a_running_sum_over_a_computed_axis_stays() -> None:
    text = "g (float[3,7] x, int64 axis) => (float[3,7] y) { y = CumSum<reverse=1>(x, axis) }"
    assert refusal(text) == "CumSum 'y': its axis 'axis' is not constant"


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [-3, -1, 0, 2, 9])
def test_triangles_by_a_computed_diagonal(upper: int, diagonal: int) -> None:
    text = f"g (float[2,4,5] x, int64 k) => (float[2,4,5] y) {{ y = Trilu<upper={upper}>(x, k) }}"
    made = legalised(text, [numbers(2, 4, 5), np.array(diagonal)])
    assert made == ["GreaterOrEqual" if upper else "LessOrEqual", "Where"]


@pytest.mark.parametrize("upper", [0, 1])
def test_triangles_of_truth_values(upper: int) -> None:
    text = f"g (bool[4,5] x, int64 k) => (bool[4,5] y) {{ y = Trilu<upper={upper}>(x, k) }}"
    made = legalised(text, [numbers(4, 5) > 0, np.array(1)])
    assert made == ["GreaterOrEqual" if upper else "LessOrEqual", "And"]


def test_triangles_of_types_that_trilu_lacks() -> None:
    text = "g (int16[4,5] x) => (int16[4,5] y) { y = Trilu<upper=0>(x) }"
    assert refusal(text.replace("int16", "uint8")).startswith("Trilu 'y': it would need what")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_classes_count_from_either_end(axis: int) -> None:
    text = f"""g (int64[2,3] x, float[2] v) => (float[a,b,c] y) <int64 depth = {{4}}>
{{ y = OneHot<axis={axis}>(x, depth, v) }}"""
    indices = np.array([[0, 3, -1], [-4, 2, 1]])
    assert "OneHot" not in legalised(text, [indices, np.array([-2, 5], np.float32)])


def test_classes_beyond_the_depth_are_off() -> None:
    text = """g (int64[3] x, float[2] v) => (float[a,b] y) <int64 depth = {2}>
{ y = OneHot(x, depth, v) }"""
    legalised(text, [np.array([2, -3, 1]), np.array([0, 1], np.float32)])


def test_fractions_are_no_class() -> None:
    text = """g (float[6] x, int64[2] v) => (int64[a,b] y) <int64 depth = {3}>
{ y = OneHot(x, depth, v) }"""
    indices = np.array([1, 0.5, -0.5, 2, -1, -1.5], np.float32)
    legalised(text, [indices, np.array([0, 1])])


def test_a_computed_depth_stays() -> None:
    text = "g (int64[3] x, int64 d, float[2] v) => (float[3,b] y) { y = OneHot(x, d, v) }"
    assert refusal(text) == "OneHot 'y': its depth 'd' is not constant"
