"""Between what numbers a figure of hardware lies, whatever its unit."""

from __future__ import annotations

from typing import Final

__all__ = ["LARGEST", "LARGEST_WHOLE", "SMALLEST"]

SMALLEST: Final = 1e-15
"""Less than any time, rate or size that a device has: a femtosecond."""
LARGEST: Final = 1e21
"""More than any: a thousand exaflops. Times and rates that follow from figures in between are finite numbers
in float64, whatever a model asks for."""
LARGEST_WHOLE: Final = 10**18 - 1
"""The most of a figure that is a whole number, from 1 on: bytes, units, rows."""
