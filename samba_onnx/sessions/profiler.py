"""How long the steps of a session take on the host."""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from samba_onnx.safety.files import atomic_output

P = ParamSpec("P")
R = TypeVar("R")

SET_PEF: Final = "SAMBA_SET_PEF"
"""Reading a PEF."""
INIT_RUNTIME: Final = "SAMBA_INIT_RUNTIME"
"""Preparing the device for a PEF."""
GET_TENSORS: Final = "PyRT_GET_TENSORS"
"""Copying tensors from the device."""
SET_TENSORS: Final = "PyRT_SET_TENSORS"
"""Copying tensors to the device."""
RUN: Final = "PyRT_RUN"
"""Running a PEF, copies of inputs and outputs included, the session's own work not."""
SESSION_RUN: Final = "SAMBA_SESSION_RUN"
"""``session.run``; followed by the section types that were asked for."""


@dataclass(frozen=True)
class Event:
    """One stretch of time."""

    name: str
    begin: float
    """Seconds, on a clock of its own."""
    seconds: float


@dataclass(frozen=True)
class Handle:
    """An event that has begun."""

    name: str
    begin: float


class Profiler:
    """Measures events while it is on; while it is off, events cost next to nothing."""

    def __init__(self) -> None:
        self.active = False
        """Whether events are measured."""
        self._events: list[Event] = []

    @property
    def events(self) -> tuple[Event, ...]:
        """All events since profiling began, in the order in which they ended."""
        return tuple(self._events)

    def start_profile(self) -> None:
        """Forget all events, and measure from now on."""
        self._events.clear()
        self.active = True

    def stop_profile(self) -> None:
        """Measure no more; events stay readable."""
        self.active = False

    def start_event(self, name: str) -> Handle | None:
        """Begin an event.

        Args:
            name: What to call it.

        Returns:
            What to give to ``end_event``; None while profiling is off.
        """
        # perf_counter is monotonic: a clock that is set meanwhile makes no negative times.
        return Handle(name, time.perf_counter()) if self.active else None

    def end_event(self, handle: Handle | None) -> None:
        """End an event.

        Args:
            handle: What ``start_event`` returned.
        """
        if handle is not None:
            seconds = time.perf_counter() - handle.begin
            self._events.append(Event(handle.name, handle.begin, seconds))

    def event(self, name: str) -> EventContext:
        """Measure a block or, as a decorator, every call of a function.

        Args:
            name: What to call the event.
        """
        return EventContext(self, name)

    def get_latencies(self, names: Iterable[str], warmup: int = 0) -> dict[str, float]:
        """Return the mean seconds of events.

        Args:
            names: Names of the events.
            warmup: How many of each to leave out at the beginning.

        Returns:
            Seconds by name; names without an event are left out.
        """
        times = {name: self._get_iter_times(name, warmup) for name in names}
        return {name: statistics.fmean(seconds) for name, seconds in times.items() if seconds}

    def get_throughputs(
        self, names: Iterable[str], batch: int, warmup: int = 0
    ) -> dict[str, float]:
        """Return how many samples per second events worked through.

        Args:
            names: Names of the events.
            batch: Samples that one event takes.
            warmup: How many of each to leave out at the beginning.

        Returns:
            Samples per second by name; names without an event are left out.
        """
        latencies = self.get_latencies(names, warmup)
        # An event may be shorter than the clock can tell.
        return {name: batch / seconds for name, seconds in latencies.items() if seconds > 0}

    def print_statistics(
        self,
        keys: Iterable[str] | None = None,
        warmup: int = 0,
        num_samples_per_iter: int | None = None,
        measurements: Iterable[str] = ("latency", "throughput"),
    ) -> None:
        """Write mean latency and throughput of events to standard output.

        Args:
            keys: Names of the events; all when None.
            warmup: How many of each to leave out at the beginning.
            num_samples_per_iter: Samples that one event takes; without it there is no throughput.
            measurements: ``latency``, ``throughput`` or both.
        """
        names = self.names() if keys is None else tuple(keys)
        columns = set(measurements)
        lines = []
        for name, seconds in self.get_latencies(names, warmup).items():
            parts = [f"latency {seconds:.6f} s"] if "latency" in columns else []
            if "throughput" in columns and num_samples_per_iter and seconds > 0:
                parts.append(f"throughput {num_samples_per_iter / seconds:.3f} samples/s")
            lines.append(f"{name}: {', '.join(parts)}")
        sys.stdout.write("".join(f"{line}\n" for line in lines))

    def names(self) -> tuple[str, ...]:
        """Return the names of the events so far, each once."""
        return tuple(dict.fromkeys(event.name for event in self._events))

    def save(self, path: str | Path) -> None:
        """Write the events as a trace that chrome://tracing and Perfetto show.

        Of several replicas each writes a file: those behind the first put their number before the suffix, as
        ``profile.rank1.json``. Their times are those of the clock, so that files can be shown as one: Perfetto reads
        protobufs that were simply joined (``cat``).

        Args:
            path: The file to write: in Chrome's format, or Perfetto's protobuf where it ends in ``.pftrace``.

        Raises:
            MissingLibraryError: The extra ``trace`` is not installed, and the file ends in ``.pftrace``.
            OutputError: It cannot be written.
        """
        from samba_onnx.report.viewers.trace import TraceSlice, trace_bytes

        place, (rank, size) = Path(path), _replica()
        # Of one process alone, what counts is how long ago it began.
        begin = min((event.begin for event in self._events), default=0.0)
        origin = begin if size == 1 else time.perf_counter() - time.time()
        slices = [
            TraceSlice(
                process="session" if size == 1 else f"rank {rank} of {size}",
                track="host",
                name=event.name,
                begin=round((event.begin - origin) * 1e9),
                end=round((event.begin + event.seconds - origin) * 1e9),
            )
            # Events are kept by their ends; the one around others would come last.
            for event in sorted(self._events, key=lambda event: event.begin)
        ]
        # Programs name the file as they like, and were always given JSON.
        kind = ".pftrace" if place.suffix == ".pftrace" else ".json"
        if rank:
            place = place.with_suffix(f".rank{rank}{place.suffix}")
        content = trace_bytes(slices, kind, writer=rank)
        with atomic_output(place) as file:
            file.write(content)

    def _get_iter_times(self, name: str, warmup: int = 0) -> list[float]:
        """Seconds of every event of a name, but for the first few."""
        return [event.seconds for event in self._events if event.name == name][warmup:]


