"""How far each element is from what was expected, and what the original itself makes of it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["NEIGHBOURS", "distance", "own_errors"]

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
