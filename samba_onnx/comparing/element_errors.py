"""How far each element is from what was expected, and what the original itself makes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from samba_onnx.comparing.expectations import Expected
from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.facts.tolerances import OUTPUT, TIMES_AS_MANY, TIMES_OWN_DISTANCE
from samba_onnx.safety.sampling import SampleRun

__all__ = [
    "INTEGERS",
    "NEIGHBOURS",
    "TEXTS",
    "Array",
    "as_far_as_itself",
    "distance",
    "element_errors",
    "is_exact",
    "leaves",
    "own_errors",
    "own_tolerance",
    "typical_error",
    "wide_array",
]

Array = npt.NDArray[Any]

INTEGERS: Final = frozenset(
    element.numpy
    for element in ELEMENT_TYPES.values()
    if not element.floating and element.numpy.kind != "c"
)
"""Integers, also of fewer than 8 bits, which are of no kind to numpy; and booleans."""
TEXTS: Final = frozenset("OUST")
"""Kinds of arrays, as numpy calls them, that hold texts."""

NEIGHBOURS: Final = 32
"""The own error of an element is the root mean square over so many elements that are next larger, and
as many that are next smaller: it may be zero by chance at the element itself."""


def leaves(name: str, value: Any) -> Iterator[tuple[str, Array | None]]:
    """Yield the arrays of a value under names such as ``y``, ``y[0]``, ``y['key']``."""
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(f"{name}[{key!r}]", item)
    else:
        yield name, None if value is None else np.asarray(value)


def is_exact(array: Array) -> bool:
    """Return whether elements are such as must be equal."""
    return array.dtype in INTEGERS or array.dtype.kind in TEXTS


def element_errors(actual: Array, expected: Expected) -> Array:
    """Return how far each element is from what is expected; integers that differ are off by 1 at least."""
    right = expected.values
    if right.dtype in INTEGERS:
        # In float64, since differences of unsigned or short integers wrap around.
        off = np.abs(actual.astype(np.float64) - right.astype(np.float64))
        # Integers above 2**53 may be equal in float64 though they differ.
        errors = np.where(actual == right, 0.0, np.maximum(off, 1.0))
    elif right.dtype.kind in TEXTS:
        errors = np.asarray(actual != right).astype(np.float64)
    else:
        pattern = right if expected.pattern is None else expected.pattern
        errors, _ = distance(actual.astype(right.dtype, copy=False), right, pattern)
    return np.asarray(errors if expected.right is None else np.where(expected.right, 0.0, errors))


def typical_error(errors: Array) -> float:
    """Return the root of the mean of the squares of errors, without overflow."""
    largest = float(errors.max(initial=0.0))
    if not largest or not math.isfinite(largest):
        return largest
    # Divided by the largest first: squares of errors above 1e154 overflow in float64.
    parts = (errors / largest).ravel()
    return largest * math.sqrt(float(parts @ parts) / parts.size)


def distance(left: Array, right: Array, pattern: Array) -> tuple[Array, Array]:
    """Return errors, and the magnitudes of finite numbers that are expected.

    Args:
        left: What there is.
        right: What is expected where ``pattern`` is finite.
        pattern: What must not be finite in the same places and in the same way.
    """
    finite = np.isfinite(left) & np.isfinite(pattern) & np.isfinite(right)
    # Infinities of one sign agree, and so do two NaN, whose difference would be NaN.
    same = (left == pattern) | (np.isnan(left) & np.isnan(pattern))
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.where(finite, np.abs(left - right), np.where(same, 0.0, np.inf))
    known = np.isfinite(pattern) & np.isfinite(right)
    return np.asarray(errors), np.where(known, np.abs(right), 0.0)


def own_errors(own: Array, wide: Array) -> Array:
    """Return how far a model in its 16-bit type is from its float32 answer, by element.

    Args:
        own: What it answers in its own type.
        wide: What it answers in float32.

    Returns:
        The error at the element itself, or the root mean square among those of similar magnitude if
        that is larger.
    """
    known = np.isfinite(own) & np.isfinite(wide)
    with np.errstate(invalid="ignore"):
        errors = np.where(known, np.abs(own - wide), 0.0)
    # What is not finite goes last, where its zeros thin out the means of as few others as can be.
    order = np.argsort(np.where(known, np.abs(wide), np.inf), axis=None, kind="stable")
    # Differences of running sums give the mean of every window at once.
    squares = np.concatenate([[0.0], np.cumsum(errors.flat[order] ** 2)])
    places = np.arange(order.size)
    first = np.maximum(places - NEIGHBOURS, 0)
    behind = np.minimum(places + NEIGHBOURS + 1, order.size)
    similar = np.empty(order.size)
    # By rounding, a difference of running sums may be just below zero, of which there is no root.
    means = np.maximum(squares[behind] - squares[first], 0.0) / (behind - first)
    similar[order] = np.sqrt(means)
    return np.maximum(errors, similar.reshape(errors.shape))


def wide_array(array: Array) -> Array:
    """Return an array of floating-point or complex numbers in float64 or complex128.

    Args:
        array: Any; one of whole numbers is returned as it is.
    """
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def as_far_as_itself(errors: Array, allowed: Array, own: Array) -> Array:
    """Return what is allowed where the original is itself further off than the tolerance of its type.

    The k-th largest error is held against the (k/3)-th largest distance of the original from itself, both as
    fractions of what the type allows: not element by element, since which of them are hit is chance; nor
    against the largest alone, since one number that jumps would then hide an error in all.

    Args:
        errors: Errors by element.
        allowed: What the tolerance of the type allows, in the same shape.
        own: How far another right answer of the original is from the one that is expected.
    """
    if not (allowed > 0).all():
        return allowed  # nothing but zeros is expected, or equality
    # As fractions of what is allowed, since elements are allowed differently much.
    distances = np.where(np.isfinite(own), own, 0.0) / allowed
    largest = np.sort(distances, axis=None)[::-1]
    order = np.argsort(-(errors / allowed), axis=None, kind="stable")
    factors = np.empty(order.size)
    factors[order] = largest[np.arange(order.size) // TIMES_AS_MANY]
    return np.asarray(allowed * np.maximum(1.0, TIMES_OWN_DISTANCE * factors.reshape(errors.shape)))


def own_tolerance(run: SampleRun) -> float:
    """Return what an element of float32 may be off as a part of the largest one, by the original's own error.

    Args:
        run: What the original answered, and what to inputs that nobody can tell from those.

    Returns:
        That of the type; more where the original is itself further off.
    """
    absolute = OUTPUT.absolute
    for other in run.others:
        # Only the first run was repeated on inputs that moved.
        for name, expected in run.outputs[0].items():
            if expected.dtype not in (np.float32, np.float64) or not expected.size:
                continue
            right = expected.astype(np.float64)
            errors, magnitude = distance(other[name].astype(np.float64), right, right)
            largest, known = float(magnitude.max()), np.isfinite(errors)
            if largest and known.any():
                # What the relative tolerance covers already is not asked of the absolute one again.
                beyond = TIMES_OWN_DISTANCE * errors[known] - OUTPUT.relative * magnitude[known]
                absolute = max(absolute, float(beyond.max()) / largest)
    return absolute
