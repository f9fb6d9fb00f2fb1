"""How far each element is from what was expected, and what the original itself makes of it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from samba_onnx.facts.tolerances import TIMES_AS_MANY, TIMES_OWN_DISTANCE

__all__ = ["NEIGHBOURS", "as_far_as_itself", "distance", "own_errors", "wide_array"]

Array = npt.NDArray[Any]

NEIGHBOURS: Final = 32
"""The own error of an element is the root mean square over so many elements that are next larger, and
as many that are next smaller: it may be zero by chance at the element itself."""


def distance(left: Array, right: Array, pattern: Array) -> tuple[Array, Array]:
    """Return errors, and the magnitudes of finite numbers that are expected.

    Args:
        left: What there is.
        right: What is expected where ``pattern`` is finite.
        pattern: What must not be finite in the same places and in the same way.
    """
    finite = np.isfinite(left) & np.isfinite(pattern) & np.isfinite(right)
    same = (left == pattern) | (np.isnan(left) & np.isnan(pattern))
    with np.errstate(invalid="ignore"):
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
    order = np.argsort(np.where(known, np.abs(wide), np.inf), axis=None, kind="stable")
    squares = np.concatenate([[0.0], np.cumsum(errors.flat[order] ** 2)])
    places = np.arange(order.size)
    first = np.maximum(places - NEIGHBOURS, 0)
    behind = np.minimum(places + NEIGHBOURS + 1, order.size)
    similar = np.empty(order.size)
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
    distances = np.where(np.isfinite(own), own, 0.0) / allowed
    largest = np.sort(distances, axis=None)[::-1]
    order = np.argsort(-(errors / allowed), axis=None, kind="stable")
    factors = np.empty(order.size)
    factors[order] = largest[np.arange(order.size) // TIMES_AS_MANY]
    return np.asarray(allowed * np.maximum(1.0, TIMES_OWN_DISTANCE * factors.reshape(errors.shape)))
