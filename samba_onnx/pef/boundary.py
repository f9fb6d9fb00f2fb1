"""A place in the schedule where values pass between RDU and CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Boundary:
    """Where the schedule passes between RDU and CPU, and what that costs.

    Each run transfer with cause ``fallback`` belongs to exactly one boundary: to that between the
    stage that wrote the value and the stage for which it is copied.
    """

    before: int
    """Stage id of the producer side."""
    after: int
    """Stage id of the consumer side."""
    symbols: tuple[str, ...]
    """What is copied there."""
    bytes: int
    """Bytes of all of them."""
    seconds: float
    """Modelled time of the copies."""
