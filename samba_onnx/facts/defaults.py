"""What is taken where nobody says otherwise: by commands, functions and sessions alike."""

from __future__ import annotations

from typing import Final

__all__ = [
    "DEFAULT_ENGINE",
    "DEFAULT_HOST",
    "DEFAULT_LEGALISATION",
    "DEFAULT_LEVEL",
    "DEFAULT_PLACEMENT",
    "DEFAULT_TARGET",
]

DEFAULT_TARGET: Final = "sn40l"
"""The newest RDU whose figures are published."""
DEFAULT_LEVEL: Final = "o3"
"""Sections as large as on-chip memory allows."""
DEFAULT_PLACEMENT: Final = "optimal"
"""Nodes beside a fallback run on the CPU, too, where that saves time."""
DEFAULT_LEGALISATION: Final = "auto"
"""Operators that the device lacks are written with others where that makes a run shorter."""
DEFAULT_HOST: Final = "default"
"""The profile of a CPU that comes with the compiler."""
DEFAULT_ENGINE: Final = "onnxruntime"
"""What computes on the emulator."""
