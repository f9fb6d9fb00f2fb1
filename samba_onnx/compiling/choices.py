"""Options with a list of legal values."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Float16", "Level", "PlacementMode", "ShardingMode"]


class Level(StrEnum):
    """How many operators a section has."""

    O0 = "o0"
    """Each is a section of its own."""
    O1 = "o1"
    """Rules of fusion say."""
    O3 = "o3"
    """A section takes as many nodes as on-chip memory has room for."""


class PlacementMode(StrEnum):
    """Which nodes that the target supports run on the RDU."""

    OPTIMAL = "optimal"
    """A run takes the least modelled time with them."""
    STRICT = "strict"
    """All, other than small islands of index arithmetic."""


class Float16(StrEnum):
    """Where float16 is computed on a target without it."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    CPU = "cpu"


class ShardingMode(StrEnum):
    """What is cut for several RDUs."""

    WEIGHT = "weight"
    BATCH = "batch"
