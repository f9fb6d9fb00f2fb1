"""Memory that a PEF is planned to take, and what its sections are modelled to."""

from __future__ import annotations

from collections.abc import Iterator

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.report_records import MemoryReport, SectionReport
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
        # Graphs follow each other, and so do sections: the one that needs the most counts. In spatial
        # mapping all sections of a graph are there at once.
        on_chip = max(on_chip, sum(own) if graph.spatial_batches else max(own, default=0))
    reports = []
    for tier in manifest.target.tiers:
        regions = [region.bytes for region in manifest.regions if region.tier == tier.name]
        # No region lies on the chip: what sections hold there is planned with them.
        used = sum(regions) + (on_chip if tier.name == "sram" else 0)
        reports.append(MemoryReport(tier.name, tier.bytes, used, len(regions)))
    return tuple(reports)


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
            # A PEF of an older version has no parts of times, and of no time none takes the most.
            dominant=section.time.dominant.value if section.time and section.seconds else "",
            time_parts={} if section.time is None else dict(vars(section.time)),
            repeated=section.repeated,
        )
        for section in manifest.sections
    )
