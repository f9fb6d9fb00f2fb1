"""The report on a converted model, built from nothing but the manifest of its PEF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from samba_onnx.facts.precisions import describe_precision
from samba_onnx.facts.roundings import describe_rounding
from samba_onnx.pef.changes import Bound
from samba_onnx.pef.dimensions import BoundDimension, DynamicDimension
from samba_onnx.pef.hints import describe_hints
from samba_onnx.pef.manifest import (
    Argin,
    Direction,
    Fallback,
    FallbackNode,
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
from samba_onnx.report.fitting import FitReport
from samba_onnx.report.fusion import FusionReport, fusion
from samba_onnx.report.headline import headline_text
from samba_onnx.report.layout import CAUSE_ORDER
from samba_onnx.report.limit_report import LimitReport
from samba_onnx.report.memory_timeline import GraphMemoryReport, memory_timelines
from samba_onnx.report.parallel import ParallelReport, parallel
from samba_onnx.report.report_records import (
    SCHEMA_VERSION,
    BoundaryReport,
    CallReport,
    Coverage,
    FallbackNodeReport,
    FallbackReport,
    FixedInputReport,
    GraphReport,
    MemoryReport,
    OperatorCoverage,
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
    parallel: ParallelReport | None = None
    """How it was cut for several RDUs; null for one. All other sizes and times are those of one RDU."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Report:
        """Build the report.

        Args:
            manifest: What ``analyze`` returns, or ``pef.manifest`` of a PEF.

        Returns:
            The report; it needs neither the model nor the PEF any more.
        """
        coverage = _coverage(manifest)
        per_run = _totals(copy for graph in run_graphs(manifest) for copy in graph.run_transfers)
        at_load = _totals(copy for graph in manifest.graphs for copy in graph.load_transfers)
        return cls(
            headline=headline_text(manifest, coverage, per_run),
            model=manifest.source,
            target=manifest.target.name,
            level=manifest.level,
            coverage=coverage,
            fallbacks=_fallbacks(manifest.fallbacks),
            boundaries=_boundaries(manifest),
            sections=section_reports(manifest),
            memory=memory(manifest),
            transfers_per_run=per_run,
            transfers_at_load=at_load,
            modelled_time=modelled_time(manifest, run_graphs(manifest), at_load),
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
            fusion=fusion(manifest),
            fixed_inputs=fixed_inputs(manifest),
        )

    def to_json(self) -> str:
        """Return the report as a JSON document in the form of ``docs/report.schema.json``."""
        from samba_onnx.report.documents import to_json

        return to_json(self)

    def __rich__(self) -> RenderableType:
        """Return what ``rich.print(report)`` shows: the summary."""
        # Here, not above: the blocks of a terminal are of reports, and import this module.
        from samba_onnx.report.terminal import summary

        return summary(self)


_SHAPE_CODES = frozenset({"dynamic_shape", "unknown_rank", "unknown_type"})


def _notes(manifest: Manifest) -> tuple[str, ...]:
    hints = describe_hints(manifest.metadata)
    precision = describe_precision(manifest.metadata)
    rounding = describe_rounding(manifest.metadata)
    return (*precision, *rounding, *manifest.notes, *spatial_notes(manifest), *hints)


def _assumptions(manifest: Manifest) -> tuple[Assumption, ...]:
    host = manifest.host.assumptions if manifest.host else ()
    return (*manifest.target.assumptions, *host)


def _coverage(manifest: Manifest) -> Coverage:
    """Count nodes and operations on either side."""
    rdu_nodes, cpu_nodes = _by_operator(manifest.sections), _by_operator(manifest.fallbacks)
    rdu_flops, cpu_flops = _operator_flops(manifest.sections), _operator_flops(manifest.fallbacks)
    operators = [
        OperatorCoverage(name, rdu_nodes[name], cpu_nodes[name], rdu_flops[name], cpu_flops[name])
        for name in rdu_nodes | cpu_nodes
    ]
    # What is left on the CPU first, then what does most of the work: rows that a table cuts off matter
    # least.
    operators.sort(
        key=lambda row: (
            -row.cpu_nodes,
            -(row.rdu_flops + row.cpu_flops),
            -row.rdu_nodes,
            row.operator,
        )
    )
    on_cpu = [node for fallback in manifest.fallbacks for node in fallback.reasons]
    return Coverage(
        rdu_nodes=rdu_nodes.total(),
        cpu_nodes=cpu_nodes.total(),
        rdu_flops=sum(section.flops for section in manifest.sections),
        cpu_flops=cpu_flops.total(),
        cpu_places=len(manifest.fallbacks),
        cpu_supported_nodes=sum(node.supported for node in on_cpu),
        cpu_load_nodes=sum(node.at_load for node in on_cpu),
        operators=tuple(operators),
    )


def _by_operator(stages: Iterable[Section | Fallback]) -> Counter[str]:
    """Return the number of nodes of each operator."""
    nodes: Counter[str] = Counter()
    for stage in stages:
        nodes.update(stage.operators)
    return nodes


def _operator_flops(stages: Iterable[Section | Fallback]) -> Counter[str]:
    """Return the floating-point operations of each operator."""
    flops: Counter[str] = Counter()
    for stage in stages:
        flops.update(stage.operator_flops)
    return flops


def _fallbacks(fallbacks: Iterable[Fallback]) -> tuple[FallbackReport, ...]:
    """Group CPU nodes by reason, the reason with most nodes first."""
    groups: dict[tuple[str, ...], list[FallbackNodeReport]] = {}
    for fallback in fallbacks:
        for node in fallback.reasons:
            operator = _operator(node)
            line = FallbackNodeReport(
                name=node.name,
                operator=operator,
                reason=node.reason,
                stage=fallback.id,
                location=node.location,
                supported=node.supported,
                at_load=node.at_load,
            )
            # What is wrong with a model's shapes is wrong with many operators at once.
            kind = "" if node.code in _SHAPE_CODES else operator
            groups.setdefault((node.code, node.hint, kind), []).append(line)
    reports = [
        FallbackReport(
            code=code,
            reasons=tuple(dict.fromkeys(node.reason for node in nodes)),
            hint=hint,
            operators=dict(Counter(node.operator for node in nodes).most_common()),
            nodes=tuple(nodes),
        )
        for (code, hint, _), nodes in groups.items()
    ]
    return tuple(sorted(reports, key=lambda report: -len(report.nodes)))


def _operator(node: FallbackNode) -> str:
    """Return the operator with its domain, as in ``Stage.operators``."""
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


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
