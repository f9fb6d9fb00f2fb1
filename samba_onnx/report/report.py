"""The report on a converted model, built from nothing but the manifest of its PEF."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from samba_onnx.facts.precisions import describe_precision, stored_precision
from samba_onnx.facts.roundings import describe_rounding
from samba_onnx.pef.changes import Bound
from samba_onnx.pef.dimensions import BoundDimension, DynamicDimension
from samba_onnx.pef.hints import describe_hints
from samba_onnx.pef.manifest import (
    Argin,
    Direction,
    Fallback,
    Graph,
    Manifest,
    Member,
    Section,
    SourceModel,
    Symbol,
    Transfer,
)
from samba_onnx.pef.rewrite_records import LegalisedRule, PassSummary
from samba_onnx.pef.target_summary import Assumption
from samba_onnx.report.budgets import memory, section_reports, spatial_notes
from samba_onnx.report.change_reports import ChangeReport, change_reports
from samba_onnx.report.coverage import coverage_of, fallback_reports
from samba_onnx.report.fitting import FitReport
from samba_onnx.report.fusion import FusionReport, fusion
from samba_onnx.report.headline import headline_text
from samba_onnx.report.layout import CAUSE_ORDER
from samba_onnx.report.limit_report import LimitReport
from samba_onnx.report.memory_timeline import GraphMemoryReport, memory_timelines
from samba_onnx.report.parallel import ParallelReport, parallel
from samba_onnx.report.program.program_records import (
    DeviceReport,
    ProducerReport,
    ProgramReport,
)
from samba_onnx.report.program.program_report import (
    device_report,
    producer_report,
    program_report,
)
from samba_onnx.report.report_records import (
    REPORT_VERSION,
    BoundaryReport,
    CallReport,
    Coverage,
    FallbackReport,
    FixedInputReport,
    GraphReport,
    MemoryReport,
    RegionReport,
    SectionReport,
    TransferTotal,
    UndocumentedSupport,
    ValueReport,
    record,
)
from samba_onnx.report.sizes import fixed_inputs, run_graphs
from samba_onnx.report.state import (
    PartReport,
    ResidentReport,
    parts,
    regions,
    residents,
)
from samba_onnx.report.times import ModelledTime, modelled_time
from samba_onnx.report.transfer_totals import total_transfers

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType


@record
class Report:
    """What a converted model does on its target: coverage, fallbacks, memory, transfers, time."""

    headline: str
    """The answer in one line."""
    model: SourceModel
    """What was converted."""
    target: str
    """Name of the target."""
    level: str
    """Optimization level: ``o0``, ``o1`` or ``o3``."""
    coverage: Coverage
    """Nodes and operations on the RDU and on the CPU."""
    fallbacks: tuple[FallbackReport, ...]
    """Why nodes run on the CPU, the reason with most nodes first."""
    boundaries: tuple[BoundaryReport, ...]
    """Where the schedule passes between RDU and CPU, in the order of the schedule."""
    sections: tuple[SectionReport, ...]
    """In the order of their ids."""
    memory: tuple[MemoryReport, ...]
    """Device memory by tier, the fastest first."""
    transfers_per_run: tuple[TransferTotal, ...]
    """By cause and direction; of graphs for several sizes, those of the one that moves the most."""
    transfers_at_load: tuple[TransferTotal, ...]
    """By cause and direction."""
    modelled_time: ModelledTime
    """Modelled, never measured."""
    dynamic_dimensions: tuple[DynamicDimension, ...]
    """Dimensions that stayed dynamic."""
    bound_dimensions: tuple[BoundDimension, ...]
    """Dimensions that are dynamic in the model, with the sizes that were compiled."""
    undocumented_support: tuple[UndocumentedSupport, ...]
    """Nodes on the RDU whose support is experimental, observed or assumed."""
    assumptions: tuple[Assumption, ...]
    """Hardware figures that are not published, and those of the host that nobody measured."""
    notes: tuple[str, ...]
    """Sentences that belong nowhere else."""
    passes: tuple[PassSummary, ...]
    """In the order in which they ran."""
    graphs: tuple[GraphReport, ...]
    """Interface, schedule and transfer plan of every graph."""
    regions: tuple[RegionReport, ...]
    """Device memory by region."""
    members: tuple[Member, ...]
    """Files inside the PEF; empty before it is written."""
    parts: tuple[PartReport, ...] = ()
    """Sections and fallbacks by type, in the order of the schedule."""
    residents: tuple[ResidentReport, ...] = ()
    """What stays in device memory between runs, other than weights inside sections."""
    argins: tuple[Argin, ...] = ()
    """Scalars that a run may change."""
    legalisation: tuple[LegalisedRule, ...] = ()
    """What each rule brought that writes what the target lacks with other operators."""
    changes: tuple[ChangeReport, ...] = ()
    """What a run would save if the target ran what it refuses, the most first."""
    bounds: tuple[Bound, ...] = ()
    """What runs would cost without fallbacks, for graphs that have some and whose shapes are known."""
    fusion: tuple[FusionReport, ...] = ()
    """What each rule of fusion matched, at level ``o1``."""
    limits: tuple[LimitReport, ...] = ()
    """What became of each limit that the user of ``convert`` or ``analyze`` stated."""
    memory_timelines: tuple[GraphMemoryReport, ...] = ()
    """What runs of each graph need in device memory, call by call, with the peak."""
    fits: tuple[FitReport, ...] = ()
    """The largest sizes of dimensions that fit into device memory, where ``--fit`` asked for them."""
    fixed_inputs: tuple[FixedInputReport, ...] = ()
    """Inputs of the model that are constants here, which a run is not given."""
    precision: str = ""
    """In which types operators compute that state float32, as ``--precision`` names it; empty in a report of an older
    version."""
    producer: ProducerReport = ProducerReport("", "")
    """What converted the model; without a name in a report of an older version."""
    parallel: ParallelReport | None = None
    """How it was cut for several RDUs; null for one. All other sizes and times are those of one RDU."""
    device: DeviceReport | None = None
    """Figures of the target; null in a report of an older version."""
    program: ProgramReport | None = None
    """Nodes and edges; null in a report of an older version, and where only figures were asked for."""
    schema_version: int = REPORT_VERSION
    """Version of this document's form."""

    @classmethod
    def from_manifest(cls, manifest: Manifest, *, program: bool = True) -> Report:
        """Build the report.

        Args:
            manifest: What ``analyze`` returns, or ``pef.manifest`` of a PEF that is open.
            program: Whether it has nodes and edges, for JSON and pages; figures and tables need none.

        Returns:
            The report; it needs neither the model nor the PEF any more.

        Raises:
            PefError: A file of the PEF is damaged.
        """
        return replace(
            cls._of_figures(manifest),
            producer=producer_report(manifest),
            device=device_report(manifest),
            # Last: the nodes of a PEF are read from its files.
            program=program_report(manifest) if program else None,
        )

    @classmethod
    def _of_figures(cls, manifest: Manifest) -> Report:
        coverage, graphs = coverage_of(manifest), run_graphs(manifest)
        per_run = _totals(copy for graph in graphs for copy in graph.run_transfers)
        at_load = _totals(copy for graph in manifest.graphs for copy in graph.load_transfers)
        time = modelled_time(manifest, graphs, at_load)
        return cls(
            headline=headline_text(manifest, coverage, per_run, time),
            model=manifest.source,
            target=manifest.target.name,
            level=manifest.level,
            coverage=coverage,
            fallbacks=fallback_reports(manifest),
            boundaries=_boundaries(manifest),
            sections=section_reports(manifest),
            memory=memory(manifest),
            transfers_per_run=per_run,
            transfers_at_load=at_load,
            modelled_time=time,
            dynamic_dimensions=manifest.dynamic_dimensions,
            bound_dimensions=manifest.bound_dimensions,
            undocumented_support=_undocumented_support(manifest.experimental),
            assumptions=_assumptions(manifest),
            notes=_notes(manifest),
            legalisation=manifest.legalised,
            changes=change_reports(manifest),
            bounds=manifest.bounds,
            passes=manifest.passes,
            graphs=_graphs(manifest),
            regions=regions(manifest),
            members=manifest.members,
            parts=parts(manifest),
            residents=residents(manifest),
            argins=manifest.argins,
            memory_timelines=memory_timelines(manifest),
            parallel=parallel(manifest),
            precision=stored_precision(manifest.metadata),
            fusion=fusion(manifest),
            fixed_inputs=fixed_inputs(manifest),
        )

    def to_json(self) -> str:
        """Return the report as a JSON document in the form of ``docs/report.schema.json``."""
        from samba_onnx.report.documents import to_json

        return to_json(self)

    def figure(self, kind: str) -> Figure:
        """Return a figure of matplotlib, which a notebook shows and ``savefig`` writes.

        Args:
            kind: ``time``: the sections and fallbacks that take most of a run; ``memory``: what each call needs in
                device memory, by tier; ``roofline``: operations per second of sections by their operations per byte.

        Raises:
            UsageError: There is no such figure, or the report has nothing for it.
            MissingLibraryError: The extra ``figures`` is not installed.
        """
        from samba_onnx.report.viewers.figures import figure

        return figure(self, kind)

    def __repr__(self) -> str:
        """Return one line; the fields are many."""
        return f"Report({self.headline!r})"

    def _repr_html_(self) -> str:
        """Return the summary for a notebook."""
        from samba_onnx.report.layout import html

        return html(self.__rich__())

    def __rich__(self) -> RenderableType:
        """Return what ``rich.print(report)`` shows: the summary."""
        # Here, not above: the blocks of a terminal are of reports, and import this module.
        from samba_onnx.report.terminal import summary

        return summary(self)


