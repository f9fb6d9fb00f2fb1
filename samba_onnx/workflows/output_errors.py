"""How far the outputs of a run are from those that were expected, and how far they may be.

Four rules, by the type of an output:

- Integers, booleans and texts must be equal. An index that follows from numbers of 16 bits, or from
  quantised ones, may also be the one that it is without rounding; and a quantised number may be off by
  a step, and by a multiple of what the original is, or by roundings where the device computes with less digits.
- float32, float64 and complex numbers may be off by ``atol * scale + rtol * |expected|``, where
  ``scale`` is the largest finite magnitude that is expected.
- float16 and bfloat16 are compared with what the model answers in float32, element by element: by
  some roundings of the element's own magnitude, and by a multiple of the error that the model itself
  makes there in its 16-bit type. So a number that rounding cannot have lost may not be lost, however
  large others are; and what cancellation costs is measured, not guessed.
- Floats behind quantised numbers are compared with what the model answers when nothing is rounded to
  a whole number: by the tolerances of their type, and by a multiple of the error that quantising makes
  in the model itself.

The multiples are for numbers as they come from the device. What a PEF computes as a function is compared
more closely, by :mod:`samba_onnx.workflows.verification`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.facts.tolerances import (
    OUTPUT,
    ROUNDED_OPERANDS,
    TIMES_OWN_ERROR,
    output_roundings,
    rounding_unit,
)
from samba_onnx.workflows.element_errors import distance, own_errors

Array = npt.NDArray[Any]

EQUAL: Final = "equal"
"""What the tolerance of exact types is called."""
_INTEGERS: Final = frozenset(
    element.numpy
    for element in ELEMENT_TYPES.values()
    if not element.floating and element.numpy.kind != "c"
)
"""Integers, also of fewer than 8 bits, which are of no kind to numpy; and booleans."""
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


@dataclass(frozen=True)
class Expectation:
    """What one run should have given."""

    outputs: Mapping[str, Any]
    """Values by name: arrays, lists of them, or None."""
    wide: Mapping[str, Any] | None = None
    """The same in float32 and without rounding to whole numbers, where the model has numbers of 16 bits
    or quantises, and could be computed so."""
    depth: int = 1
    """Operators that round, on the longest way from an input to an output."""
    steps: Mapping[str, float] = field(default_factory=dict)
    """Distance of neighbouring numbers, by the names of outputs of floats that are dequantised."""
    coarser: float = 1.0
    """How many times larger than in float16 a rounding is on a device that rounds more than the original."""
    zeros: Mapping[str, float] = field(default_factory=dict)
    """What stands for zero, by the names of outputs of integers that a quantisation rounded."""


@dataclass(frozen=True)
class ChosenTolerances:
    """Tolerances that the user gave; None for those that are as the types demand."""

    rtol: float | None = None
    atol: float | None = None
    defaults: tuple[float, float] = (OUTPUT.relative, OUTPUT.absolute)
    """What the two are, in this order, of types that are judged by them."""

    def plain(self) -> tuple[float, float]:
        """Return relative and absolute tolerance of outputs that are judged by these two."""
        return (
            self.defaults[0] if self.rtol is None else self.rtol,
            self.defaults[1] if self.atol is None else self.atol,
        )

    @property
    def chosen(self) -> bool:
        """Whether the user gave one."""
        return self.rtol is not None or self.atol is not None


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
    outputs = []
    for name, value in expected.outputs.items():
        wanted, found = dict(_leaves(name, value)), dict(_leaves(name, actual.get(name)))
        wide = dict(_leaves(name, (expected.wide or {}).get(name)))
        outputs += [
            _compared(leaf, found.get(leaf), array, wide.get(leaf), expected, limits, run)
            for leaf, array in wanted.items()
        ]
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


def _compared(
    name: str,
    actual: Array | None,
    expected: Array | None,
    wide: Array | None,
    whole: Expectation,
    limits: ChosenTolerances,
    run: str,
) -> OutputComparison:
    if actual is None and expected is None:
        return OutputComparison(name, _type_of(None), (), 0.0, 0.0, 0, 0, passed=True, run=run)
    if actual is None or expected is None or actual.shape != expected.shape:
        return _failed(name, expected, run)
    texts = actual.dtype.kind in _TEXTS and expected.dtype.kind in _TEXTS
    if actual.dtype != expected.dtype and not texts:
        return _failed(name, expected, run)
    unit = rounding_unit(str(expected.dtype))
    as_precise = unit is None and whole.coarser == 1
    judged: _Judged
    if texts or expected.dtype in _INTEGERS:
        judged = _of_integers(actual, expected, wide)
        if wide is None and whole.coarser != 1 and name in whole.zeros:
            judged = _of_coarse_steps(actual, expected, whole, whole.zeros[name])
    elif limits.chosen or (as_precise and (wide is None or expected.dtype.kind == "c")):
        judged = _plain(actual, expected, limits)
    elif as_precise:
        judged = _quantised(actual, expected, np.asarray(wide), limits)
    else:
        own = unit or rounding_unit("float16") or 0.0
        judged = _rounded(actual, expected, wide, own * whole.coarser, whole)
    errors, allowed, scale, tolerance = judged
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
        steps=_steps(actual, expected, wide, whole.steps.get(name)),
    )


def _steps(actual: Array, expected: Array, wide: Array | None, step: float | None) -> float | None:
    """Return how many steps of quantisation an output is from that of the original, if it is on a grid."""
    if expected.dtype in _INTEGERS and wide is not None and wide.dtype.kind == "f":
        step = 1.0
    if step is None:
        return None
    right = expected.astype(np.float64)
    errors, _ = distance(actual.astype(np.float64), right, right)
    return round(float(errors.max(initial=0.0)) / step, 3)


_Judged = tuple[Array, Array, float, str]
"""Errors and what is allowed, by element; the largest expected magnitude; the rule in words."""


def _of_allowed(errors: Array, allowed: Array) -> float:
    wrong = errors > 0
    if not wrong.any():
        return 0.0
    with np.errstate(divide="ignore"):
        return float((errors[wrong] / np.broadcast_to(allowed, errors.shape)[wrong]).max())


def _exact(actual: Array, expected: Array) -> _Judged:
    if expected.dtype in _INTEGERS:
        distance = actual.astype(np.float64) - expected.astype(np.float64)
        errors = np.where(actual == expected, 0.0, np.maximum(np.abs(distance), 1.0))
    else:
        errors = np.asarray(actual != expected).astype(np.float64)
    return np.asarray(errors), np.zeros(expected.shape), 1.0, EQUAL


def _of_integers(actual: Array, expected: Array, wide: Array | None) -> _Judged:
    """Judge integers, which may also be those that come without rounding on the way to them."""
    exact = _exact(actual, expected)
    if wide is None:
        return exact
    if wide.dtype.kind != "f":  # an index of the largest number, say, of which rounding made two
        same = np.asarray(actual == wide)
        return np.where(same, 0.0, exact[0]), exact[1], exact[2], f"{EQUAL}, or as without rounding"
    errors, magnitude = distance(
        actual.astype(np.float64), wide.astype(np.float64), wide.astype(np.float64)
    )
    own = own_errors(expected.astype(np.float64), wide.astype(np.float64))
    words = f"1 + {TIMES_OWN_ERROR:g} times the original's own error, against no rounding"
    return errors, 1.0 + TIMES_OWN_ERROR * own, float(magnitude.max(initial=0.0)), words


def _of_coarse_steps(actual: Array, expected: Array, whole: Expectation, zero: float) -> _Judged:
    """Judge quantised numbers of what was computed with less digits: by a step, and as floats are."""
    errors, _, scale, _ = _exact(actual, expected)
    size = np.abs(expected.astype(np.float64) - zero)
    typical = math.sqrt(float((size**2).sum()) / max(size.size, 1))
    unit = (rounding_unit("float16") or 0.0) * whole.coarser
    roundings = ROUNDED_OPERANDS * output_roundings(whole.depth)
    words = (
        f"1 + {roundings:.3g} roundings of bfloat16 (2^{int(np.log2(unit))}) of each element's steps "
        "from zero and of their root mean square"
    )
    return errors, 1.0 + roundings * unit * (size + typical), scale, words


def _quantised(actual: Array, expected: Array, wide: Array, limits: ChosenTolerances) -> _Judged:
    """Judge floats behind quantised numbers: by what quantising costs the original."""
    relative, absolute = limits.plain()
    own, right = expected.astype(np.float64), wide.astype(np.float64)
    errors, magnitude = distance(actual.astype(np.float64), right, own)
    scale = float(magnitude.max(initial=0.0))
    loss = TIMES_OWN_ERROR * own_errors(own, right)
    words = (
        f"{relative:g} of each element + {absolute:g} of the largest + {TIMES_OWN_ERROR:g} times the "
        "original's own error, against no rounding"
    )
    return errors, absolute * scale + relative * magnitude + loss, scale, words


def _plain(actual: Array, expected: Array, limits: ChosenTolerances) -> _Judged:
    """Judge by a fraction of each element and of the largest one."""
    relative, absolute = limits.plain()
    # Complex numbers have two of these.
    widest = np.result_type(expected.dtype, np.float64)
    right = expected.astype(widest)
    errors, magnitude = distance(actual.astype(widest), right, right)
    scale = float(magnitude.max(initial=0.0))
    words = f"{relative:g} of each element + {absolute:g} of the largest"
    return errors, absolute * scale + relative * magnitude, scale, words


def _rounded(
    actual: Array, expected: Array, wide: Array | None, unit: float, whole: Expectation
) -> _Judged:
    """Judge by roundings of the type, against a wider answer where there is one."""
    times = ROUNDED_OPERANDS if wide is None and whole.coarser != 1 else 1
    roundings = times * output_roundings(whole.depth)
    left, own = actual.astype(np.float64), expected.astype(np.float64)
    right = own if wide is None else wide.astype(np.float64)
    # What overflows in 16 bits may be the number that it is in more.
    pattern = np.where(np.isfinite(right) & np.isfinite(left), right, own)
    errors, magnitude = distance(left, right, pattern)
    kind = expected.dtype if whole.coarser == 1 else "bfloat16"
    words = f"{roundings:.3g} roundings of {kind} (2^{int(np.log2(unit))}) of each element"
    loss = np.zeros(())
    if wide is None or whole.coarser != 1:  # what the original loses says little of a coarser type
        typical = math.sqrt(float((magnitude**2).sum()) / max(magnitude.size, 1))
        loss = np.asarray(roundings * unit * typical)
        words += " and of the root mean square"
    if wide is not None:
        loss = loss + TIMES_OWN_ERROR * whole.coarser * own_errors(own, right)
        words += f" + {TIMES_OWN_ERROR * whole.coarser:g} times the original's own error, against float32"
    return (
        errors,
        roundings * unit * magnitude + loss,
        float(magnitude.max(initial=0.0)),
        words,
    )
