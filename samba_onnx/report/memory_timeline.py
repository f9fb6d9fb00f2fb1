"""Device memory over a run: what each call needs there, the peak and what makes it up."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.pef.lifetimes import (
    Lifetime,
    Occupancy,
    graph_lifetimes,
    moved_bytes_by_tier,
    timeline,
)
from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.report.layout import table, titled
from samba_onnx.report.report_records import record
from samba_onnx.report.units import byte_text, printable

__all__ = [
    "CallMemoryReport",
    "GraphMemoryReport",
    "MemoryValueReport",
    "memory_timelines",
    "timeline_text",
]

_LARGEST = 10
"""Values at the peak that a record has."""
_SHOWN = 5
"""Values at the peak that a table without `-v` has."""
_COLUMNS = (
    (SymbolKind.WEIGHT, "weights"),
    (SymbolKind.BUFFER, "buffers"),
    (SymbolKind.OPTIMIZER_STATE, "optimizer"),
    (SymbolKind.GRADIENT, "gradients"),
    (SymbolKind.ACTIVATION, "activations"),
    (SymbolKind.INPUT, "inputs"),
    (SymbolKind.OUTPUT, "outputs"),
    (SymbolKind.CONSTANT, "constants"),
)


@record
class MemoryValueReport:
    """A value in device memory."""

    name: str
    """Its name."""
    kind: str
    """``weight``, ``buffer``, ``optimizer_state``, ``gradient``, ``activation``, ``input``, ``output`` or ``constant``."""
    tier: str
    """Where it lies."""
    bytes: int
    """Its size."""
    layer: str
    """Name of the section or fallback that writes it, or else of the first that reads it; empty for a value
    that only other graphs use."""


@record
class CallMemoryReport:
    """What must be in off-chip device memory while one call runs."""

    call: int
    """Id of the call."""
    stage: int
    """Id of the section or fallback."""
    bytes: int
    """Bytes in all."""
    kinds: dict[str, int]
    """The same bytes by kind."""
    tiers: dict[str, int]
    """The same bytes by tier."""
    streamed_bytes: int
    """Bytes that the call reads and writes in a tier that is not the fastest off-chip one, at most: a table
    counts in whole, also where rows of it are looked up."""


@record
class GraphMemoryReport:
    """Device memory over one run of a graph; with several RDUs, that of one of them."""

    graph: str
    """Name of the graph."""
    reserved_bytes: int
    """All regions of the PEF, for as long as it is loaded; values that are never needed at once may share one."""
    peak_bytes: int
    """The most that must be there during one call."""
    peak_call: int | None
    """The first call with that much; null for a schedule without calls."""
    peak_kinds: dict[str, int]
    """The peak by kind."""
    peak_tiers: dict[str, int]
    """The peak by tier."""
    largest: tuple[MemoryValueReport, ...]
    """The largest values that are there at the peak, at most ten."""
    streamed_bytes: int
    """Bytes that a run reads and writes in a tier that is not the fastest off-chip one."""
    calls: tuple[CallMemoryReport, ...]
    """In the order of the schedule."""


def memory_timelines(manifest: Manifest) -> tuple[GraphMemoryReport, ...]:
    """Return what the runs of each graph need in device memory.

    Args:
        manifest: A PEF's manifest.
    """
    return tuple(_graph_memory(manifest, graph) for graph in manifest.graphs)


def _graph_memory(manifest: Manifest, graph: Graph) -> GraphMemoryReport:
    lifetimes = graph_lifetimes(manifest, graph)
    entries = timeline(lifetimes, len(graph.calls))
    totals = [sum(entry.values()) for entry in entries]
    peak = totals.index(max(totals))
    slow = _slow_tiers(manifest)
    # A run executes every call for each of its mini-batches.
    batches = graph.spatial_batches or 1
    # Sections alone: fallbacks read and write in the memory of the host.
    sections = {section.id: section.bytes for section in manifest.sections}
    streamed = [  # of a table a section may read only rows, and of all no more than it moves
        batches * min(sum(moved[tier] for tier in slow & moved.keys()), sections.get(call.stage, 0))
        for call, moved in zip(graph.calls, moved_bytes_by_tier(manifest, graph), strict=True)
    ]
    pairs = zip(graph.calls, entries, totals, streamed, strict=False)  # an entry without any call
    return GraphMemoryReport(
        graph=graph.name,
        reserved_bytes=sum(region.bytes for region in manifest.regions),
        peak_bytes=totals[peak],
        peak_call=graph.calls[peak].id if graph.calls else None,
        peak_kinds=_by(entries[peak], 1),
        peak_tiers=_by(entries[peak], 0),
        largest=_largest(
            manifest,
            graph,
            [lifetime for lifetime in lifetimes if lifetime.first <= peak <= lifetime.last],
        ),
        streamed_bytes=sum(streamed),
        calls=tuple(
            CallMemoryReport(call.id, call.stage, total, _by(entry, 1), _by(entry, 0), moved)
            for call, entry, total, moved in pairs
        ),
    )


def _slow_tiers(manifest: Manifest) -> frozenset[str]:
    """Return all off-chip tiers but the fastest."""
    tiers = [tier for tier in manifest.target.tiers if tier.name != "sram"]
    tiers.sort(key=lambda tier: -tier.bytes_per_second)
    return frozenset(tier.name for tier in tiers[1:])


def _by(entry: Occupancy, place: int) -> dict[str, int]:
    """Add up by tier (place 0) or kind (place 1)."""
    totals: Counter[str] = Counter()
    for key, size in entry.items():
        totals[str(key[place])] += size
    return dict(sorted(totals.items()))


def _largest(
    manifest: Manifest, graph: Graph, lifetimes: Iterable[Lifetime]
) -> tuple[MemoryValueReport, ...]:
    # By name where they are equal: one model has one report, byte for byte.
    largest = sorted(lifetimes, key=lambda lifetime: (-lifetime.region.bytes, lifetime.symbol))[
        :_LARGEST
    ]
    layers: dict[str, str] = {}
    stages = manifest.stages()
    own = [stages[call.stage] for call in graph.calls]
    for stage in own:
        # What writes a value says more of it than what reads it.
        layers |= {name: stage.name for name in stage.outputs if name not in layers}
    for stage in own:
        for name in (*stage.inputs, *stage.weights):
            layers.setdefault(name, stage.name)
    return tuple(
        MemoryValueReport(
            name=lifetime.symbol,
            kind=lifetime.kind.value,
            tier=lifetime.region.tier,
            bytes=lifetime.region.bytes,
            layer=layers.get(lifetime.symbol, ""),
        )
        for lifetime in largest
    )


def timeline_text(
    memory: GraphMemoryReport | None, names: dict[int, str], rows: int | None
) -> RenderableType | None:
    """Return the block of a graph; None where nothing is in device memory.

    Args:
        memory: What runs of the graph need.
        names: Names of stages by id.
        rows: Most rows of the timeline, of which one stands for several calls if need be; None for a row
            for every call.
    """
    if memory is None or not memory.peak_bytes:
        return None
    peak = f"{byte_text(memory.peak_bytes)} needed at once"
    # Of one call there is no other that the peak could be in.
    if memory.peak_call is not None and len(memory.calls) > 1:
        stage = next(call.stage for call in memory.calls if call.call == memory.peak_call)
        peak += f", in call {memory.peak_call} ({printable(names.get(stage, ''))})"
    parts: list[RenderableType] = [
        Text(f"{peak}; {byte_text(memory.reserved_bytes)} reserved while the PEF is loaded")
    ]
    if memory.streamed_bytes:
        parts.append(
            Text(
                f"a run reads and writes {byte_text(memory.streamed_bytes)} in memory that is slower than "
                "the fastest; the times of sections have it"
            )
        )
    if len(memory.calls) > 1:
        parts.append(_calls(memory, rows))
    parts.append(_values(memory.largest[: _LARGEST if rows is None else _SHOWN]))
    return titled("Device memory over a run", Group(*parts))


def _calls(memory: GraphMemoryReport, rows: int | None) -> RenderableType:
    """Show the timeline; neighbours that read the same are one row."""
    # A model that does not train has no gradients, and a table of 80 columns no room for empty ones.
    kinds = [(kind, word) for kind, word in _COLUMNS if any(kind in c.kinds for c in memory.calls)]
    lines: list[tuple[int, int, tuple[str, ...]]] = []
    for stretch in _stretches(memory.calls, rows):
        # A stretch is as high as its highest call: the peak must be in a row.
        most = max(stretch, key=lambda call: call.bytes)
        moved = sum(call.streamed_bytes for call in stretch)
        figures = (
            byte_text(most.bytes),
            *(byte_text(most.kinds.get(kind, 0)) for kind, _ in kinds),
            *([byte_text(moved)] if memory.streamed_bytes else []),
        )
        begin = stretch[0].call
        # What is streamed is a sum over calls: rows with some of it would have another sum together.
        if lines and rows is not None and not moved and lines[-1][2] == figures:
            begin = lines.pop()[0]
        lines.append((begin, stretch[-1].call, figures))
    cells = [
        (str(first) if first == last else f"{first} to {last}", *figures)
        for first, last, figures in lines
    ]
    columns = (">calls", ">needed", *(f">{word}" for _, word in kinds))
    return table((*columns, *([">streamed"] if memory.streamed_bytes else [])), cells)


def _stretches(
    calls: Sequence[CallMemoryReport], rows: int | None
) -> list[Sequence[CallMemoryReport]]:
    """Cut a schedule into at most so many stretches, whose lengths differ by one at most."""
    count = len(calls) if rows is None else min(len(calls), max(rows, 1))
    ends = [len(calls) * number // count for number in range(count + 1)]
    return [calls[begin:end] for begin, end in itertools.pairwise(ends)]


def _values(values: Sequence[MemoryValueReport]) -> RenderableType:
    cells = [
        (value.name, value.kind.replace("_", " "), value.tier, byte_text(value.bytes), value.layer)
        for value in values
    ]
    return table(("largest values at the peak", "kind", "tier", ">bytes", "layer"), cells)
