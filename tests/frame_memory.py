"""Whether Python maps memory again and again for calls at some depth: page faults, by no clock."""

from __future__ import annotations

import resource

__all__ = ["faulting_depths"]

DEPTHS = 300
"""Two chunks of 16 KB of frames and more."""
_CALLS = 200


def faulting_depths() -> list[int]:
    """Return at how many frames below the caller's each call of a function faults."""
    return [depth for depth in range(DEPTHS) if _faults(depth) >= _CALLS]


def _faults(depth: int) -> int:
    if depth:
        return _faults(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(_CALLS):
        _leaf()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def _leaf() -> None:
    pass


# Larger than a frame of what recurs, so that one does not fit at some depth before each boundary.
_leaf.__code__ = _leaf.__code__.replace(co_stacksize=64)
