"""What a run of a graph is modelled to take, by what takes it: the one sum that plans, reports and benchmarks use.

In spatial mapping calls are made for each mini-batch. Copies are made once a run, and so is the launch of each
section, for all of them stay on the chip, and the copies of what changes there, which are in no section's time.

An exchange between RDUs takes its latency, and of the rest what does not go on beside the sections around it
(:mod:`samba_onnx.pef.exchanges`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from samba_onnx.passes.timing.overlap import Resource, timeline
from samba_onnx.passes.timing.traffic import traffic_seconds
from samba_onnx.pef.exchanges import hidden_exchanges, rdu_calls
from samba_onnx.pef.manifest import Cause, Direction, Fallback, Graph, Manifest, Section, Symbol
from samba_onnx.pef.stage_records import SectionTime, Term
from samba_onnx.pef.target_summary import TargetSummary

__all__ = ["ScheduleTime", "call_seconds", "places", "run_time", "schedule_time", "token_seconds"]

_ROUNDING: Final = 1e-12
"""Rounding error of a sum of a few thousand times, relative to the sum."""


@dataclass(frozen=True)
class ScheduleTime:
    """The parts of a run's modelled time, in seconds; nothing of one part is in another."""

    launch: float
    """Launches of sections."""
    compute: float
    """Sections that compute the longest, without launch and fill."""
    on_chip: float
    """Sections that wait for on-chip memory."""
    off_chip: float
    """Sections that wait for off-chip memory."""
    fill: float
    """Filling of the sections' pipelines."""
    collectives: float
    """Exchanges between RDUs, without what goes on beside the sections around them."""
    host_transfers: float
    """Copies between host and RDU."""
    cpu: float
    """Fallbacks."""
    to_host: float = 0.0
    """The part of ``host_transfers`` that goes to the host."""
    hidden_transfers: float = 0.0
    """The part of ``host_transfers`` that goes on while the device or the host is busy, or in both directions at once."""
    hidden_cpu: float = 0.0
    """The part of ``cpu`` that goes on while the device is busy."""
    residents: float = 0.0
    """In spatial mapping: what stays, onto the chip, and what changes, back. Else the sections' own times
    have it."""

    @property
    def sections(self) -> float:
        """All calls of sections."""
        parts = self.launch + self.compute + self.on_chip + self.off_chip + self.fill
        return parts + self.residents

    @property
    def on_rdu(self) -> float:
        """Sections and the exchanges between them: what the device is busy with."""
        return self.sections + self.collectives

    @property
    def serial(self) -> float:
        """All parts one after the other."""
        return self.on_rdu + self.host_transfers + self.cpu

    @property
    def total(self) -> float:
        """When a run ends: all parts but for what goes on beside others."""
        return self.serial - self.hidden_transfers - self.hidden_cpu

    @property
    def parts(self) -> Mapping[str, float]:
        """The parts by their names, which add up to ``serial``."""
        names = ("launch", "compute", "on_chip", "off_chip", "fill", "residents")
        return {
            name: getattr(self, name) for name in (*names, "collectives", "host_transfers", "cpu")
        }


def run_time(manifest: Manifest, graph: Graph) -> ScheduleTime:
    """Return what a run of a graph of a PEF with all inputs and all outputs is modelled to take."""
    time = schedule_time(graph, manifest.stages(), manifest.target, places(manifest.symbols))
    if not graph.spatial_batches:
        return time
    # It takes a whole manifest, which plans that ask for `schedule_time` do not have yet.
    return replace(time, residents=_resident_seconds(graph, manifest))


