"""A run for Perfetto: what each resource does when, memory, and which value leads from where to where."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from samba_onnx.errors import MissingLibraryError, UsageError
from samba_onnx.report.program.program_records import ProgramReport, TaskReport
from samba_onnx.report.report import Report
from samba_onnx.report.units import printable

__all__ = ["MEASURED", "Counter", "TraceSlice", "modelled_events", "trace_bytes"]

MODELLED: Final = "modelled"
"""The process of what a run is modelled to do."""
MEASURED: Final = "measured on this CPU"
"""The process of what the emulator took."""
_TRACKS: Final = {
    "rdu": "RDU",
    "host_to_rdu": "host → RDU",
    "rdu_to_host": "RDU → host",
    "cpu": "CPU",
}
"""What tracks are called, by resource."""
_MOST_TRACKS: Final = 1 << 20
"""Tracks of one writer: numbers of those that another writes begin behind them."""


@dataclass(frozen=True)
class TraceSlice:
    """Something that a track does for a time."""

    process: str
    track: str
    name: str
    begin: int
    """Nanoseconds from the begin of the run."""
    end: int
    facts: tuple[tuple[str, str], ...] = ()
    flows: tuple[int, ...] = ()
    """Numbers of the values that it writes or reads: slices with one number are joined."""


@dataclass(frozen=True)
class Counter:
    """What is how much from a time on."""

    process: str
    name: str
    time: int
    value: int


Event = TraceSlice | Counter


def modelled_events(report: Report) -> list[Event]:
    """Return what a run is modelled to do.

    Args:
        report: The report, with its program.

    Raises:
        UsageError: It does not say when calls begin: it is of an older version, or mapped spatially.
    """
    program = report.program
    if program is None or not program.tasks:
        raise UsageError(
            "there is no trace of this: in spatial mapping all sections work at once, and reports of older versions "
            "do not say when calls begin"
        )
    return [*_slices(report, program), *_memory(report, program.tasks)]


def _slices(report: Report, program: ProgramReport) -> Iterator[TraceSlice]:
    names = {call.stage: call.name for graph in report.graphs for call in graph.schedule}
    types = {call.stage: call.type for graph in report.graphs for call in graph.schedule}
    reasons = {node.stage: node.reason for node in program.nodes if node.reason}
    exchanged = {copy.symbol: copy.bytes for graph in report.graphs for copy in graph.run_transfers}
    flows = _flows(program)
    for task in program.tasks:
        facts = [("call", str(task.call)), ("graph", task.graph)]
        if task.symbol:
            facts.append(("bytes", str(exchanged.get(task.symbol, 0))))
        else:
            facts += [("type", types.get(task.stage, "")), ("why", reasons.get(task.stage, ""))]
        # Exchanges between RDUs have a track of their own, though they keep the device busy.
        is_exchange = not task.symbol and types.get(task.stage) == "REDUCE"
        track = "collectives" if is_exchange else _TRACKS[task.resource]
        yield TraceSlice(
            process=MODELLED if len(report.graphs) == 1 else f"{MODELLED}: {printable(task.graph)}",
            track=track,
            name=printable(task.symbol or names.get(task.stage, "")),
            begin=_nanoseconds(task.begin_seconds),
            end=_nanoseconds(task.end_seconds),
            facts=tuple((key, printable(text)) for key, text in facts if text),
            flows=tuple(
                flows[task.graph, task.symbol] if task.symbol else flows[task.graph, task.stage]
            ),
        )


def _flows(program: ProgramReport) -> defaultdict[tuple[str, str | int], list[int]]:
    """Return numbers of the values that a stage writes or reads, or that a copy carries."""
    stages = [node.stage for node in program.nodes]
    flows: defaultdict[tuple[str, str | int], list[int]] = defaultdict(list)
    for number, edge in enumerate(program.edges, 1):
        readers = dict.fromkeys(stages[target] for target in edge.targets)
        writer = None if edge.source is None else stages[edge.source]
        others = [stage for stage in readers if stage != writer]
        # Within a section nothing flows that anybody sees.
        if not others:
            continue
        ends = others if writer is None else [writer, *others]
        for stage in ends:
            flows[edge.graph, stage].append(number)
        flows[edge.graph, edge.value].append(number)
    return flows


def _memory(report: Report, tasks: Iterable[TaskReport]) -> Iterator[Counter]:
    """Yield what each tier holds from the begin of each call on."""
    begins = {
        (task.graph, task.call): _nanoseconds(task.begin_seconds)
        for task in tasks
        if not task.symbol
    }
    # Graphs share the device: its memory belongs to none of them.
    process = "device memory" if len(report.graphs) > 1 else MODELLED
    for memory in report.memory_timelines:
        for call in memory.calls:
            begin = begins.get((memory.graph, call.call))
            if begin is not None:
                for tier, size in call.tiers.items():
                    yield Counter(process, f"{tier} bytes", begin, size)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def trace_bytes(events: Sequence[Event], place: str, *, writer: int = 0) -> bytes:
    """Return a trace.

    Args:
        events: What it has, of any number of processes.
        place: Its file: one that ends in ``.json`` gets the events of Chrome's format, any other the protobuf that
            Perfetto writes itself.
        writer: Number of this process among those whose traces are shown as one.

    Raises:
        MissingLibraryError: The extra ``trace`` is not installed, and the file is no JSON.
    """
    if place.endswith(".json"):
        return _chrome(events, writer)
    try:
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder
    except ImportError:
        raise MissingLibraryError(
            "--trace needs perfetto: install it with pip install 'samba-onnx[trace]', or name a file that ends in .json"
        ) from None
    return _Protobuf(TraceProtoBuilder(), writer).written(events)


@dataclass
class _Protobuf:
    """Writes packets: each process, track and counter is described once, before its first event."""

    builder: Any
    writer: int
    tracks: dict[tuple[str, str], int] = field(default_factory=dict)

    def written(self, events: Sequence[Event]) -> bytes:
        """Return the trace."""
        for event in events:
            if isinstance(event, Counter):
                packet = self._event(
                    event.time, self._track(event.process, event.name, counter=True), 4
                )
                packet.counter_value = event.value
                continue
            track = self._track(event.process, event.track)
            begin = self._event(event.begin, track, 1)
            begin.name = event.name
            begin.flow_ids.extend(event.flows)
            for key, text in event.facts:
                note = begin.debug_annotations.add()
                note.name, note.string_value = key, text
            self._event(event.end, track, 2)
        content: bytes = self.builder.serialize()
        return content

    def _event(self, time: int, track: int, kind: int) -> Any:
        """Add an event: 1 begins a slice, 2 ends it, 4 is a counter."""
        packet = self.builder.add_packet()
        packet.timestamp = time
        packet.trusted_packet_sequence_id = self.writer + 1
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet.track_event

    def _track(self, process: str, name: str, *, counter: bool = False) -> int:
        """Return the number of a track, which is described if it is new; an empty name stands for the process."""
        if (process, name) in self.tracks:
            return self.tracks[process, name]
        parent = self._track(process, "") if name else 0
        number = self.writer * _MOST_TRACKS + len(self.tracks) + 1
        self.tracks[process, name] = number
        descriptor = self.builder.add_packet().track_descriptor
        descriptor.uuid = number
        if not name:
            descriptor.process.pid, descriptor.process.process_name = number, process
            return number
        descriptor.parent_uuid, descriptor.name = parent, name
        if counter:
            descriptor.counter.unit = 3  # bytes
        return number


def _chrome(events: Sequence[Event], writer: int) -> bytes:
    """Return the events in Chrome's format, whose times are microseconds."""
    names = dict.fromkeys(event.process for event in events)
    processes = {name: number for number, name in enumerate(names, writer * _MOST_TRACKS + 1)}
    slices = [event for event in events if isinstance(event, TraceSlice)]
    keys = dict.fromkeys((event.process, event.track) for event in slices)
    threads = {key: number for number, key in enumerate(keys, 1)}
    lines: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
        for name, number in processes.items()
    ]
    lines += [
        {
            "ph": "M",
            "name": "thread_name",
            "pid": processes[process],
            "tid": number,
            "args": {"name": track},
        }
        for (process, track), number in threads.items()
    ]
    seen: set[int] = set()
    for event in events:
        pid = processes[event.process]
        if isinstance(event, Counter):
            counted = {"ph": "C", "name": event.name, "pid": pid, "ts": event.time / 1e3}
            lines.append({**counted, "args": {"bytes": event.value}})
            continue
        where = {"pid": pid, "tid": threads[event.process, event.track], "ts": event.begin / 1e3}
        duration = (event.end - event.begin) / 1e3
        lines.append(
            {"ph": "X", "name": event.name, **where, "dur": duration, "args": dict(event.facts)}
        )
        for flow in event.flows:
            # The first slice with a value begins its flow, each later one is a step of it.
            lines.append(
                {
                    "ph": "t" if flow in seen else "s",
                    "id": flow,
                    "name": "value",
                    "cat": "flow",
                    **where,
                }
            )
            seen.add(flow)
    return json.dumps(
        {"displayTimeUnit": "ns", "traceEvents": lines}, separators=(",", ":")
    ).encode()
