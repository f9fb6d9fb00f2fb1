"""States everything that a run of a graph will do, before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from samba_onnx.errors import InternalError, UsageError
from samba_onnx.facts.domains import qualified
from samba_onnx.passes.planning.allocation import allocate
from samba_onnx.passes.planning.overlays import overlaid
from samba_onnx.passes.planning.partitioning import Group
from samba_onnx.passes.planning.records import (
    fallback_record,
    section_record,
    section_traffic,
    stage_record,
    symbol_record,
)
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.planning.scheduling import (
    boundaries,
    fixed_bytes,
    load_transfers,
    run_transfers,
    schedule,
)
from samba_onnx.passes.planning.spatial_mapping import refuse_unless_on_chip, refuse_unless_spatial
from samba_onnx.passes.planning.stages import StageInterface, baked, interfaces, on_device
from samba_onnx.passes.timing.hosts import load_host
from samba_onnx.passes.timing.launches import SectionDraft, in_programs
from samba_onnx.passes.timing.schedule_time import places, schedule_time
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.manifest import (
    Call,
    Cause,
    Fallback,
    Graph,
    Region,
    Section,
    Stage,
    Symbol,
)
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.dataflow import is_weight, name_of
from samba_onnx.program.kinds import RESIDENT_KINDS, SymbolKind
from samba_onnx.program.scopes import stage_name, unique

if TYPE_CHECKING:
    from samba_onnx.passes.planning.placement import Placement
    from samba_onnx.passes.targets import Target


@dataclass(frozen=True)
class GraphPlan:
    """What a manifest says about one graph, but for members and offsets of stored weights."""

    graph: Graph
    sections: tuple[Section, ...]
    fallbacks: tuple[Fallback, ...]
    symbols: tuple[Symbol, ...]
    """Graph inputs, weights and constants, then what stages write, each once."""
    regions: tuple[Region, ...]
    """Regions that earlier graphs do not have already."""
    stages: tuple[tuple[int, Group], ...]
    """Stage id and nodes, in the order in which they run."""
    experimental: dict[str, int]
    """Nodes on the RDU whose support is not fully documented, by ``operator: evidence``."""
    notes: tuple[str, ...]
    """Sentences for the report."""
    target: TargetSummary
    """The device's figures."""

    @property
    def seconds(self) -> float:
        """Modelled time of one run: all calls of sections and fallbacks, and all transfers.

        In spatial mapping without what stays on the chip, which is the same in all plans of a graph.
        """
        stages: dict[int, Section | Fallback] = {stage.id: stage for stage in self.sections}
        stages |= {stage.id: stage for stage in self.fallbacks}
        return schedule_time(self.graph, stages, self.target, places(self.symbols)).total


def plan(
    model: ir.Model,
    groups: Sequence[Group],
    target: Target,
    *,
    graph_name: str,
    weight_names: Collection[str],
    placement: Placement,
    roles: Roles | None = None,
    first_stage: int = 0,
    earlier: Sequence[GraphPlan] = (),
    host: HostSummary | None = None,
) -> GraphPlan:
    """Return the plan of a graph: stages, calls, symbols, regions and every transfer.

    Args:
        model: A model whose main graph has unique names for all its values.
        groups: The graph's nodes in groups, sections already cut.
        target: The device.
        graph_name: Name of the graph in the PEF.
        weight_names: Initializers that hold the user's weights; the others are constants.
        placement: The reason of every node on the CPU, and the support of the others.
        roles: What its inputs and outputs are to the device; None when all of them are exchanged in
            every run.
        first_stage: Id of the first stage; stages of all graphs of a PEF are counted together.
        earlier: Plans of graphs of the same PEF. A value in a region of theirs shares it, and what
            they load is not loaded again.
        host: The CPU that fallbacks run on; the default profile where None.

    Returns:
        The plan. The transfers are exactly those that the emulator's ledger will hold after
        loading and after one run with all inputs and all outputs.

    Raises:
        OutOfDeviceMemoryError: The device has no room for what must be kept in its memory, or not on
            the chip for all sections at once where they are mapped spatially.
        UsageError: Two values of different sizes are to share a region, or a graph that is mapped
            spatially has operators on the CPU, or inputs or outputs that hold no mini-batches.
        InternalError: Two values share a name, or the RDU would need a value of unknown size.
    """
    stages = interfaces(model.graph, groups, target)
    _check_names(model.graph, stages)
    roles = roles or Roles.of(model.graph)
    if roles.spatial_batches:
        refuse_unless_spatial(roles, stages, placement)
    settled = _settled(graph_name, target, stages, roles, weight_names, earlier)
    return settled.plan(first_stage, placement, host or load_host())


