"""Inputs that nobody can tell from those that were given, but by the last digit of a float."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

__all__ = ["MOVES", "moved"]

MOVES: Final = 2
"""How many times inputs are moved: a number may stay where it is by chance."""


def moved(feeds: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return inputs of which float32 and float64 numbers are moved by up to a unit of their last place.

    What a model answers to them is as right as what it answers to the inputs: how far the two are apart is what
    its own arithmetic leaves open. Whole numbers stay, for a model may round them, and then one that is a
    little smaller is another number.

    Args:
        feeds: Values by input name.
        seed: Seed of the generator that chooses the directions.
    """
    generator = np.random.default_rng(seed)
    return {name: _moved(value, generator) for name, value in feeds.items()}


def _moved(value: Any, generator: np.random.Generator) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype not in (np.float32, np.float64):
        return value
    upwards = generator.integers(0, 2, value.shape).astype(bool)
    ends = np.where(upwards, np.inf, -np.inf).astype(value.dtype)
    fixed = ~np.isfinite(value) | (value == np.rint(value))
    return np.where(fixed, value, np.nextafter(value, ends))