def _notes(manifest: Manifest) -> tuple[str, ...]:
    hints = describe_hints(manifest.metadata)
    precision = describe_precision(manifest.metadata)
    rounding = describe_rounding(manifest.metadata)
    return (*precision, *rounding, *manifest.notes, *spatial_notes(manifest), *hints)


def _assumptions(manifest: Manifest) -> tuple[Assumption, ...]:
    host = manifest.host.assumptions if manifest.host else ()
    return (*manifest.target.assumptions, *host)


def _boundaries(manifest: Manifest) -> tuple[BoundaryReport, ...]:
    """Return the boundaries of all graphs."""
    sections = {section.id for section in manifest.sections}
    return tuple(
        BoundaryReport(
            graph=graph.name,
            direction=(
                # A boundary has a section on one side only: either end tells the way.
                Direction.RDU_TO_HOST if boundary.before in sections else Direction.HOST_TO_RDU
            ),
            before=boundary.before,
            after=boundary.after,
            symbols=boundary.symbols,
            bytes=boundary.bytes,
            modelled_seconds=boundary.seconds,
        )
        for graph in manifest.graphs
        for boundary in graph.boundaries
    )


def _totals(transfers: Iterable[Transfer]) -> tuple[TransferTotal, ...]:
    """Add transfers up, in an order that does not depend on the schedule."""
    directions = list(Direction)
    return tuple(
        sorted(
            total_transfers(transfers),
            key=lambda total: (CAUSE_ORDER.index(total.cause), directions.index(total.direction)),
        )
    )