@dataclass(frozen=True)
class _SettledGraph:
    """A graph of which it is settled what its values are to the device, and where each of them is."""

    name: str
    target: Target
    stages: Sequence[StageInterface]
    roles: Roles
    kinds: Mapping[ir.Value, SymbolKind]
    regions: tuple[Region, ...]
    region_of: Mapping[str, Region]
    earlier: Sequence[GraphPlan]

    def plan(self, first_stage: int, placement: Placement, host: HostSummary) -> GraphPlan:
        """Return the plan."""
        calls = schedule(first_stage, len(self.stages))
        names = _stage_names(self.stages, self.earlier)
        records = [
            (stage_record(stage, call.stage, name, self.name), stage)
            for call, stage, name in zip(calls, self.stages, names, strict=True)
        ]
        sections = self._sections(records)
        constant = baked(self.stages)
        return GraphPlan(
            graph=self._graph_record(calls),
            sections=sections,
            fallbacks=_fallbacks(records, placement, self.roles, host),
            symbols=tuple(
                symbol_record(
                    value, kind, self.region_of, baked=value in constant, roles=self.roles
                )
                for value, kind in self.kinds.items()
            ),
            regions=self.regions,
            stages=tuple((record.id, stage.group) for record, stage in records),
            experimental=_experimental(self.stages, placement),
            notes=_notes(sections, self.target),
            target=self.target.summary,
        )

    def _sections(self, records: Sequence[tuple[Stage, StageInterface]]) -> tuple[Section, ...]:
        """Return the records of the stages that run on the RDU, in the order of the schedule."""
        drafts: list[SectionDraft] = []
        for place, (record, stage) in enumerate(records):
            if stage.on_rdu:
                traffic = section_traffic(stage, self.region_of, self.roles)
                section = section_record(record, stage, self.target, traffic)
                drafts.append(SectionDraft(place, section, stage.group.nodes, traffic))
        sections = in_programs(drafts, len(records), self.target.summary)
        if self.roles.spatial_batches:
            # By region: a weight and its update are one place.
            stays = {
                self.region_of[name_of(value)]
                for value in on_device(self.roles, self.stages)
                if self.kinds.get(value) in RESIDENT_KINDS
            }
            size = sum(region.bytes for region in stays)
            refuse_unless_on_chip(sections, size, self.target.summary)
        return sections

    def _graph_record(self, calls: tuple[Call, ...]) -> Graph:
        """Return the graph's interface, schedule and transfers."""
        target, roles, stages = self.target.summary, self.roles, self.stages
        transfers = run_transfers(roles, stages, target)
        present = {t.symbol for previous in self.earlier for t in previous.graph.load_transfers}
        weights = {v: Cause(self.kinds[v].value) for stage in stages for v in stage.loaded}
        # Residents are loaded, too, whether or not a section of this graph reads them.
        weights |= dict.fromkeys(roles.loaded(), Cause.WEIGHT)
        return Graph(
            name=self.name,
            inputs=tuple(name_of(value) for value in roles.inputs),
            outputs=tuple(name_of(value) for value in roles.outputs),
            calls=calls,
            load_transfers=load_transfers(
                [(v, cause) for v, cause in weights.items() if v.name not in present], target
            ),
            run_transfers=transfers,
            boundaries=boundaries(stages, calls, transfers),
            spatial_batches=roles.spatial_batches,
        )


def _settled(
    name: str,
    target: Target,
    stages: Sequence[StageInterface],
    roles: Roles,
    weight_names: Collection[str],
    earlier: Sequence[GraphPlan],
) -> _SettledGraph:
    """Settle what the values of a graph are to the device, and where each of them is."""
    kinds = _kinds(roles, stages, weight_names)
    shared = {region.name: region for previous in earlier for region in previous.regions}
    # Before regions get their places: which values take turns in one decides how much memory all of them
    # take.
    roles = overlaid(roles, stages, kinds, target.summary, shared.values())
    regions = _regions(roles, stages, target, shared)
    by_region = {**shared, **{region.name: region for region in regions}}
    return _SettledGraph(
        name=name,
        target=target,
        stages=stages,
        roles=roles,
        kinds=kinds,
        regions=regions,
        region_of={name_of(v): by_region[roles.region(v)] for v in on_device(roles, stages)},
        earlier=earlier,
    )


