"""Memory and time that a PEF is modelled to take, one graph after the other."""

from __future__ import annotations

from collections.abc import Iterator

from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.pef.schedule_time import schedule_time
from samba_onnx.report.fidelity import validation
from samba_onnx.report.records import MemoryReport, ModelledTime, SectionReport, TransferTotal
from samba_onnx.report.sizes import run_graphs
from samba_onnx.safety.files import printable


def memory(manifest: Manifest) -> tuple[MemoryReport, ...]:
    """Return how full each tier is.

    Args:
        manifest: A PEF's manifest.

    Returns:
        One entry per tier. On the chip are the largest section, or all sections of a graph that is
        mapped spatially.
    """
    sizes = {section.id: section.sram_bytes for section in manifest.sections}
    on_chip = 0
    for graph in manifest.graphs:
        own = [sizes.get(call.stage, 0) for call in graph.calls]
        on_chip = max(on_chip, sum(own) if graph.spatial_batches else max(own, default=0))
    reports = []
    for tier in manifest.target.tiers:
        regions = [region.bytes for region in manifest.regions if region.tier == tier.name]
        used = sum(regions) + (on_chip if tier.name == "sram" else 0)
        reports.append(MemoryReport(tier.name, tier.bytes, used, len(regions)))
    return tuple(reports)


def modelled_time(
    manifest: Manifest, per_run: tuple[TransferTotal, ...], at_load: tuple[TransferTotal, ...]
) -> ModelledTime:
    """Add up sections and fallbacks as often as they are called, and transfers.

    Args:
        manifest: A PEF's manifest.
        per_run: Transfers of every run.
        at_load: Transfers that are made once.
    """
    seconds = {section.id: section.seconds for section in manifest.sections}
    sections = sum(
        (graph.spatial_batches or 1) * sum(seconds.get(call.stage, 0.0) for call in graph.calls)
        + _residents_seconds(graph, manifest)
        for graph in run_graphs(manifest)
    )
    transfers = sum(total.modelled_seconds for total in per_run)
    fallbacks = {fallback.id: fallback.seconds for fallback in manifest.fallbacks}
    on_cpu = sum(
        fallbacks.get(call.stage, 0.0) for graph in run_graphs(manifest) for call in graph.calls
    )
    return ModelledTime(
        sections_seconds=sections,
        transfers_seconds=transfers,
        cpu_seconds=on_cpu,
        total_seconds=sections + transfers + on_cpu,
        load_seconds=sum(total.modelled_seconds for total in at_load),
        unmodelled_cpu_nodes=sum(fallback.unmodelled for fallback in manifest.fallbacks),
        host="" if manifest.host is None else manifest.host.name,
        parts=_time_parts(manifest),
        validation=validation(manifest),
    )


def _time_parts(manifest: Manifest) -> dict[str, float]:
    """Return the seconds of a run by what takes them, parts that take none left out."""
    stages = manifest.stages()
    totals: dict[str, float] = {}
    for graph in run_graphs(manifest):
        for name, seconds in vars(schedule_time(graph, stages)).items():
            if seconds:
                totals[name] = totals.get(name, 0.0) + seconds
    return totals


def spatial_notes(manifest: Manifest) -> Iterator[str]:
    """Yield a sentence for every graph that is mapped spatially.

    Args:
        manifest: A PEF's manifest.
    """
    for graph in manifest.graphs:
        if graph.spatial_batches:
            yield (
                f"graph {printable(graph.name)} is mapped spatially: a run takes "
                f"{graph.spatial_batches:,} mini-batches and executes every section for each, with "
                "all sections on the chip; parameters and optimizer states do not move between them"
            )


def _residents_seconds(graph: Graph, manifest: Manifest) -> float:
    """Return the modelled time to bring what stays onto the chip, and what changes back, once a run.

    In section mapping the sections' own times have it.
    """
    if not graph.spatial_batches:
        return 0.0
    stages = manifest.stages()
    own = [stages[call.stage] for call in graph.calls]
    read = {name for stage in own for name in (*stage.inputs, *stage.weights)}
    written = {name for stage in own for name in stage.outputs}
    places = {
        symbol.name: symbol.region
        for symbol in manifest.symbols
        if symbol.region and symbol.batch_shape is None
    }
    stays = manifest.residents() | {name for stage in own for name in stage.weights}
    regions = {region.name: region for region in manifest.regions}
    rates = {tier.name: tier.bytes_per_second for tier in manifest.target.tiers}
    moved = [
        regions[place]
        for names in (read, written)
        for place in sorted({places[name] for name in names & stays if name in places})
    ]
    return sum(region.bytes / rates[region.tier] for region in moved if rates[region.tier])


def section_reports(manifest: Manifest) -> tuple[SectionReport, ...]:
    """Return what each section takes, in the order of their ids.

    Args:
        manifest: A PEF's manifest.
    """
    return tuple(
        SectionReport(
            id=section.id,
            name=section.name,
            graph=section.graph,
            type=section.type,
            nodes=section.nodes,
            flops=section.flops,
            off_chip_bytes=section.bytes,
            sram_bytes=section.sram_bytes,
            modelled_seconds=section.seconds,
            operators=section.operators,
            rule=section.rule,
            dominant="" if section.time is None else section.time.dominant.value,
            time_parts={} if section.time is None else dict(vars(section.time)),
        )
        for section in manifest.sections
    )