def _undocumented_support(experimental: dict[str, int]) -> tuple[UndocumentedSupport, ...]:
    """Split ``operator: evidence``, the operator with most nodes first."""
    rows = []
    for key, nodes in experimental.items():
        # From the right: the domain of an operator has colons, too.
        operator, _, evidence = key.rpartition(": ")
        rows.append(UndocumentedSupport(operator or key, evidence if operator else "", nodes))
    return tuple(sorted(rows, key=lambda row: (-row.nodes, row.operator)))


def _graphs(manifest: Manifest) -> tuple[GraphReport, ...]:
    """Return interface, schedule and plan of every graph."""
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    stages = manifest.stages()
    return tuple(_graph(graph, symbols, stages) for graph in manifest.graphs)


def _graph(
    graph: Graph, symbols: dict[str, Symbol], stages: dict[int, Section | Fallback]
) -> GraphReport:
    """Return interface, schedule and plan of one graph."""
    schedule = []
    for call in graph.calls:
        stage = stages[call.stage]
        home = "rdu" if isinstance(stage, Section) else "cpu"
        schedule.append(CallReport(call.id, stage.id, stage.name, home, stage.type))
    return GraphReport(
        name=graph.name,
        inputs=tuple(_value(symbols[name]) for name in graph.inputs),
        outputs=tuple(_value(symbols[name]) for name in graph.outputs),
        schedule=tuple(schedule),
        load_transfers=graph.load_transfers,
        run_transfers=graph.run_transfers,
        model_names=graph.model_names,
        spatial_batches=graph.spatial_batches,
    )


def _value(symbol: Symbol) -> ValueReport:
    """Return what the report says about a graph input or output."""
    return ValueReport(symbol.name, symbol.type, symbol.shape, symbol.bytes)
