"""``sambaflow.samba.utils.numeric``: bounds of rounding."""

from typing import Final

__all__ = ["MAX_BF16_TRUNCATE_NORMAL_REL"]

MAX_BF16_TRUNCATE_NORMAL_REL: Final = 2.0**-7
"""The most that cutting a normal float32 number off to bfloat16 changes it, as a part of it: its
significand keeps 8 bits."""
