"""How far results may be off whose reference is an ONNX model: four rules, by the type of the result.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from samba_onnx.comparing.element_errors import (
    INTEGERS,
    Array,
    as_far_as_itself,
    distance,
    element_errors,
    is_exact,
    leaves,
    own_errors,
)
from samba_onnx.comparing.expectations import EQUAL, ChosenTolerances, Expectation, Expected
from samba_onnx.facts.tolerances import (
    ROUNDED_OPERANDS,
    TIMES_OWN_DISTANCE,
    TIMES_OWN_ERROR,
    output_roundings,
    rounding_unit,
)

__all__ = ["TypeRules", "quantised_steps"]

_OVERFLOW: Final = (2.0 - 2.0**-8) * 2.0**127
"""The smallest number that is rounded to infinity in bfloat16: halfway from its largest one to the next."""
_NOTHING: Final = np.zeros(())


@dataclass(frozen=True)
class TypeRules:
    """The rules by type, with what is known of the original."""

    expectation: Expectation
    limits: ChosenTolerances
    answers: tuple[Mapping[str, Any], ...] | None = None
    """Other answers of the original that are as right; None until it was asked for them."""
    names: None = None

    def wider(self, failed: Mapping[str, Array | None]) -> TypeRules | None:
        """Return the rules with other answers of the original; they change nothing if the user chose tolerances."""
        again = self.expectation.again
        # Tolerances that the user chose are final, and the original is
        # asked for other answers once.
        if self.limits.chosen or again is None or self.answers is not None:
            return None
        return replace(self, answers=tuple(again()))

    def expected(self, name: str, actual: Array) -> Expected:
        """Return what an array should be, by the rule of its type."""
        whole, expected = self.expectation, _leaf(self.expectation.outputs, name)
        assert expected is not None
        wide = None if whole.wide is None else _leaf(whole.wide, name)
        unit = rounding_unit(str(expected.dtype))
        # Without a wider answer nothing tells what the coarser type costs
        # here, so steps are allowed.
        if is_exact(expected):
            if wide is None and whole.coarser != 1 and name in whole.zeros:
                return _coarse_steps(expected, whole, whole.zeros[name])
            return _integers(actual, expected, wide, self._others(name, expected))
        if self.limits.chosen:
            return _plain(expected, self.limits)
        if unit is not None or whole.coarser != 1:
            # float32 that the device keeps in bfloat16 is judged as float16 is, times
            # how much coarser that is.
            own = unit or rounding_unit("float16") or 0.0
            return _rounded(actual, expected, wide, own * whole.coarser, whole)
        plainly = wide is None or expected.dtype.kind == "c"
        found = (
            _plain(expected, self.limits)
            if wide is None or plainly
            else _quantised(expected, wide, self.limits)
        )
        others = self._others(name, expected)
        return _by_itself(found, actual, expected, others) if others else found

    def _others(self, name: str, expected: Array) -> list[Array]:
        """Return other answers of the original that are of the type and shape of what is expected."""
        known = (_leaf(answer, name) for answer in self.answers or ())
        return [
            other
            for other in known
            if other is not None and (other.dtype, other.shape) == (expected.dtype, expected.shape)
        ]


def quantised_steps(name: str, actual: Array, expectation: Expectation) -> float | None:
    """Return how many steps of quantisation an output is from that of the original, if it is on a grid.

    Args:
        name: Its name.
        actual: What there is, in the type and shape of what is expected.
        expectation: All that is known of the original.
    """
    if not expectation.steps and expectation.wide is None:
        return None
    step, expected = expectation.steps.get(name), _leaf(expectation.outputs, name)
    assert expected is not None
    wide = None if expectation.wide is None else _leaf(expectation.wide, name)
    # Integers whose twin without rounding is a float are on a grid of their own: steps of 1.
    if expected.dtype in INTEGERS and wide is not None and wide.dtype.kind == "f":
        step = 1.0
    if step is None:
        return None
    right = expected.astype(np.float64)
    errors, _ = distance(actual.astype(np.float64), right, right)
    # To three digits: a whole number of steps, which a difference of floats misses by a rounding.
    return round(float(errors.max(initial=0.0)) / step, 3)


def _leaf(values: Mapping[str, Any], name: str) -> Array | None:
    """Return an array by its name, which may be that of an element of a list."""
    # A name of its own may have a bracket in it, so whole names come first.
    if name in values:
        value = values[name]
        return None if value is None else np.asarray(value)
    whole = name.partition("[")[0]
    return dict(leaves(whole, values.get(whole))).get(name)


def _integers(
    actual: Array, expected: Array, wide: Array | None, others: Sequence[Array]
) -> Expected:
    """Return what integers should be, which may also be those that come without rounding on the way to them.

    So may they be what the original itself answers otherwise: an index of two numbers that are as large.
    """
    exact = Expected(expected, _NOTHING, 1.0, EQUAL)
    if wide is None and others:
        same = np.any([actual == other for other in others], axis=0)
        words = f"{EQUAL}, or as in another order of summation"
        return replace(exact, right=same, reason=words if same.any() else EQUAL)
    if wide is None:
        return exact
    if wide.dtype.kind != "f":  # an index of the largest number, say, of which rounding made two
        same = np.asarray(actual == wide)
        return replace(exact, right=same, reason=f"{EQUAL}, or as without rounding")
    right = wide.astype(np.float64)
    own = own_errors(expected.astype(np.float64), right)
    words = f"1 + {TIMES_OWN_ERROR:g} times the original's own error, against no rounding"
    return Expected(right, 1.0 + TIMES_OWN_ERROR * own, _largest(right), words)


def _coarse_steps(expected: Array, whole: Expectation, zero: float) -> Expected:
    """Allow quantised numbers of what was computed with less digits a step, and what floats are allowed."""
    size = np.abs(expected.astype(np.float64) - zero)
    typical = math.sqrt(float((size**2).sum()) / max(size.size, 1))
    unit = (rounding_unit("float16") or 0.0) * whole.coarser
    roundings = ROUNDED_OPERANDS * output_roundings(whole.depth)
    words = (
        f"1 + {roundings:.3g} roundings of bfloat16 (2^{int(np.log2(unit))}) of each element's steps "
        "from zero and of their root mean square"
    )
    return Expected(expected, 1.0 + roundings * unit * (size + typical), 1.0, words)


def _quantised(expected: Array, wide: Array, limits: ChosenTolerances) -> Expected:
    """Allow floats behind quantised numbers what quantising costs the original."""
    relative, absolute = limits.plain()
    own, right = expected.astype(np.float64), wide.astype(np.float64)
    magnitude = _magnitudes(right, own)
    scale = float(magnitude.max(initial=0.0))
    loss = TIMES_OWN_ERROR * own_errors(own, right)
    words = (
        f"{relative:g} of each element + {absolute:g} of the largest + {TIMES_OWN_ERROR:g} times the "
        "original's own error, against no rounding"
    )
    return Expected(right, absolute * scale + relative * magnitude + loss, scale, words, own)


def _plain(expected: Array, limits: ChosenTolerances) -> Expected:
    """Allow a fraction of each element and of the largest one."""
    relative, absolute = limits.plain()
    # Complex numbers have two of these.
    right = expected.astype(np.result_type(expected.dtype, np.float64))
    magnitude = _magnitudes(right, right)
    scale = float(magnitude.max(initial=0.0))
    words = f"{relative:g} of each element + {absolute:g} of the largest"
    return Expected(right, np.asarray(absolute * scale + relative * magnitude), scale, words)


def _by_itself(
    found: Expected, actual: Array, expected: Array, others: Sequence[Array]
) -> Expected:
    """Allow what the original leaves open itself, where that is more and the tolerance of the type is not enough."""
    errors = element_errors(actual, found)
    # Sorting the numbers of large outputs would take longer than all runs.
    if (errors <= found.allowed).all():
        return found
    # Complex numbers have two of these.
    right = expected.astype(np.result_type(expected.dtype, np.float64))
    distances = [distance(other.astype(right.dtype), right, right)[0] for other in others]
    known = np.max([np.where(np.isfinite(each), each, 0.0) for each in distances], axis=0)
    wider = as_far_as_itself(errors, np.broadcast_to(found.allowed, errors.shape), known)
    if (wider <= found.allowed).all():
        return found
    words = (
        f", or {TIMES_OWN_DISTANCE:g} times as far as the original is from itself in another order"
    )
    return replace(found, allowed=wider, reason=f"{found.reason}{words} of summation")


def _rounded(
    actual: Array, expected: Array, wide: Array | None, unit: float, whole: Expectation
) -> Expected:
    """Allow roundings of the type, against a wider answer where there is one."""
    times = ROUNDED_OPERANDS if wide is None and whole.coarser != 1 else 1
    # A coarser device without a wider answer to hold it against: both
    # operands were rounded as well.
    roundings = times * output_roundings(whole.depth)
    left, own = actual.astype(np.float64), expected.astype(np.float64)
    right = own if wide is None else wide.astype(np.float64)
    overflows = None
    if whole.coarser != 1:
        # The lowest number of float32, which masks are made of, is infinite in bfloat16.
        overflows = (
            np.isinf(left) & (np.abs(right) >= _OVERFLOW) & (np.sign(left) == np.sign(right))
        )
        left = np.where(overflows, right, left)
        overflows &= np.isfinite(right)
    # What overflows in 16 bits may be the number that it is in more.
    pattern = np.where(np.isfinite(right) & np.isfinite(left), right, own)
    magnitude = _magnitudes(right, pattern)
    kind = expected.dtype if whole.coarser == 1 else "bfloat16"
    words = f"{roundings:.3g} roundings of {kind} (2^{int(np.log2(unit))}) of each element"
    loss = np.zeros(())
    # An element that large terms left of each other was rounded as these were, which no wider
    # answer tells here: roundings of a typical element are allowed, too.
    if wide is None or whole.coarser != 1:  # what the original loses says little of a coarser type
        typical = math.sqrt(float((magnitude**2).sum()) / max(magnitude.size, 1))
        loss = np.asarray(roundings * unit * typical)
        words += " and of the root mean square"
    if wide is not None:
        loss = loss + TIMES_OWN_ERROR * whole.coarser * own_errors(own, right)
        words += f" + {TIMES_OWN_ERROR * whole.coarser:g} times the original's own error, against float32"
    allowed = np.asarray(roundings * unit * magnitude + loss)
    return Expected(right, allowed, float(magnitude.max(initial=0.0)), words, pattern, overflows)


def _magnitudes(right: Array, pattern: Array) -> Array:
    """Return the magnitudes of finite numbers that are expected; zero of all others."""
    return np.where(np.isfinite(pattern) & np.isfinite(right), np.abs(right), 0.0)


def _largest(right: Array) -> float:
    return float(_magnitudes(right, right).max(initial=0.0))
