"""The rules by which outputs are judged: what passes, what does not, and what is said of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from samba_onnx.comparing.element_errors import NEIGHBOURS
from samba_onnx.comparing.expectations import EQUAL, ChosenTolerances, Expectation
from samba_onnx.comparing.judge import Verdict, judge, worst_of
from samba_onnx.facts.tolerances import (
    OUTPUT,
    TIMES_OWN_ERROR,
    output_roundings,
    rounding_unit,
)

NARROW = ["float16", "bfloat16"]
FLOATS = ["float32", "float64", *NARROW]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def judged(
    actual: Any,
    expected: Any,
    wide: Any = None,
    *,
    depth: int = 1,
    limits: ChosenTolerances | None = None,
) -> Verdict:
    answer = Expectation({"y": expected}, None if wide is None else {"y": wide}, depth)
    (output,) = judge({"y": actual}, answer, limits or ChosenTolerances(), "one run")
    return output


def numbers(spread: float, size: int = 1000) -> np.ndarray:
    """Return numbers of both signs whose magnitudes differ by about ``exp(6 * spread)``."""
    generator = np.random.default_rng(7)
    signs = generator.choice([-1.0, 1.0], size)
    return np.asarray(signs * np.exp(spread * generator.standard_normal(size)), np.float32)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
def test_elements_that_became_zero_are_seen_however_large_others_are(
    name: str, spread: float
) -> None:
    wide = numbers(spread)
    answer = wide.astype(dtype_of(name))
    wrong = answer.copy()
    wrong[np.argsort(np.abs(wide))[:598]] = 0
    output = judged(wrong, answer, wide, depth=20)
    assert not output.passed
    assert output.mismatched == 598
    assert judged(answer, answer, wide, depth=20).passed


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("units", [2, 30])
def test_one_element_may_be_off_by_some_roundings_and_not_by_more(
    name: str, wide: bool, units: int
) -> None:
    """A tolerance ten times as wide, let alone a hundred times, would take what must fail here."""
    unit = rounding_unit(name)
    assert unit is not None
    exact = numbers(0.0)
    answer = exact.astype(dtype_of(name))
    actual = answer.copy()
    actual[500] = (exact[500] * (1 + units * unit)).astype(actual.dtype)
    assert judged(actual, answer, exact if wide else None).passed == (units == 2)


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize(("times", "passes"), [(0.5, True), (2.0, False), (99.0, False)])
def test_wide_floats_may_be_off_by_what_is_stated_and_not_by_more(
    name: str, times: float, passes: bool
) -> None:
    answer = numbers(2.0).astype(name)
    largest = float(np.abs(answer).max())
    for place in (np.argmin(np.abs(answer)), np.argmax(np.abs(answer))):
        allowed = OUTPUT.relative * abs(float(answer[place])) + OUTPUT.absolute * largest
        actual = answer.copy()
        actual[place] += times * allowed
        output = judged(actual, answer)
        assert output.passed == passes
        assert output.of_allowed == pytest.approx(times, rel=0.05)
        assert output.mismatched == (not passes)


@pytest.mark.parametrize("name", ["float32", "complex64"])
def test_what_is_allowed_follows_the_largest_number_however_small(name: str) -> None:
    answer = (1e-6 * numbers(0.0)).astype(name)
    actual = answer.copy()
    actual[0] += 1e-9
    output = judged(actual, answer)
    assert (output.passed, output.mismatched) == (False, 1)
    assert output.max_absolute_error == pytest.approx(1e-9, rel=0.01)
    assert output.max_relative_error == pytest.approx(1e-3, rel=0.01)


def test_what_two_numbers_are_apart_may_be_beyond_their_type() -> None:
    largest = np.asarray([60000], np.float16)
    output = judged(-largest, largest, limits=ChosenTolerances(atol=2.5))
    assert (output.passed, output.max_absolute_error) == (True, 120000)


def test_a_comparison_says_what_was_compared() -> None:
    array = np.ones((2, 3), np.float32)
    output = judged(array, array)
    assert (output.name, output.type, output.shape) == ("y", "float32", (2, 3))
    assert (output.elements, output.run, output.of_allowed) == (6, "one run", 0.0)
    nothing = Verdict("y", "none", (), 0.0, 0.0, 0, 0, passed=True, run="one run")
    assert judged(None, None) == nothing
    (unnamed,) = judge({"y": array}, Expectation({"y": array}), ChosenTolerances())
    assert unnamed == dataclasses.replace(output, run="")


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_both_parts_of_complex_numbers_count(name: str) -> None:
    answer = np.asarray([1 + 2j, 3 - 4j], name)
    assert judged(answer, answer).passed
    for error in (0.1, 0.1j):
        assert judged(answer + np.asarray(error, name), answer).mismatched == 2


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("own", [np.inf, np.nan])
def test_what_the_original_cannot_represent_excuses_no_error_elsewhere(
    name: str, own: float
) -> None:
    """It overflows or fails in one place, whatever it would be in float32; all others are exact."""
    exact = np.full((20, 2), 0.5, np.float32)
    answer = exact.astype(dtype_of(name))
    answer[-1, 1] = own
    actual = answer.copy()
    actual[-1, 0] = 0.75
    for wide in (1e6, own):
        exact[-1, 1] = wide
        assert judged(answer, answer, exact).passed
        output = judged(actual, answer, exact)
        assert (output.mismatched, output.max_relative_error) == (1, 0.5)


@pytest.mark.parametrize("shape", [(1,), (40,), (20, 10)])
def test_an_element_may_be_off_by_what_those_of_its_magnitude_are_in_the_original(
    shape: tuple[int, ...],
) -> None:
    generator = np.random.default_rng(0)
    wide = generator.integers(1, 9, shape).astype(np.float32)
    answer = (wide + 0.1 * generator.standard_normal(shape)).astype(np.float16)
    own = np.abs(answer.astype(np.float64) - wide).reshape(-1)
    order = np.argsort(wide, axis=None, kind="stable")
    for place, index in enumerate(order):
        near = own[order[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1]]
        error = max(own[index], np.sqrt(np.mean(near**2)))
        allowed = output_roundings(4) * 2**-11 * wide.flat[index] + TIMES_OWN_ERROR * error
        actual = answer.copy()
        actual.flat[index] = wide.flat[index] + 8 * allowed
        distance = float(actual.flat[index]) - wide.flat[index]
        output = judged(actual, answer, wide, depth=4)
        assert output.of_allowed == pytest.approx(distance / allowed)


@pytest.mark.parametrize("size", [1, 2, 50])
def test_without_a_wider_answer_the_root_mean_square_counts(size: int) -> None:
    answer = np.linspace(0.25, 2, size).astype(np.float16)
    typical = np.sqrt(np.mean(answer.astype(np.float64) ** 2))
    allowed = output_roundings(9) * 2**-11 * (float(answer[0]) + typical)
    actual = answer.copy()
    actual[0] += 0.5
    assert judged(actual, answer, depth=9).of_allowed == pytest.approx(0.5 / allowed)


@pytest.mark.parametrize("name", NARROW)
def test_what_cancellation_costs_the_original_it_may_cost_the_pef(name: str) -> None:
    """Numbers around 0 that are left of others around 100 have the errors of these."""
    dtype = dtype_of(name)
    generator = np.random.default_rng(3)
    exact = generator.standard_normal(1000).astype(np.float32)
    offsets = np.asarray([100, 101, 103], np.float32)[:, None]
    first, second, third = (
        (exact + offset).astype(dtype) - offset.astype(dtype) for offset in offsets
    )
    assert np.abs(first.astype(np.float32) - exact).max() > 20 * (rounding_unit(name) or 0)
    assert judged(second, first, exact).passed
    assert judged(third, first, exact).passed
    if name == "float16":  # of bfloat16 no digit is left
        assert not judged(np.zeros_like(first), first, exact).passed
    assert not judged((exact + 5).astype(dtype), first, exact).passed


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused_where_a_number_is_expected(
    name: str, value: float
) -> None:
    answer = numbers(0.0).astype(dtype_of(name))
    actual = answer.copy()
    actual[3] = value
    for left, right in ((actual, answer), (answer, actual)):
        output = judged(left, right, right.astype(np.float32) if name in NARROW else None)
        assert (output.passed, output.mismatched) == (False, 1)
        assert output.max_absolute_error == np.inf
    opposite = np.where(np.isinf(actual), -actual, answer)
    assert judged(actual, actual).passed
    if np.isinf(value):
        assert not judged(opposite.astype(answer.dtype), actual).passed


OTHERS = {
    "wider": lambda array: array.astype(np.float64),
    "integers": lambda array: array.astype(np.int32),
    "objects": lambda array: array.astype(object),
    "one axis more": lambda array: array[None],
    "transposed": lambda array: array.T,
    "fewer rows": lambda array: array[:-1],
    "missing": lambda array: None,
    "a sequence": lambda array: [array],
}


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("other", OTHERS)
def test_another_type_or_shape_is_refused_whatever_the_numbers(name: str, other: str) -> None:
    answer = np.ones((4, 3), dtype_of(name))
    compared = judge({"y": OTHERS[other](answer)}, Expectation({"y": answer}), ChosenTolerances())
    assert not all(output.passed for output in compared)
    assert compared[0].max_absolute_error == np.inf
    assert (compared[0].type, compared[0].shape) == (name, (4, 3))
    assert compared[0].mismatched == compared[0].elements == 12
    assert compared[0].tolerance == "the same type and shape"


def test_what_cannot_be_compared_is_worse_than_any_error() -> None:
    two = np.ones(2, np.float32)
    wrong = judged(two + 1e9, two)
    for actual, expected, kind in (
        (None, np.ones(0, np.float32), "float32"),
        (two, None, "none"),
    ):
        missing = judged(actual, expected)
        assert (missing.type, missing.elements, missing.mismatched) == (kind, 1, 1)
        assert missing.run == "one run"
        assert worst_of([[wrong], [missing]]) == worst_of([[missing], [wrong]]) == (missing,)


@pytest.mark.parametrize("name", ["int2", "uint4", "int8", "int64", "uint64", "bool"])
def test_exact_types_must_be_equal_whatever_the_user_allows(name: str) -> None:
    answer = np.asarray([0, 1, 1, 0], dtype_of(name))
    actual = np.asarray([0, 1, 0, 0], dtype_of(name))
    output = judged(actual, answer, limits=ChosenTolerances(9.0, 9.0))
    assert (output.passed, output.mismatched, output.tolerance) == (False, 1, EQUAL)
    assert output.of_allowed == np.inf
    assert judged(answer, answer).passed


def test_large_integers_that_differ_by_one_differ() -> None:
    answer = np.asarray([2**62], np.int64)
    assert judged(answer + 1, answer).max_absolute_error == 1


@pytest.mark.parametrize("name", ["int8", "uint8", "int64", "uint64"])
def test_the_error_of_an_integer_is_its_distance(name: str) -> None:
    output = judged(np.asarray([3, 9, 7], name), np.asarray([4, 9, 100], name))
    assert (output.max_absolute_error, output.max_relative_error) == (93, 93)
    assert output.mismatched == 2


def test_texts_are_compared_whatever_holds_them() -> None:
    answer = np.asarray(["a", "b"], object)
    assert judged(answer.astype(str), answer).passed
    assert judged(answer, answer).tolerance == EQUAL
    assert not judged(np.asarray(["a", "c"]), answer).passed


def test_the_tolerance_that_was_used_is_stated() -> None:
    array = np.ones(4, np.float32)
    assert judged(array, array).tolerance == "0.0001 of each element + 1e-05 of the largest"
    chosen = ChosenTolerances(rtol=1e-3)
    assert judged(array, array, limits=chosen).tolerance.startswith("0.001 of each element")
    narrow = array.astype(np.float16)
    assert judged(narrow, narrow, array, depth=4).tolerance == (
        "6 roundings of float16 (2^-11) of each element + 12 times the original's own error, "
        "against float32"
    )
    assert judged(narrow, narrow, depth=4).tolerance == (
        "6 roundings of float16 (2^-11) of each element and of the root mean square"
    )
    loose = judged(narrow, narrow, array, limits=ChosenTolerances(atol=0.5))
    assert loose.tolerance == "0.0001 of each element + 0.5 of the largest"


def test_lists_and_absent_values_are_compared_one_by_one() -> None:
    array = np.ones(2, np.float32)
    expected = Expectation({"s": [array, None], "n": None, "d": {1: array}})
    same = judge({"s": [array, None], "n": None, "d": {1: array}}, expected, ChosenTolerances())
    assert [output.name for output in same] == ["s[0]", "s[1]", "n", "d[1]"]
    assert all(output.passed for output in same)
    other = judge({"s": [array, array, array], "d": {2: array}}, expected, ChosenTolerances())
    assert {output.name for output in other if not output.passed} == {
        *("s[1]", "s[2]", "d[1]", "d[2]"),
    }
    types = {output.name: output.type for output in other}
    assert (types["s[1]"], types["s[2]"], types["d[2]"]) == ("none", "float32", "float32")


def test_the_worst_run_of_an_output_is_reported() -> None:
    good = judged(np.ones(2, np.float32), np.ones(2, np.float32))
    near = dataclasses.replace(good, of_allowed=0.4, run="near")
    far = dataclasses.replace(good, of_allowed=0.9, run="far")
    failed = dataclasses.replace(good, passed=False, of_allowed=0.0, run="failed")
    assert worst_of([[good], [far], [near]]) == (far,)
    assert worst_of([[failed], [far]]) == (failed,)
    assert worst_of([[near], [dataclasses.replace(near, run="as near")]]) == (near,)
    assert worst_of([[far, dataclasses.replace(good, name="z")], [failed]])[0] == failed


def test_a_tensor_without_elements_agrees() -> None:
    for name in FLOATS:
        empty = np.empty((0, 3), dtype_of(name))
        assert judged(empty, empty).passed
        assert judged(empty, empty, empty.astype(np.float32)).passed


def test_floats_behind_quantised_numbers_may_be_off_by_what_quantising_costs() -> None:
    """A step here or there is none of the compiler's; a multiple of what the model itself loses is."""
    exact = numbers(0.5)
    step = 0.05
    answer = (np.round(exact / step) * step).astype(np.float32)
    moved = answer.copy()
    moved[::10] += step
    output = judged(moved, answer, exact)
    assert output.passed
    assert output.tolerance.endswith("12 times the original's own error, against no rounding")
    moved[3] += 20 * step
    assert judged(moved, answer, exact).mismatched == 1


