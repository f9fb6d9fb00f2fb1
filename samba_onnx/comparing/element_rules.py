"""How far elements of each type may be off: the rules of :mod:`samba_onnx.comparing.output_errors`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from samba_onnx.comparing.element_errors import as_far_as_itself, distance, own_errors
from samba_onnx.comparing.expectations import EQUAL, ChosenTolerances, Expectation
from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.facts.tolerances import (
    ROUNDED_OPERANDS,
    TIMES_OWN_DISTANCE,
    TIMES_OWN_ERROR,
    output_roundings,
    rounding_unit,
)

__all__ = [
    "INTEGERS",
    "Judged",
    "judge_by_itself",
    "judge_coarse_steps",
    "judge_exactly",
    "judge_integers",
    "judge_plainly",
    "judge_quantised",
    "judge_rounded",
]

Array = npt.NDArray[Any]

INTEGERS: Final = frozenset(
    element.numpy
    for element in ELEMENT_TYPES.values()
    if not element.floating and element.numpy.kind != "c"
)
"""Integers, also of fewer than 8 bits, which are of no kind to numpy; and booleans."""

_OVERFLOW: Final = (2.0 - 2.0**-8) * 2.0**127
"""The smallest number that is rounded to infinity in bfloat16: halfway from its largest one to the next."""

Judged = tuple[Array, Array, float, str]
"""Errors and what is allowed, by element; the largest expected magnitude; the rule in words."""


def judge_exactly(actual: Array, expected: Array) -> Judged:
    """Judge what must be equal; integers say how far they are off."""
    if expected.dtype in INTEGERS:
        distance = actual.astype(np.float64) - expected.astype(np.float64)
        errors = np.where(actual == expected, 0.0, np.maximum(np.abs(distance), 1.0))
    else:
        errors = np.asarray(actual != expected).astype(np.float64)
    return np.asarray(errors), np.zeros(expected.shape), 1.0, EQUAL


def judge_by_itself(judged: Judged, expected: Array, others: Sequence[Array]) -> Judged:
    """Widen a judgement to what the original leaves open itself, where that is more."""
    errors, allowed, scale, words = judged
    # Complex numbers have two of these.
    right = expected.astype(np.result_type(expected.dtype, np.float64))
    distances = [distance(other.astype(right.dtype), right, right)[0] for other in others]
    known = np.max([np.where(np.isfinite(each), each, 0.0) for each in distances], axis=0)
    wider = as_far_as_itself(errors, np.broadcast_to(allowed, errors.shape), known)
    if (wider <= allowed).all():
        return judged
    words += (
        f", or {TIMES_OWN_DISTANCE:g} times as far as the original is from itself in another order"
    )
    return errors, wider, scale, f"{words} of summation"


def judge_integers(
    actual: Array, expected: Array, wide: Array | None, others: Sequence[Array]
) -> Judged:
    """Judge integers, which may also be those that come without rounding on the way to them.

    So may they be what the original itself answers otherwise: an index of two numbers that are as large.
    """
    exact = judge_exactly(actual, expected)
    if wide is None and others:
        same = np.any([actual == other for other in others], axis=0)
        words = f"{EQUAL}, or as in another order of summation"
        return np.where(same, 0.0, exact[0]), exact[1], exact[2], words if same.any() else EQUAL
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


def judge_coarse_steps(actual: Array, expected: Array, whole: Expectation, zero: float) -> Judged:
    """Judge quantised numbers of what was computed with less digits: by a step, and as floats are."""
    errors, _, scale, _ = judge_exactly(actual, expected)
    size = np.abs(expected.astype(np.float64) - zero)
    typical = math.sqrt(float((size**2).sum()) / max(size.size, 1))
    unit = (rounding_unit("float16") or 0.0) * whole.coarser
    roundings = ROUNDED_OPERANDS * output_roundings(whole.depth)
    words = (
        f"1 + {roundings:.3g} roundings of bfloat16 (2^{int(np.log2(unit))}) of each element's steps "
        "from zero and of their root mean square"
    )
    return errors, 1.0 + roundings * unit * (size + typical), scale, words


def judge_quantised(
    actual: Array, expected: Array, wide: Array, limits: ChosenTolerances
) -> Judged:
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


def judge_plainly(actual: Array, expected: Array, limits: ChosenTolerances) -> Judged:
    """Judge by a fraction of each element and of the largest one."""
    relative, absolute = limits.plain()
    # Complex numbers have two of these.
    widest = np.result_type(expected.dtype, np.float64)
    right = expected.astype(widest)
    errors, magnitude = distance(actual.astype(widest), right, right)
    scale = float(magnitude.max(initial=0.0))
    words = f"{relative:g} of each element + {absolute:g} of the largest"
    return errors, absolute * scale + relative * magnitude, scale, words


def judge_rounded(
    actual: Array, expected: Array, wide: Array | None, unit: float, whole: Expectation
) -> Judged:
    """Judge by roundings of the type, against a wider answer where there is one."""
    times = ROUNDED_OPERANDS if wide is None and whole.coarser != 1 else 1
    roundings = times * output_roundings(whole.depth)
    left, own = actual.astype(np.float64), expected.astype(np.float64)
    right = own if wide is None else wide.astype(np.float64)
    if whole.coarser != 1:
        # The lowest number of float32, which masks are made of, is infinite in bfloat16.
        overflows = (
            np.isinf(left) & (np.abs(right) >= _OVERFLOW) & (np.sign(left) == np.sign(right))
        )
        left = np.where(overflows, right, left)
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
