"""When the regions of device memory hold what a run still needs: from which call to which.

Every region is there for as long as the PEF is loaded, so that memory which is reserved does not change over a
run. What a run needs of it does: a value between two stages is needed from the call that
writes it to the last one that reads it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from samba_onnx.pef.manifest import Graph, Manifest, Region, Symbol
from samba_onnx.program.kinds import SymbolKind

__all__ = [
    "Lifetime",
    "Occupancy",
    "graph_lifetimes",
    "moved_bytes_by_tier",
    "region_kind",
    "timeline",
]

Occupancy: TypeAlias = Mapping[tuple[str, SymbolKind], int]
"""Bytes by tier and kind."""

_ORDER = (
    SymbolKind.WEIGHT,
    SymbolKind.BUFFER,
    SymbolKind.OPTIMIZER_STATE,
    SymbolKind.GRADIENT,
    SymbolKind.INPUT,
    SymbolKind.OUTPUT,
    SymbolKind.CONSTANT,
    SymbolKind.ACTIVATION,
)
"""The order in which kinds of symbols give their name to a region that several of them share."""


@dataclass(frozen=True)
class Lifetime:
    """The calls of one graph's run during which a region must hold its value."""

    region: Region
    """The place."""
    symbol: str
    """The symbol that it is named after: of several, one of the region's kind."""
    kind: SymbolKind
    """What the region holds."""
    first: int
    """The first call that needs it in memory; 0 for what is there before the run."""
    last: int
    """The last such call."""
    kept: bool
    """Whether it is there during the whole run and for later ones: residents, weights and constants of
    sections, the graph's inputs, and argins."""


def region_kind(kinds: Iterable[SymbolKind]) -> SymbolKind:
    """Return what a region is called whose symbols are of these kinds, at least one."""
    return min(kinds, key=_ORDER.index)


def graph_lifetimes(manifest: Manifest, graph: Graph) -> tuple[Lifetime, ...]:
    """Return when each region is needed in a run of a graph's whole schedule.

    Residents, the weights and constants of sections, and argins are there before the run, those of other
    graphs of the PEF as well. So are the graph's inputs that sections read: they are copied when the run
    begins, and stay for a later run that is not given them. What a section writes is needed until the last
    section has read it, and the first fallback, which copies it to the host; an output, and what another
    graph reads, until the run ends. What a fallback writes is needed from the first section that reads it
    to the last one. In spatial mapping all sections run at once, and everything is needed all the time.

    Args:
        manifest: A manifest, of one RDU where a program was cut for several.
        graph: One of its graphs.

    Returns:
        One lifetime per region that the run needs, in the order of the manifest's regions; of a region in which
        activations take turns, one for each of them.
    """
    by_region: dict[str, list[Symbol]] = {}
    for symbol in manifest.symbols:
        if symbol.region:
            by_region.setdefault(symbol.region, []).append(symbol)
    spans = _Spans(manifest, graph)
    lifetimes = []
    for region in manifest.regions:
        symbols = by_region.get(region.name, [])
        turns = all(symbol.kind is SymbolKind.ACTIVATION for symbol in symbols)
        # Activations take turns in a region; other symbols of one region are there at the same time.
        for group in [[symbol] for symbol in symbols] if turns else [symbols]:
            span = spans.of(group)
            if span is not None:
                kind = region_kind(symbol.kind for symbol in group)
                name = next(symbol.name for symbol in group if symbol.kind is kind)
                lifetimes.append(Lifetime(region, name, kind, *span))
    return tuple(lifetimes)


def timeline(lifetimes: Sequence[Lifetime], calls: int) -> tuple[Occupancy, ...]:
    """Return the bytes that must be in device memory during each call.

    Args:
        lifetimes: The lifetimes of a graph's regions.
        calls: Number of calls of its schedule.

    Returns:
        Bytes by tier and kind for every call; one entry for a schedule without calls.
    """
    begins: dict[int, Counter[tuple[str, SymbolKind]]] = {}
    ends: dict[int, Counter[tuple[str, SymbolKind]]] = {}
    for lifetime in lifetimes:
        key = lifetime.region.tier, lifetime.kind
        begins.setdefault(lifetime.first, Counter())[key] += lifetime.region.bytes
        # One behind the last call, which still needs it.
        ends.setdefault(lifetime.last + 1, Counter())[key] += lifetime.region.bytes
    now: Counter[tuple[str, SymbolKind]] = Counter()
    entries = []
    # A schedule without calls holds its residents all the same.
    for call in range(max(calls, 1)):
        now.update(begins.get(call, {}))
        now.subtract(ends.get(call, {}))
        # A Counter keeps keys whose count fell to zero.
        entries.append({key: size for key, size in now.items() if size})
    return tuple(entries)


