"""The distance of two values, in numpy's own words; and which types are compared as which."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from samba_onnx.comparing.expectations import ChosenTolerances
from samba_onnx.comparing.value_statistics import ValueStatistics, value_statistics

Array = npt.NDArray[Any]


def _statistics(actual: Any, expected: Any, rtol: float | None = None) -> ValueStatistics:
    return value_statistics("v", actual, expected, ChosenTolerances(rtol), 3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "complex64"])
def test_means_and_cosine_are_numpys(dtype: str) -> None:
    generator = np.random.default_rng(0)
    left, right = (generator.integers(-9, 9, (2, 5)).astype(dtype) for _ in range(2))
    statistics = _statistics(left, right)
    wide = np.complex128 if dtype == "complex64" else np.float64
    a, b = left.astype(wide).ravel(), right.astype(wide).ravel()
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    # Both are computed in 64 bits, in another order of additions.
    assert statistics.mean_absolute_error == pytest.approx(np.abs(a - b).mean(), rel=1e-12)
    assert statistics.cosine == pytest.approx(np.vdot(a, b).real / lengths, rel=1e-12)
    assert not statistics.identical
    assert not statistics.comparison.passed
    assert (statistics.comparison.name, statistics.comparison.shape) == ("v", (2, 5))
    assert statistics.dtype == ""


@pytest.mark.parametrize(
    "value",
    [
        np.array([[1.0, np.nan, -0.0]], np.float32),
        np.array(["a", "b"], object),
        np.array(3, np.int64),
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.empty((0, 2), np.float16),
    ],
)
def test_equal_bits_are_identical(value: Array) -> None:
    statistics = _statistics(value.copy(), value)
    assert statistics.identical
    assert (statistics.mean_absolute_error, statistics.cosine) == (0.0, 1.0)
    comparison = statistics.comparison
    assert comparison.passed
    assert (comparison.name, comparison.type) == ("v", str(value.dtype))
    assert (comparison.shape, comparison.elements) == (value.shape, value.size)
    assert (comparison.max_absolute_error, comparison.max_relative_error) == (0.0, 0.0)
    assert comparison.mismatched == 0


def test_one_bit_is_not_identical_but_may_pass() -> None:
    expected = np.array([1.0, 2.0], np.float32)
    statistics = _statistics(np.nextafter(expected, np.float32(9)), expected)
    assert not statistics.identical
    assert statistics.comparison.passed
    assert not _statistics(np.zeros(2, np.float32), np.array([0.0, -0.0], np.float32)).identical


def test_texts_shapes_and_sequences_have_no_means() -> None:
    one, two = np.array(["a"], object), np.array(["b"], object)
    pairs: list[tuple[Any, Any]] = [
        (one, two),
        (one, np.ones(1, np.float32)),
        (np.ones(1, np.float32), one),
        (np.ones((1, 2), np.float32), np.ones(2, np.float32)),
        (np.ones((1, 2), np.float32), np.zeros((2, 1), np.float32)),
        ([np.ones(2, np.float32)], [np.zeros(2, np.float32)]),
        (None, np.ones(2, np.float32)),
    ]
    for actual, expected in pairs:
        statistics = _statistics(actual, expected)
        assert (statistics.mean_absolute_error, statistics.cosine) == (None, None)
        assert not statistics.identical
        assert not statistics.comparison.passed


def test_a_sequence_is_judged_by_its_worst_element_under_its_own_name() -> None:
    expected = [np.array([1.0, 1.0], np.float32), np.array([1.0], np.float32)]
    actual = [expected[0].copy(), np.array([1.5], np.float32)]
    statistics = _statistics(actual, expected)
    assert statistics.comparison.name == "v"
    assert statistics.comparison.max_absolute_error == 0.5
    assert not statistics.comparison.passed
    assert statistics.dtype == ""
    empty = _statistics([], [])
    assert empty.identical
    assert (empty.mean_absolute_error, empty.cosine) == (0.0, 1.0)
    assert (empty.comparison.name, empty.comparison.elements) == ("v", 0)


def test_what_is_not_finite_has_no_mean_and_what_has_no_length_no_angle() -> None:
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    assert _statistics(zeros, ones).cosine is None
    assert _statistics(ones, zeros).cosine is None
    assert _statistics(zeros, ones).mean_absolute_error == 1.0
    for wrong, expected in ((np.nan, ones), (np.inf, ones), (np.inf, np.array([np.inf, 1]))):
        with warnings.catch_warnings(action="error"):
            statistics = _statistics(np.array([wrong, 2], np.float32), expected.astype(np.float32))
        assert (statistics.mean_absolute_error, statistics.cosine) == (None, None)
    huge = np.full(2, 1e200)  # whose squares overflow 64 bits
    statistics = _statistics(huge, -huge)
    assert statistics.cosine is None
    assert statistics.mean_absolute_error == pytest.approx(2e200)
    nothing = _statistics(np.empty(0), np.empty(0, np.float32))
    assert (nothing.identical, nothing.mean_absolute_error, nothing.cosine) == (False, 0.0, None)
    same = np.array([1.0, 1e-200])
    assert _statistics(np.array([1.0, 2e-200]), same).cosine == 1.0


def test_a_cosine_is_between_its_bounds_however_it_is_rounded() -> None:
    generator = np.random.default_rng(1)
    for _ in range(20):
        vector = generator.standard_normal(7)
        for factor in (3.0, -3.0):
            cosine = _statistics(vector * factor, vector).cosine
            assert cosine is not None
            assert abs(cosine) <= 1.0
            assert cosine == pytest.approx(np.sign(factor), abs=1e-12)


@pytest.mark.parametrize("half", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)])
def test_wide_floats_are_rounded_where_the_model_has_halves(half: np.dtype[Any]) -> None:
    expected = np.array([1.0, 3.0], half)
    actual = np.array([1.0001, 2.9999], np.float32)  # these, rounded to either half
    statistics = _statistics(actual, expected)
    assert statistics.identical
    assert statistics.dtype == "float32"
    huge = _statistics(np.array([1e39], np.float64), np.array([np.inf], half))
    assert huge.identical
    other = _statistics(expected, np.array([1.0, 3.0], np.float32))
    assert (
        not other.identical
    )  # a half where the model has float32 is no rounding of the compiler's
    assert other.dtype == str(half)


@pytest.mark.parametrize(
    "dtype", [np.dtype(np.int8), np.dtype(np.uint8), np.dtype(ml_dtypes.int4), np.dtype(np.int32)]
)
def test_whole_numbers_may_be_floats_in_the_pef(dtype: np.dtype[Any]) -> None:
    expected = np.array([1, 3], dtype)
    statistics = _statistics(np.array([1.0, 3.0], np.float32), expected)
    assert statistics.identical
    assert statistics.comparison.type == "float32"
    assert statistics.dtype == "float32"
    assert not _statistics(np.array([1.0, 3.5], np.float32), expected).comparison.passed
    # An integer of another type is no float of the same number.
    assert not _statistics(np.array([1, 3], np.int64), expected).comparison.passed


def test_no_other_types_are_brought_together() -> None:
    truths = np.array([True, False])
    assert not _statistics(np.array([1.0, 0.0], np.float32), truths).comparison.passed
    statistics = _statistics(np.array([1.0], np.float64), np.array([1.0], np.float32))
    assert not statistics.identical
    assert statistics.dtype == "float64"


def test_the_tolerances_are_those_of_the_user() -> None:
    expected, actual = np.ones(2, np.float32), np.full(2, 1.05, np.float32)
    assert not _statistics(actual, expected).comparison.passed
    assert _statistics(actual, expected, rtol=0.1).comparison.passed


def test_halves_may_be_off_by_roundings_of_a_deep_model() -> None:
    expected, actual = np.ones(2, np.float16), np.full(2, 1.02, np.float16)
    limits = ChosenTolerances()
    assert not value_statistics("v", actual, expected, limits, 1).comparison.passed
    assert value_statistics("v", actual, expected, limits, 10_000).comparison.passed


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_coarser_pef_is_judged_by_its_own_roundings_in_the_type_of_the_original(
    dtype: str,
) -> None:
    expected = np.ones(2, np.float32)
    actual = np.full(2, 1 + 2.0**-7).astype(getattr(ml_dtypes, dtype, dtype))
    statistics = value_statistics("v", actual, expected, ChosenTolerances(), 1, 8.0)
    assert statistics.comparison.passed
    assert statistics.comparison.type == "float32"
    assert statistics.dtype == ("" if dtype == "float32" else dtype)
    assert not value_statistics("v", actual, expected, ChosenTolerances(), 1).comparison.passed
    double = value_statistics("v", actual, expected.astype(np.float64), ChosenTolerances(), 1, 8.0)
    assert not double.comparison.passed


def test_steps_of_a_coarser_pef_may_be_off_by_one() -> None:
    expected, actual = np.array([5, 50], np.int8), np.array([6, 49], np.int8)
    for zero, passed in ((0.0, True), (None, False)):
        statistics = value_statistics("v", actual, expected, ChosenTolerances(), 1, 8.0, zero)
        assert statistics.comparison.passed == passed