def test_quantised_outputs_may_be_off_by_a_step() -> None:
    exact = np.linspace(-20, 20, 200, dtype=np.float32)
    answer = np.round(exact).astype(np.int8)
    assert judged(answer + np.int8(1), answer, exact).passed
    assert not judged(answer + np.int8(9), answer, exact).passed
    assert not judged(answer + np.int8(1), answer).passed


def test_an_index_may_be_the_one_that_it_is_without_rounding() -> None:
    answer, exact = np.array([3, 4, 5]), np.array([3, 9, 5])
    assert judged(np.array([3, 9, 5]), answer, exact).passed
    assert judged(np.array([3, 4, 5]), answer, exact).passed
    output = judged(np.array([3, 8, 5]), answer, exact)
    assert (output.passed, output.mismatched) == (False, 1)


def test_what_overflows_in_16_bits_may_be_the_number_that_it_is() -> None:
    exact = np.array([1.0, 70000.0, 3.0], np.float32)
    with np.errstate(over="ignore"):
        answer = exact.astype(np.float16)
    assert judged(answer, answer, exact).passed
    lost = np.array([1.0, 60000.0, 3.0], np.float16)
    assert not judged(lost, answer, exact).passed


def test_a_coarser_type_on_the_device_may_be_off_by_its_own_roundings() -> None:
    exact = numbers(0.5)
    answer = exact.astype(np.float16)
    coarse = (exact * (1 + 2.0**-6)).astype(np.float16)
    one = Expectation({"y": answer}, {"y": exact}, 1, coarser=8.0)
    (output,) = judge({"y": coarse}, one, ChosenTolerances())
    assert output.passed
    assert output.tolerance == (
        "5 roundings of bfloat16 (2^-8) of each element and of the root mean square + 96 times the "
        "original's own error, against float32"
    )
    assert not judged(coarse, answer, exact).passed