def moved_bytes_by_tier(manifest: Manifest, graph: Graph) -> tuple[Mapping[str, int], ...]:
    """Return what each call reads and writes in off-chip device memory.

    Args:
        manifest: A manifest.
        graph: One of its graphs.

    Returns:
        Bytes by tier for every call, of values in whole: of a table of which rows are looked up, or of a value
        that is updated in its place, a section moves less. Nothing for a fallback.
    """
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    regions = {region.name: region for region in manifest.regions}
    sections = {section.id: section for section in manifest.sections}
    entries = []
    for call in graph.calls:
        moved: Counter[str] = Counter()
        stage = sections.get(call.stage)
        for name in (*stage.inputs, *stage.weights, *stage.outputs) if stage else ():
            symbol = symbols.get(name)  # none for what a stage has inside and nobody names
            if (
                symbol
                and symbol.region
                # In spatial mapping what is no batch stays on the chip for the whole run.
                and (not graph.spatial_batches or symbol.batch_shape is not None)
            ):
                region = regions[symbol.region]
                copies = graph.spatial_batches if symbol.batch_shape is not None else 1
                moved[region.tier] += region.bytes // copies
        entries.append(dict(moved))
    return tuple(entries)


class _Spans:
    """First and last calls of a graph that need a symbol in memory."""

    def __init__(self, manifest: Manifest, graph: Graph) -> None:
        self._graph = graph
        self._end = max(len(graph.calls) - 1, 0)
        sections = {section.id for section in manifest.sections}
        stages = manifest.stages()
        self._writers: dict[str, tuple[int, bool]] = {}
        """Call that writes a symbol, and whether it is a section's."""
        self._rdu_reads: dict[str, list[int]] = {}
        self._host_reads: dict[str, int] = {}
        for call, stage in enumerate(stages[call.stage] for call in graph.calls):
            on_rdu = stage.id in sections
            self._writers |= dict.fromkeys(stage.outputs, (call, on_rdu))
            for name in stage.inputs:
                if on_rdu:
                    self._rdu_reads.setdefault(name, []).append(call)
                else:
                    # The first fallback is enough: it copies the value to the host, where later
                    # ones find it.
                    self._host_reads.setdefault(name, call)
        others = [other for other in manifest.graphs if other is not graph]
        # Graphs of one PEF share device memory, so that a value may wait for a run of another one.
        self._elsewhere = {
            name
            for other in others
            for name in itertools.chain(
                other.inputs, *(stages[call.stage].inputs for call in other.calls)
            )
        }
        self._kept = {
            *manifest.residents(),
            *graph.inputs,
            *(argin.name for argin in manifest.argins),
            *(name for section in manifest.sections for name in section.weights),
        }

    def of(self, symbols: Sequence[Symbol]) -> tuple[int, int, bool] | None:
        """Return first and last call for the symbols of a region, and whether it is kept.

        None stands for a region that no call of the graph needs.
        """
        names = [symbol.name for symbol in symbols]
        reads = any(name in self._rdu_reads or name in self._host_reads for name in names)
        # Read and never written here: it was there before the run.
        unwritten = reads and not any(name in self._writers for name in names)
        if unwritten or not self._kept.isdisjoint(names):
            return 0, self._end, True
        spans = [self._span(name) for name in names if name in self._writers]
        if not spans:
            return None
        if self._graph.spatial_batches:
            return 0, self._end, False
        last = max(last for _, last in spans)
        # Another graph reads it later, so that it must outlive this run.
        lasting = not self._elsewhere.isdisjoint(names)
        return min(first for first, _ in spans), self._end if lasting else last, False

    def _span(self, name: str) -> tuple[int, int]:
        written, on_rdu = self._writers[name]
        reads = self._rdu_reads.get(name, [])
        if not on_rdu:
            # A fallback's result is copied just before the first section that reads it.
            return min(reads, default=written), max(reads, default=written)
        last = max([written, *reads, self._host_reads.get(name, written)])
        return written, self._end if name in self._graph.outputs else last