def token_seconds(manifest: Manifest, graphs: Iterable[Graph]) -> float:
    """Return what the exchanges between RDUs of a run take where it reads one token of one sequence.

    Args:
        manifest: What the PEF says about itself.
        graphs: The graphs that the run executes.

    Returns:
        Seconds; 0 for a program of one RDU, and for one without attention.
    """
    cut = manifest.parallel
    if cut is None or not cut.tokens:
        return 0.0
    return sum(
        # Bytes are those of all tokens of a run; what a ring waits for is a matter of steps, however few it sends.
        transfer.seconds
        - manifest.target.exchange_seconds(transfer.bytes)
        + manifest.target.exchange_seconds(-(-transfer.bytes // cut.tokens))
        for graph in graphs
        for transfer in graph.run_transfers
        if transfer.cause is Cause.COLLECTIVE
    )


def places(symbols: Iterable[Symbol]) -> Mapping[str, str]:
    """Return the regions of symbols that are in device memory, by name."""
    return {symbol.name: symbol.region for symbol in symbols if symbol.region}


def call_seconds(
    graph: Graph,
    stages: Mapping[int, Section | Fallback],
    target: TargetSummary,
    regions: Mapping[str, str],
) -> tuple[Mapping[int, float], float]:
    """Return the parts of a run in the order of its schedule, instead of by what takes them.

    Args:
        graph: A graph.
        stages: Its sections and fallbacks by id.
        target: The device's figures.
        regions: The regions of its symbols, from :func:`places`.

    Returns:
        By how much each call makes a run longer, with the copies that are issued in its turn, by its id. Then what is
        made once a run in spatial mapping, where calls are those of one mini-batch: copies, and launches; 0 in
        section mapping. With as many calls as there are mini-batches it is what :func:`schedule_time` returns in all.
    """
    on_rdu = rdu_calls(graph, stages, target)
    busy = {call: each.seconds for call, each in on_rdu.items()}
    # All mini-batches are copied before and after the run, and sections are launched once.
    if graph.spatial_batches:  # without fallbacks
        copies = [c.seconds for c in graph.run_transfers if c.cause is not Cause.COLLECTIVE]
        launches = sum(call.launch for call in on_rdu.values())
        return busy, launches + sum(copies)
    return timeline(graph, stages, target, regions, busy).advances(), 0.0


def schedule_time(
    graph: Graph,
    stages: Mapping[int, Section | Fallback],
    target: TargetSummary,
    regions: Mapping[str, str],
) -> ScheduleTime:
    """Return what a run with all inputs and all outputs is modelled to take.

    Args:
        graph: A graph.
        stages: Its sections and fallbacks by id, as ``Manifest.stages`` has them.
        target: The device's figures.
        regions: The regions of its symbols, from :func:`places`.

    Returns:
        The parts. The longest of a section's compute and traffic counts; the others go on at the same
        time. Copies and fallbacks go on beside sections as :mod:`samba_onnx.passes.timing.overlap` says, but in spatial
        mapping, where a run copies all mini-batches before and after it. A section of which only the sum is known
        counts as compute. What stays on the chip in spatial mapping is left out, which :func:`run_time` knows.
    """
    whole = _serial_time(graph, stages, target)
    overlaps = target.overlaps_to_rdu or target.overlaps_to_host or target.overlaps_cpu
    # Without overlap all parts follow each other, and no timeline is needed.
    if graph.spatial_batches or not overlaps:
        return whole
    busy = {call: each.seconds for call, each in rdu_calls(graph, stages, target).items()}
    line = timeline(graph, stages, target, regions, busy)
    working = line.busy(Resource.RDU, Resource.CPU)
    apart = line.busy(Resource.RDU) + line.busy(Resource.CPU)
    # The time in which neither device nor host works is what is seen of the copies; the rest is
    # hidden.
    hidden = whole.host_transfers - (line.end - working)
    return replace(
        whole,
        # Differences of sums leave rounding errors, which would show as hidden time.
        hidden_transfers=_above_rounding(hidden, line.end),
        hidden_cpu=_above_rounding(apart - working, line.end),
    )


def _serial_time(
    graph: Graph, stages: Mapping[int, Section | Fallback], target: TargetSummary
) -> ScheduleTime:
    """Return the parts of a run, of which none goes on beside another one."""
    times = [stages[call.stage] for call in graph.calls]
    sections = [
        stage.time or SectionTime(compute=stage.seconds)
        for stage in times
        if isinstance(stage, Section)
    ]
    repeats = graph.spatial_batches or 1
    # Terms that go on at the same time: only the longest one of each section counts.
    longest = dict.fromkeys((Term.COMPUTE, Term.ON_CHIP, Term.OFF_CHIP), 0.0)
    for time in sections:
        longest[time.bound] += time.overlapped
    between = [copy.seconds for copy in graph.run_transfers if copy.cause is Cause.COLLECTIVE]
    to_host = [c.seconds for c in graph.run_transfers if c.direction is Direction.RDU_TO_HOST]
    return ScheduleTime(
        launch=sum(time.launch for time in sections),
        compute=repeats * longest[Term.COMPUTE],
        on_chip=repeats * longest[Term.ON_CHIP],
        off_chip=repeats * longest[Term.OFF_CHIP],
        fill=repeats * sum(time.fill for time in sections),
        # `start` keeps the type a float where there is no exchange.
        collectives=sum(between) - sum(hidden_exchanges(graph, stages, target).values(), start=0.0),
        host_transfers=sum(copy.seconds for copy in graph.run_transfers) - sum(between),
        cpu=repeats * sum(stage.seconds for stage in times if isinstance(stage, Fallback)),
        to_host=sum(to_host),
    )


def _above_rounding(seconds: float, end: float) -> float:
    """Return a difference of times of a run, or 0 where it is what sums of these were rounded by."""
    return seconds if seconds > _ROUNDING * end else 0.0


def _resident_seconds(graph: Graph, manifest: Manifest) -> float:
    """Return the time to bring what stays onto the chip, and what changes back, once a run."""
    stages = manifest.stages()
    own = [stages[call.stage] for call in graph.calls]
    read = {name for stage in own for name in (*stage.inputs, *stage.weights)}
    written = {name for stage in own for name in stage.outputs}
    places = {
        symbol.name: symbol.region
        for symbol in manifest.symbols
        # Batches are copied for every mini-batch, and are counted there.
        if symbol.region and symbol.batch_shape is None
    }
    stays = manifest.residents() | {name for stage in own for name in stage.weights}
    regions = {region.name: region for region in manifest.regions}
    moved: dict[str, list[int]] = {}
    for names in (read, written):
        # Symbols of one region are one value: its bytes move once.
        for place in sorted({places[name] for name in names & stays if name in places}):
            moved.setdefault(regions[place].tier, []).append(regions[place].bytes)
    return traffic_seconds(manifest.target, moved)