@pytest.mark.parametrize(("off", "passed"), [(1, True), (2, False)])
def test_integers_behind_floats_may_be_off_by_one_where_the_original_is_right(
    off: int, passed: bool
) -> None:
    values = np.array([3, 40], np.int8)
    one = Expectation({"y": values}, {"y": values.astype(np.float32)}, 1)
    (output,) = judge({"y": values + np.int8(off)}, one, ChosenTolerances())
    assert (output.passed, output.max_relative_error, output.of_allowed) == (passed, off / 40, off)
    assert output.steps == off


@pytest.mark.parametrize("off", [0, 1, -3])
def test_quantised_floats_are_so_many_steps_from_the_original(off: int) -> None:
    """Next to zero, one step is a large part of a number, and says nothing."""
    step = 0.037
    answer = (np.arange(-1, 2) * step).astype(np.float32)
    moved = answer + np.float32([0, off * step, 0])
    one = Expectation({"y": answer}, {"y": answer + np.float32(step / 3)}, 1, {"y": step})
    (output,) = judge({"y": moved}, one, ChosenTolerances())
    assert output.steps == abs(off)
    (other,) = judge({"y": moved}, dataclasses.replace(one, steps={}), ChosenTolerances())
    assert other.steps is None


def test_the_farthest_run_tells_the_steps_of_an_output() -> None:
    answer = np.array([3, 40], np.int8)
    one = Expectation({"y": answer}, {"y": answer.astype(np.float32)}, 1)
    near = judge({"y": answer}, one, ChosenTolerances(), "near")
    far = judge({"y": answer + np.int8(1)}, one, ChosenTolerances(), "far")
    function = judge({"y": answer * np.float32(9)}, Expectation({"y": answer * np.float32(1)}), ChosenTolerances(), "function")  # fmt: skip
    (output,) = worst_of([near, far, function])
    assert (output.run, output.steps) == ("function", 1.0)
    (output,) = worst_of([far, near])
    assert (output.run, output.steps) == ("far", 1.0)


