"""Between what numbers a figure of hardware lies, whatever its unit."""

from __future__ import annotations

from typing import Final

__all__ = ["LARGEST", "SMALLEST"]

SMALLEST: Final = 1e-15
"""Less than any time, rate or size that a device has: a femtosecond."""
LARGEST: Final = 1e21
"""More than any: a thousand exaflops. Times and rates that follow from figures in between are finite numbers
in float64, whatever a model asks for."""
