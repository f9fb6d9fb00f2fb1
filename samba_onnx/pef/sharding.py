"""What a PEF says about several RDUs: which part of a value each holds, and what they exchange.

All RDUs execute the same calls. A value is whole on each of them, or each holds a shard of it. Where
an operator needs what others have, a section of its own exchanges it: a collective.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from samba_onnx.pef.decoding import MAY_BE_MISSING

__all__ = ["AxisSplit", "Collective", "CollectiveKind", "Parallelism", "Sharded"]


class CollectiveKind(enum.StrEnum):
    """What RDUs do with each other's values."""

    ALL_REDUCE = "all_reduce"
    """Each has a summand, and gets the sum."""
    ALL_GATHER = "all_gather"
    """Each has a shard, and gets the whole."""


@dataclass(frozen=True)
class Collective:
    """An exchange between all RDUs, which a section makes and nothing else."""

    kind: CollectiveKind
    """What they do."""
    bytes: int
    """What each RDU sends: in a ring 2(n-1)/n of a sum, rounded up to whole elements for each of n pieces;
    directly its whole summand to each of the others; of a gathered value all that it lacks."""
    direct: bool = field(default=False, metadata=MAY_BE_MISSING)
    """Whether each RDU sends its summand to all others at once, which sends more and waits less than a ring."""
    steps: int = field(default=0, metadata=MAY_BE_MISSING)
    """Steps of a ring that wait for each other; 0 for one, and in PEFs that counted a ring as one."""


@dataclass(frozen=True)
class AxisSplit:
    """How an axis of a value is cut."""

    axis: int
    """The axis, from 0."""
    ranges: tuple[tuple[int, ...], ...]
    """For every RDU start and end of each range of the axis that it holds, one after the other; all hold
    equally many elements, and several may hold the same."""


@dataclass(frozen=True)
class Sharded:
    """The value of which every RDU holds a shard."""

    shape: tuple[int, ...]
    """Shape of the whole; that of the symbol is the shape of a shard."""
    axes: tuple[AxisSplit, ...]
    """The axes that are cut, in order."""


@dataclass(frozen=True)
class Parallelism:
    """How a program was cut for several RDUs."""

    mode: str
    """``weight``: linear layers, attention heads and embeddings are cut; ``batch``: the batch is."""
    rdus: int
    """Number of RDUs; sizes, transfers and times of the manifest are those of one."""
    cache_bytes_per_token: int = 0
    """Bytes of keys and values that attention reads of one token, on one RDU; 0 without attention."""
    tokens: int = 0
    """Tokens, of all sequences, that a run reads; 0 without attention."""