def test_floats_behind_quantised_numbers_are_judged_by_each_and_the_largest() -> None:
    values = np.array([8.0, 0.5], np.float32)
    one = Expectation({"y": values}, {"y": values}, 1)
    limits = ChosenTolerances(defaults=(0.25, 0.125))
    (output,) = judge({"y": values + np.float32([1.5, 0])}, one, limits)
    assert output.of_allowed == 1.5 / (0.125 * 8 + 0.25 * 8)
    small = Expectation({"y": values[1:]}, {"y": values[1:]}, 1)
    (output,) = judge({"y": values[1:] * 2}, small, limits)
    assert output.max_relative_error == 1.0


def test_a_coarser_type_on_the_device_may_be_off_by_more_of_the_originals_error() -> None:
    exact = np.array([1.0625], np.float32)
    answer = np.array([1.0], np.float16)
    one = Expectation({"y": answer}, {"y": exact}, 1, coarser=8.0)
    off = 0.9 * TIMES_OWN_ERROR * 8 * 0.0625
    (output,) = judge({"y": (exact + off).astype(np.float16)}, one, ChosenTolerances())
    assert output.passed


@pytest.mark.parametrize(("units", "passed"), [(8, True), (64, False)])
def test_a_model_in_float32_may_be_off_by_the_roundings_of_a_coarser_device(
    units: int, passed: bool
) -> None:
    exact = numbers(0.0)
    one = Expectation({"y": exact}, None, 1, coarser=8.0)
    actual = exact * np.float32(1 + units * 2.0**-8)
    (output,) = judge({"y": actual}, one, ChosenTolerances())
    assert output.passed == passed
    assert output.tolerance == (
        "15 roundings of bfloat16 (2^-8) of each element and of the root mean square"
    )


