"""What a report says of device memory between runs, and of training: parts, residents, argins."""

from __future__ import annotations

from samba_onnx.pef.manifest import Manifest
from samba_onnx.program.kinds import LOADED_KINDS, SectionType, SymbolKind
from samba_onnx.report.report_records import RegionReport, record


@record
class PartReport:
    """All sections and fallbacks of one type."""

    type: str
    """``FWD``, ``BCKWD``, ``OPT``, ``ZEROGRAD``, ``REDUCE`` or ``GRADNORM``."""
    sections: int
    """How many run on the RDU."""
    fallbacks: int
    """How many groups of nodes run on the CPU."""
    nodes: int
    """Nodes of all of them."""
    flops: int
    """Floating-point operations of all sections."""
    modelled_seconds: float
    """Time of all sections."""


@record
class ResidentReport:
    """A weight, buffer, optimizer state or gradient that stays in device memory between runs."""

    name: str
    """Its name."""
    kind: SymbolKind
    """``weight``, ``buffer``, ``optimizer_state`` or ``gradient``."""
    type: str
    """ONNX's text form, as ``tensor(float)``."""
    shape: tuple[int | str | None, ...] | None
    """Sizes, or names of dynamic dimensions; None where the rank is unknown."""
    bytes: int | None
    """Size."""
    region: str
    """Place in device memory, which updates of it share."""
    source: str
    """Where its first value comes from: ``pef``, ``user`` (whoever runs the PEF loads it), or
    ``device`` (a section computes it, or a gradient is set)."""


def parts(manifest: Manifest) -> tuple[PartReport, ...]:
    """Add sections and fallbacks up by type, in the order of the schedule.

    Args:
        manifest: A PEF's manifest.
    """
    types = [kind for kind in SectionType if any(s.type is kind for s in manifest.sections)]
    stages = manifest.stages()
    # A part may be on the CPU as a whole.
    types += [f.type for f in manifest.fallbacks if f.type not in types]
    order = [stages[call.stage].type for graph in manifest.graphs for call in graph.calls]
    # A part that no graph calls comes last.
    types.sort(key=lambda kind: order.index(kind) if kind in order else len(order))
    return tuple(_part(kind, manifest) for kind in dict.fromkeys(types))


def _part(kind: SectionType, manifest: Manifest) -> PartReport:
    sections = [section for section in manifest.sections if section.type is kind]
    fallbacks = [fallback for fallback in manifest.fallbacks if fallback.type is kind]
    return PartReport(
        type=kind,
        sections=len(sections),
        fallbacks=len(fallbacks),
        nodes=sum(stage.nodes for stage in (*sections, *fallbacks)),
        flops=sum(section.flops for section in sections),
        modelled_seconds=sum(section.seconds for section in sections),
    )


def residents(manifest: Manifest) -> tuple[ResidentReport, ...]:
    """Return what stays in device memory between runs, each place once.

    Args:
        manifest: A PEF's manifest.
    """
    names = manifest.residents()
    rows: dict[str, ResidentReport] = {}
    for symbol in manifest.symbols:
        # Updates and the names of other graphs share the place of the first.
        if symbol.name not in names or symbol.region in rows:
            continue
        source = "device"
        if symbol.kind in LOADED_KINDS:
            # A PEF may leave weights out, which whoever runs it loads.
            source = "user" if symbol.stored is None else "pef"
        rows[symbol.region] = ResidentReport(
            name=symbol.name,
            kind=symbol.kind,
            type=symbol.type,
            shape=symbol.shape,
            bytes=symbol.bytes,
            region=symbol.region,
            source=source,
        )
    return tuple(rows.values())


def regions(manifest: Manifest) -> tuple[RegionReport, ...]:
    """Return the places in device memory with the symbols that share them.

    Args:
        manifest: A PEF's manifest.
    """
    members: dict[str, list[str]] = {}
    for symbol in manifest.symbols:
        members.setdefault(symbol.region, []).append(symbol.name)
    return tuple(
        RegionReport(
            region.name,
            region.tier,
            region.bytes,
            region.mutable,
            tuple(members.get(region.name, ())),
        )
        for region in manifest.regions
    )
