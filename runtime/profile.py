"""Measured time of calls on this machine, beside the modelled time of the target."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from samba_onnx.runtime.locking import DeviceLock, in_turn

MOST_TIMES: Final = 10_000
"""Executions of a call whose times are kept, the latest ones: a training loop makes millions."""


@dataclass(frozen=True)
class CallTime:
    """The time of one call over all runs since the profile was reset.

    Measured times are those of the emulator on the CPU of this machine, modelled ones those of the
    target: neither says anything about the other.
    """

    call: int
    stage: int
    name: str
    on_rdu: bool
    executions: int
    measured_seconds: float
    """Wall time of the emulation on this machine, all executions together."""
    fastest_seconds: float
    """Wall time of the fastest execution on this machine."""
    median_seconds: float
    """Median wall time of an execution on this machine, of the latest ``MOST_TIMES``."""
    modelled_seconds: float | None
    """Modelled time of one execution on the target; None for a fallback, which runs on the host. Of an exchange
    between RDUs it is what does not go on beside other sections, and in spatial mapping the launch is left out."""
    modelled_launch_seconds: float | None
    """The part of it that is the launch, or in spatial mapping the one launch of a run; 0 where an earlier call has launched
    the program, as in a loop on the device, and None for a fallback."""


@dataclass
class _Times:
    """What is known of a call by now."""

    latest: CallTime
    executions: int = 0
    total: float = 0.0
    fastest: float = float("inf")
    each: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))

    def add(self, time: CallTime) -> None:
        """Add an execution."""
        self.executions += time.executions
        self.total += time.measured_seconds
        self.fastest = min(self.fastest, time.fastest_seconds)
        self.each.append(time.measured_seconds)

    def summary(self) -> CallTime:
        """Return the time over all executions."""
        return replace(
            self.latest,
            executions=self.executions,
            measured_seconds=self.total,
            fastest_seconds=self.fastest,
            median_seconds=statistics.median(self.each),
        )


class Profile:
    """Collects times by graph and call; filled only by a device that times its sections."""

    def __init__(self, lock: DeviceLock | None = None) -> None:
        """Begin without times.

        Args:
            lock: What the device holds when it adds times; None for one of its own.
        """
        self.lock = lock or DeviceLock()
        """Held by whoever reads or resets the times."""
        self._times: dict[tuple[str, int], _Times] = {}

    @in_turn
    def calls(self, graph: str) -> tuple[CallTime, ...]:
        """Return the times of a graph's calls, in schedule order.

        Args:
            graph: Name of the graph.

        Returns:
            One entry per call that was executed.
        """
        return tuple(self._times[key].summary() for key in sorted(self._times) if key[0] == graph)

    @in_turn
    def add(self, graph: str, time: CallTime) -> None:
        """Add one execution.

        Args:
            graph: Name of the graph.
            time: The call with the time of that execution.
        """
        self._times.setdefault((graph, time.call), _Times(time)).add(time)

    @in_turn
    def reset(self) -> None:
        """Forget all times."""
        self._times.clear()
