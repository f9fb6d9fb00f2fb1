"""Options with a list of legal values."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Float16", "Level", "Placement", "Sharding"]


class Level(StrEnum):
    """How many operators a section has."""

    O0 = "o0"
    """Each is a section of its own."""
    O1 = "o1"
    """Rules of fusion say."""
    O3 = "o3"
    """As many as on-chip memory has room for."""


class Placement(StrEnum):
    """Which nodes that the target supports run on the RDU."""

    OPTIMAL = "optimal"
    """Those with which a run takes the least modelled time."""
    STRICT = "strict"
    """All, other than small islands of index arithmetic."""


class Float16(StrEnum):
    """Where float16 is computed on a target without it."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    CPU = "cpu"


class Sharding(StrEnum):
    """What is cut for several RDUs."""

    WEIGHT = "weight"
    BATCH = "batch"