def _fallbacks(
    records: Sequence[tuple[Stage, StageInterface]],
    placement: Placement,
    roles: Roles,
    host: HostSummary,
) -> tuple[Fallback, ...]:
    """Return the records of the stages that run on the CPU, in the order of the schedule."""
    return tuple(
        fallback_record(record, stage, placement, roles, host)
        for record, stage in records
        if not stage.on_rdu
    )


def _stage_names(stages: Sequence[StageInterface], earlier: Sequence[GraphPlan]) -> tuple[str, ...]:
    # Names are told apart in the whole PEF: logs and reports show them without their graph.
    taken = [stage.name for plan in earlier for stage in (*plan.sections, *plan.fallbacks)]
    names = [stage_name(stage.group.nodes, stage.group.rule) for stage in stages]
    return unique([*taken, *names])[len(taken) :]


def _check_names(graph: ir.Graph, stages: Sequence[StageInterface]) -> None:
    """Refuse a graph in which a name means two values: symbols are told apart by name."""
    values = dict.fromkeys([*graph.inputs, *graph.outputs])
    for stage in stages:
        values.update(dict.fromkeys([*stage.inputs, *stage.weights, *stage.outputs]))
    named: dict[str, ir.Value] = {}
    for value in values:
        if not value.name or named.setdefault(value.name, value) is not value:
            raise InternalError(
                f"the name {value.name!r} does not tell one value of the graph: please report this"
            )


def _kinds(
    roles: Roles, stages: Sequence[StageInterface], weight_names: Collection[str]
) -> dict[ir.Value, SymbolKind]:
    """Return the values that are symbols, in their order in the manifest, with their kind."""
    kinds = {**dict.fromkeys(roles.inputs, SymbolKind.INPUT), **roles.residents}
    outputs = set(roles.outputs)
    weights = [value for stage in stages for value in stage.weights]
    for value in [*weights, *(value for value in roles.outputs if is_weight(value))]:
        is_user_weight = value.name in weight_names
        kinds[value] = SymbolKind.WEIGHT if is_user_weight else SymbolKind.CONSTANT
    for stage in stages:
        for value in stage.outputs:
            kind = SymbolKind.OUTPUT if value in outputs else SymbolKind.ACTIVATION
            # A resident that a stage writes stays what the program says it is.
            kinds.setdefault(value, kind)
    return kinds


def _regions(
    roles: Roles, stages: Sequence[StageInterface], target: Target, shared: Mapping[str, Region]
) -> tuple[Region, ...]:
    """Return new regions for the values on the device."""
    sizes = {name: region.bytes for name, region in shared.items()}
    for value in on_device(roles, stages):
        name, size = roles.region(value), fixed_bytes(value) * roles.copies(value)
        # Also against regions of earlier graphs: these have their size already.
        if sizes.setdefault(name, size) != size:
            raise UsageError(
                f"tensor {value.name!r} of {size:,} bytes is to share region {name!r} with one of "
                f"{sizes[name]:,} bytes; give tensors of different sizes different names and regions"
            )
    written = frozenset(
        roles.region(value)
        for stage in stages
        for value in stage.outputs
        if stage.on_rdu or value in roles.residents
    )
    new = {name: size for name, size in sizes.items() if name not in shared}
    return allocate(new, written, target.summary, tuple(shared.values()))


def _experimental(stages: Sequence[StageInterface], placement: Placement) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for stage in stages:
        for node in stage.group.nodes if stage.on_rdu else ():
            support = placement.supports[node]
            evidence = support.evidence
            # A documented operator is worth a remark only where the document itself calls it experimental.
            if evidence == "documented":
                evidence = "experimental" if support.experimental else None
            if evidence is not None:
                counts[f"{qualified(node.domain, node.op_type)}: {evidence}"] += 1
    return dict(sorted(counts.items()))


def _notes(sections: Sequence[Section], target: Target) -> tuple[str, ...]:
    capacity = target.summary.tier("sram").bytes
    return tuple(
        f"section {section.id} ({section.name}) needs {section.sram_bytes:,} bytes of on-chip "
        f"memory, more than the {capacity:,} of {target.summary.name}: its operands are streamed "
        "from off-chip memory"
        for section in sections
        if section.sram_bytes > capacity
    )