class EventContext:
    """A context manager and decorator that measures what it holds."""

    def __init__(self, profiler: Profiler, name: str) -> None:
        self._profiler = profiler
        self._name = name
        # A stack: the same context may be entered again inside itself.
        self._handles: list[Handle | None] = []

    def __enter__(self) -> None:
        self._handles.append(self._profiler.start_event(self._name))

    def __exit__(self, *_exception: object) -> None:
        self._profiler.end_event(self._handles.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function whose calls are measured."""

        @functools.wraps(function)
        def measured(*args: P.args, **kwargs: P.kwargs) -> R:
            # A context for each call: functions may call themselves, or run in several threads.
            with EventContext(self._profiler, self._name):
                return function(*args, **kwargs)

        return measured


@contextmanager
def profiling(profiler: Profiler, path: str | None) -> Iterator[Profiler]:
    """Profile what runs inside.

    Args:
        profiler: What measures.
        path: Trace to write at the end, also if the block fails; none when None.

    Yields:
        What measures.
    """
    profiler.start_profile()
    try:
        yield profiler
    finally:
        profiler.stop_profile()
        if path is not None:
            profiler.save(path)


def _replica() -> tuple[int, int]:
    """Return the number of this process among replicas, and how many there are."""
    import torch.distributed as dist

    is_one_of_many = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if is_one_of_many else (0, 1)


def event_name(section_types: Iterable[Any]) -> str:
    """Return the name of a run's event.

    Args:
        section_types: The section types that were asked for, none for a whole run.
    """
    return "_".join([SESSION_RUN, *(str(kind).upper() for kind in section_types)])
