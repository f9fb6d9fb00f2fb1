"""Seeded integers, scales and zero points for the tests of quantised operators."""

from __future__ import annotations

from typing import Any

import numpy as np

ONE_STEP = {"rtol": 0.0, "atol": 1.0}
"""Tolerance of quantised results: where a number lies between two integers, the last bit of it decides, and
onnxruntime multiplies integers, or looks the result up in a table, where the expansion computes with numbers."""


def unsigned(*shape: int, seed: int = 0) -> Any:
    """Return uint8 over the whole range."""
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def signed(*shape: int, seed: int = 0) -> Any:
    """Return int8 over the whole range."""
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def scale(*items: float) -> Any:
    """Return one scale, or a vector of several."""
    return np.array(items[0] if len(items) == 1 else items, np.float32)


def point(number: Any, dtype: Any = np.uint8) -> Any:
    """Return one zero point, or a vector of several."""
    return np.array(number, dtype)
