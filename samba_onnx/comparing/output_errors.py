"""How far the outputs of a run are from those that were expected, and how far they may be.

Four rules, by the type of an output:

- Integers, booleans and texts must be equal. An index that follows from numbers of 16 bits, or from
  quantised ones, may also be the one that it is without rounding; and a quantised number may be off by
  a step, and by a multiple of what the original is, or by roundings where the device computes with less digits.
- float32, float64 and complex numbers may be off by ``atol * scale + rtol * |expected|``, where
  ``scale`` is the largest finite magnitude that is expected. Where that is less than the original's own
  distance from itself, in another order of summation or with inputs that move by a unit of the last place,
  the latter decides: as many elements may be a few times as far off. An integer may be one of those answers.
- float16 and bfloat16 are compared with what the model answers in float32, element by element: by
  some roundings of the element's own magnitude, and by a multiple of the error that the model itself
  makes there in its 16-bit type. So a number that rounding cannot have lost may not be lost, however
  large others are; and what cancellation costs is measured, not guessed.
- Floats behind quantised numbers are compared with what the model answers when nothing is rounded to
  a whole number: by the tolerances of their type, and by a multiple of the error that quantising makes
  in the model itself.

The multiples are for numbers as they come from the device. What a PEF computes as a function is compared
more closely, by :mod:`samba_onnx.comparing.verification`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from samba_onnx.comparing.element_errors import distance
from samba_onnx.comparing.element_rules import (
    INTEGERS,
    Judged,
    judge_by_itself,
    judge_coarse_steps,
    judge_integers,
    judge_plainly,
    judge_quantised,
    judge_rounded,
)
from samba_onnx.comparing.expectations import EQUAL, ChosenTolerances, Expectation
from samba_onnx.facts.tolerances import rounding_unit

__all__ = [
    "EQUAL",
    "ChosenTolerances",
    "Expectation",
    "OutputComparison",
    "compare_outputs",
    "worst_of",
]

Array = npt.NDArray[Any]

_TEXTS: Final = frozenset("OUST")
"""Kinds of arrays, as numpy calls them, that hold texts."""


@dataclass(frozen=True)
class OutputComparison:
    """How far one output is from what was expected."""

    name: str
    type: str
    """The numpy dtype, as ``float32``."""
    shape: tuple[int, ...]
    max_absolute_error: float
    """Zero for exact types that agree; infinite where shapes or types differ, or one side is not
    finite."""
    max_relative_error: float
    """Largest error divided by the largest expected magnitude."""
    mismatched: int
    """Elements beyond the tolerance."""
    elements: int
    passed: bool
    tolerance: str = EQUAL
    """The tolerance that was used, in words."""
    of_allowed: float = 0.0
    """The largest error of an element as a fraction of what is allowed there: 1 just passes."""
    run: str = ""
    """The run that it is from, of several: its inputs and how weights were kept."""
    steps: float | None = None
    """How many steps of quantisation an element is at most from that of the original, in all runs that round;
    None for outputs that are no quantised numbers."""


def compare_outputs(
    actual: Mapping[str, Any], expected: Expectation, limits: ChosenTolerances, run: str = ""
) -> tuple[OutputComparison, ...]:
    """Compare the outputs of one run.

    NaN equals NaN and infinities equal their like; a value that is not finite where a number is
    expected, or the other way round, is an infinite error. So is another data type or shape.

    Args:
        actual: Values by name: arrays, lists of them, or None.
        expected: What there should be.
        limits: Tolerances that the user gave.
        run: What to call the run.

    Returns:
        One comparison per array that is expected, in their order, and one for each that is not.
    """
    outputs = _compare_all(actual, expected, limits, run)
    # Most comparisons never get here: what takes more runs of the original is asked for where it may help.
    if limits.chosen or expected.again is None or all(output.passed for output in outputs):
        return outputs
    others = tuple(expected.again())
    return _compare_all(actual, replace(expected, others=others), limits, run)


def _compare_all(
    actual: Mapping[str, Any], expected: Expectation, limits: ChosenTolerances, run: str
) -> tuple[OutputComparison, ...]:
    outputs = []
    for name, value in expected.outputs.items():
        wanted, found = dict(_leaves(name, value)), dict(_leaves(name, actual.get(name)))
        wide = dict(_leaves(name, (expected.wide or {}).get(name)))
        others = [dict(_leaves(name, other.get(name))) for other in expected.others]
        answers = [
            _Answer(leaf, array, wide.get(leaf), _alike([o.get(leaf) for o in others], array))
            for leaf, array in wanted.items()
        ]
        outputs += [_compared(found.get(one.name), one, expected, limits, run) for one in answers]
        outputs += [_failed(leaf, found[leaf], run) for leaf in found if leaf not in wanted]
    return tuple(outputs)


def worst_of(runs: Sequence[Sequence[OutputComparison]]) -> tuple[OutputComparison, ...]:
    """Return for each output the comparison of the run in which it is worst.

    Args:
        runs: The comparisons of each run.

    Returns:
        One per output: failed before passed, then by error as a fraction of what is allowed.
    """
    worst: dict[str, OutputComparison] = {}
    for output in (output for run in runs for output in run):
        known = worst.get(output.name)
        farthest = max(
            (o.steps for o in (output, known) if o and o.steps is not None), default=None
        )
        if known is None or _badness(output) > _badness(known):
            known = output
        worst[output.name] = replace(known, steps=farthest)
    return tuple(worst.values())


def _badness(output: OutputComparison) -> tuple[bool, float, float]:
    return not output.passed, output.of_allowed, output.max_absolute_error


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Array | None]]:
    """Yield the arrays of a value under names such as ``y``, ``y[0]``, ``y['key']``."""
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{name}[{key!r}]", item)
    else:
        yield name, None if value is None else np.asarray(value)


def _failed(name: str, value: Array | None, run: str) -> OutputComparison:
    size = 1 if value is None else max(value.size, 1)
    return OutputComparison(
        name,
        _type_of(value),
        () if value is None else value.shape,
        math.inf,
        math.inf,
        size,
        size,
        passed=False,
        tolerance="the same type and shape",
        of_allowed=math.inf,
        run=run,
    )


def _type_of(value: Array | None) -> str:
    return "none" if value is None else str(value.dtype)


@dataclass(frozen=True)
class _Answer:
    """All that is known of what one array should be."""

    name: str
    expected: Array | None
    wide: Array | None
    """What it is in float32 and without rounding to whole numbers."""
    others: Sequence[Array]
    """What the original answers in another order of summation."""


def _compared(
    actual: Array | None, answer: _Answer, whole: Expectation, limits: ChosenTolerances, run: str
) -> OutputComparison:
    name, expected = answer.name, answer.expected
    if actual is None and expected is None:
        return OutputComparison(name, _type_of(None), (), 0.0, 0.0, 0, 0, passed=True, run=run)
    if actual is None or expected is None or actual.shape != expected.shape:
        return _failed(name, expected, run)
    texts = actual.dtype.kind in _TEXTS and expected.dtype.kind in _TEXTS
    if actual.dtype != expected.dtype and not texts:
        return _failed(name, expected, run)
    errors, allowed, scale, tolerance = _judged(actual, expected, answer, whole, limits)
    largest = float(errors.max(initial=0.0))
    mismatched = int(np.count_nonzero(errors > allowed))
    return OutputComparison(
        name,
        str(expected.dtype),
        expected.shape,
        largest,
        largest / scale if scale else largest,
        mismatched,
        expected.size,
        passed=mismatched == 0,
        tolerance=tolerance,
        of_allowed=_of_allowed(errors, allowed),
        run=run,
        steps=_steps(actual, expected, answer.wide, whole.steps.get(name)),
    )


def _judged(
    actual: Array,
    expected: Array,
    answer: _Answer,
    whole: Expectation,
    limits: ChosenTolerances,
) -> Judged:
    """Judge by the rule of the type."""
    wide = answer.wide
    unit = rounding_unit(str(expected.dtype))
    as_precise = unit is None and whole.coarser == 1
    if expected.dtype.kind in _TEXTS or expected.dtype in INTEGERS:
        if wide is None and whole.coarser != 1 and answer.name in whole.zeros:
            return judge_coarse_steps(actual, expected, whole, whole.zeros[answer.name])
        return judge_integers(actual, expected, wide, answer.others)
    if limits.chosen:
        return judge_plainly(actual, expected, limits)
    if not as_precise:
        own = unit or rounding_unit("float16") or 0.0
        return judge_rounded(actual, expected, wide, own * whole.coarser, whole)
    judged = (
        judge_plainly(actual, expected, limits)
        if wide is None or expected.dtype.kind == "c"
        else judge_quantised(actual, expected, wide, limits)
    )
    return judge_by_itself(judged, expected, answer.others) if answer.others else judged


def _steps(actual: Array, expected: Array, wide: Array | None, step: float | None) -> float | None:
    """Return how many steps of quantisation an output is from that of the original, if it is on a grid."""
    if expected.dtype in INTEGERS and wide is not None and wide.dtype.kind == "f":
        step = 1.0
    if step is None:
        return None
    right = expected.astype(np.float64)
    errors, _ = distance(actual.astype(np.float64), right, right)
    return round(float(errors.max(initial=0.0)) / step, 3)


def _of_allowed(errors: Array, allowed: Array) -> float:
    wrong = errors > 0
    if not wrong.any():
        return 0.0
    with np.errstate(divide="ignore"):
        return float((errors[wrong] / np.broadcast_to(allowed, errors.shape)[wrong]).max())


def _alike(others: Sequence[Array | None], expected: Array | None) -> list[Array]:
    """Return the answers that are of the type and shape of what is expected."""
    return [
        other
        for other in others
        if other is not None
        and expected is not None
        and (other.dtype, other.shape) == (expected.dtype, expected.shape)
    ]
