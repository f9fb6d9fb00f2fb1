"""How much of an exchange between RDUs is hidden behind the sections around it: the one rule of plans and fits.

An exchange streams what the section before it computes, so that a part of it goes on beside that section. What is
left goes on beside the section behind it, as far as that one reads the values in the order in which they arrive. A
section gives its time once: what an exchange before it has taken is no longer there for the one behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Busy", "Streaming", "hidden_seconds"]


@dataclass(frozen=True)
class Streaming:
    """What a section can compute while the exchange just before it still brings rows."""

    seconds: float
    """The time of the operators that take rows in their order, and of those that do not read them."""
    tiles: int
    """Pieces in which the rows arrive: nothing begins before the first one is there."""


@dataclass(frozen=True)
class Busy:
    """What the rule for exchanges asks of a section next to one."""

    seconds: float
    """Seconds of the section without launch and fill."""
    streaming: Streaming | None = None
    """How much of that time can pass during the exchange before it; None for nothing."""


def hidden_seconds(order: Sequence[Busy | float | None]) -> list[float]:
    """Return how much of each exchange goes on beside sections.

    Args:
        order: The calls of a schedule in their order: a section, the seconds that an exchange takes besides its
            latency, or None for a fallback, beside which no exchange goes on.

    Returns:
        Seconds, by exchange.
    """
    hidden: list[float] = []
    sent: list[float] = []
    waiting: list[int] = []
    # Seconds of the section just before that can still hide an exchange; each of them hides one
    # only.
    free = 0.0
    for one in order:
        if one is None:
            # A fallback waits for the values: nothing streams past it.
            free, waiting = 0.0, []
        elif isinstance(one, Busy):
            free = one.seconds
            streams = 0.0 if one.streaming is None else min(one.streaming.seconds, free)
            for exchange in waiting:
                both = min(sent[exchange] - hidden[exchange], streams)
                # The first tile must have arrived before anything begins, and takes its share of
                # the time.
                behind = 0.0 if one.streaming is None else both * (1 - 1 / one.streaming.tiles)
                hidden[exchange] += behind
                free, streams = free - behind, streams - both
            waiting = []
        else:
            beside = min(max(one, 0.0), free)
            # What the section before it took is no longer there for the exchanges behind.
            free -= beside
            waiting.append(len(hidden))
            hidden.append(beside)
            sent.append(max(one, 0.0))
    return hidden