def test_steps_are_told_to_three_digits() -> None:
    answer = np.zeros(2, np.float32)
    one = Expectation({"y": answer}, {"y": answer}, 1, {"y": 0.75})
    (output,) = judge({"y": answer + np.float32(0.25)}, one, ChosenTolerances())
    assert output.steps == 0.333


def test_the_error_of_an_integer_is_a_part_of_the_largest_without_rounding() -> None:
    answer = np.array([0, 0], np.int8)
    one = Expectation({"y": answer}, {"y": np.array([0.5, 0.25], np.float32)}, 1)
    (output,) = judge({"y": np.array([1, 0], np.int8)}, one, ChosenTolerances())
    assert (output.max_absolute_error, output.max_relative_error) == (0.5, 1.0)


def test_steps_of_a_coarser_device_may_be_off_by_one_and_its_roundings() -> None:
    answer, off = np.array([10, -20, 60], np.int8), np.array([4, 0, 0], np.int8)
    one = Expectation({"y": answer}, None, 4, coarser=8.0, zeros={"y": 2.0})
    sizes = np.abs(answer.astype(np.float64) - 2.0)
    allowed = 1 + 3 * output_roundings(4) * 2.0**-8 * (sizes[0] + np.sqrt(np.mean(sizes**2)))
    (output,) = judge({"y": answer + off}, one, ChosenTolerances())
    assert output.of_allowed == pytest.approx(4 / allowed)
    assert output.tolerance == (
        "1 + 18 roundings of bfloat16 (2^-8) of each element's steps from zero and of their root mean "
        "square"
    )
    wide = {"y": answer.astype(np.float32)}
    for other in (
        dataclasses.replace(one, coarser=1.0),
        dataclasses.replace(one, coarser=2.0, zeros={"z": 2.0}),
        dataclasses.replace(one, wide=wide),
    ):
        (output,) = judge({"y": answer + off}, other, ChosenTolerances())
        assert "steps from zero" not in output.tolerance
    twice = dataclasses.replace(one, coarser=2.0)
    (output,) = judge({"y": answer + off}, twice, ChosenTolerances())
    assert "(2^-10) of each element's steps from zero" in output.tolerance


