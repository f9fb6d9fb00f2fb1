"""Measured time of calls on this machine, beside the modelled time of the target."""

from __future__ import annotations

from dataclasses import dataclass

from samba_onnx.runtime.locking import DeviceLock, in_turn


@dataclass(frozen=True)
class CallTime:
    """The time of one call over all runs since the profile was reset."""

    call: int
    stage: int
    name: str
    on_rdu: bool
    executions: int
    measured_seconds: float
    """Wall time of the emulation on this machine, all executions together."""
    fastest_seconds: float
    """Wall time of the fastest execution on this machine."""
    modelled_seconds: float | None
    """Modelled time of one execution on the target; None for a fallback, which runs on the host."""


class Profile:
    """Collects times by graph and call; filled only by a device that times its sections."""

    def __init__(self, lock: DeviceLock | None = None) -> None:
        """Begin without times.

        Args:
            lock: What the device holds when it adds times; None for one of its own.
        """
        self.lock = lock or DeviceLock()
        """Held by whoever reads or resets the times."""
        self._times: dict[tuple[str, int], CallTime] = {}

    @in_turn
    def calls(self, graph: str) -> tuple[CallTime, ...]:
        """Return the times of a graph's calls, in schedule order.

        Args:
            graph: Name of the graph.

        Returns:
            One entry per call that was executed.
        """
        return tuple(self._times[key] for key in sorted(self._times) if key[0] == graph)

    @in_turn
    def add(self, graph: str, time: CallTime) -> None:
        """Add one execution.

        Args:
            graph: Name of the graph.
            time: The call with the time of that execution.
        """
        old = self._times.get((graph, time.call))
        if old is not None:
            time = CallTime(
                time.call,
                time.stage,
                time.name,
                time.on_rdu,
                old.executions + time.executions,
                old.measured_seconds + time.measured_seconds,
                min(old.fastest_seconds, time.fastest_seconds),
                time.modelled_seconds,
            )
        self._times[graph, time.call] = time

    @in_turn
    def reset(self) -> None:
        """Forget all times."""
        self._times.clear()