def test_the_only_step_of_a_coarser_device_is_its_own_root_mean_square() -> None:
    answer = np.array([12], np.int8)
    one = Expectation({"y": answer}, None, 1, coarser=8.0, zeros={"y": 2.0})
    (output,) = judge({"y": answer + np.int8(3)}, one, ChosenTolerances())
    allowed = 1 + 3 * output_roundings(1) * 2.0**-8 * (10.0 + 10.0)
    assert output.of_allowed == pytest.approx(3 / allowed)


def test_what_bfloat16_has_no_number_for_may_be_infinite_and_nothing_else_may() -> None:
    """Against float32, whose lowest number masks are made of: ml_dtypes rounds it to infinity, too."""
    lowest = np.finfo(np.float32).min
    largest = np.float32(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    expected = np.array([lowest, 1.0, largest], np.float32)
    rounded = expected.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.isinf(rounded[0])
    for place, number, passes in ((0, -np.inf, True), (0, np.inf, False), (2, np.inf, False)):
        actual = expected.copy()
        actual[place] = number
        whole = Expectation({"y": expected}, coarser=8.0)
        (output,) = judge({"y": actual}, whole, ChosenTolerances())
        assert output.passed is passes
        (output,) = judge({"y": actual}, Expectation({"y": expected}), ChosenTolerances())
        assert not output.passed
