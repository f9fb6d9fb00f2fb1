"""From programs, whatever front end made them, to the plan and the records of a PEF."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import onnx_ir as ir

from samba_onnx.compiling.manifests import argin_records, graph_records, with_demands, with_nodes
from samba_onnx.compiling.packaging import PlannedGraph
from samba_onnx.compiling.parallel import ProgramCutter
from samba_onnx.compiling.savings import graph_changes
from samba_onnx.compiling.sizes import SharedWeights, size_name, with_own_names
from samba_onnx.facts.defaults import DEFAULT_LEVEL, DEFAULT_PLACEMENT
from samba_onnx.passes.order import PipelineOptions
from samba_onnx.passes.pipeline import PipelineResult, run_pipeline
from samba_onnx.passes.planning.constant_hints import with_constant_hints
from samba_onnx.passes.planning.fusion.patterns import NO_RULES, FusionRules
from samba_onnx.passes.planning.islands import demote_islands
from samba_onnx.passes.planning.joining import JoinedProgram, PlacedPart, join
from samba_onnx.passes.planning.legalising import LegalisationOptions, PlannedChooser
from samba_onnx.passes.planning.measuring import Measure
from samba_onnx.passes.planning.optimum import Machine, cheapest_placement
from samba_onnx.passes.planning.overwriting import copy_what_is_read_on, overwrite_last
from samba_onnx.passes.planning.partitioning import Group, Home, group, partition
from samba_onnx.passes.planning.placement import place
from samba_onnx.passes.planning.plan import GraphPlan, plan
from samba_onnx.passes.planning.roles import known_at_load
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.planning.sharing import refuse_split_regions
from samba_onnx.passes.sharding.sharded_programs import ParallelOptions
from samba_onnx.passes.targets import Target
from samba_onnx.passes.timing.hosts import load_host
from samba_onnx.passes.watching import PassWatch
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.manifest import Manifest, SourceModel
from samba_onnx.pef.rewrite_records import FusionRuleSummary
from samba_onnx.program.dataflow import Dataflow, name_of
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.program import Part, Program
from samba_onnx.safety.collecting import collections_deferred
from samba_onnx.safety.frames import frames_together

Item = TypeVar("Item")

Progress: TypeAlias = Callable[[str], None]
"""Called with the name of each step before it begins."""


def silent(step: str) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class CompilerSettings:
    """For which device, and how, programs are compiled."""

    target: Target
    level: str = DEFAULT_LEVEL
    options: PipelineOptions = field(default_factory=PipelineOptions)
    progress: Progress = silent
    placement: str = DEFAULT_PLACEMENT
    host: HostSummary = field(default_factory=load_host)
    """The CPU that fallbacks run on."""
    guard: Callable[[ir.Model], PassWatch] | None = None
    """Makes what looks at a model after every pass; None for nobody."""
    legalisation: LegalisationOptions = field(default_factory=LegalisationOptions)
    parallel: ParallelOptions | None = None
    """For how many RDUs; None for one."""
    rules: FusionRules = NO_RULES
    """The rules of fusion of ``o1``."""
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The options that are not at their defaults, as the PEF keeps them."""

    @property
    def machine(self) -> Machine:
        """What graphs are placed on."""
        return Machine(self.target, self.host, self.level, self.rules)


@dataclass(frozen=True)
class PlannedPrograms:
    """Programs after every step but the writing."""

    graphs: tuple[PlannedGraph, ...]
    manifest: Manifest
    """Complete but for what only the written file knows: members and the places of weights."""
    contents: Mapping[str, ir.TensorProtocol] = field(default_factory=lambda: MappingProxyType({}))
    """Whole content of residents of which every RDU has a shard, and which the model gives."""


@frames_together
@collections_deferred()
def plan_programs(
    programs: Sequence[Program], source: SourceModel, settings: CompilerSettings
) -> PlannedPrograms:
    """Rewrite, place, group and plan programs, the graphs of one PEF.

    Args:
        programs: One per graph, each with a name of its own; the models of their parts are consumed.
        source: What reports say of where they come from.
        settings: The device, the level and what the user decides about sizes.

    Returns:
        The plans and the manifest that the PEF will have, with the metadata of the programs.

    Raises:
        UsageError: Programs contradict each other, or options contradict the models.
        OutOfDeviceMemoryError: The programs do not fit into the target's memory.
        InternalError: A pass failed or changed an interface.
    """
    # Over all programs: what one of them changes is constant in none.
    changed = frozenset(region for program in programs for region in program.changed())
    cutter = ProgramCutter(settings.parallel)
    shared = _shared_names(programs)
    results: list[PipelineResult] = []
    legalised: list[PlannedChooser] = []
    graphs: list[PlannedGraph] = []
    for program in programs:
        choosers = [_chooser(program, part, settings, changed) for part in program.parts]
        pairs = zip(program.parts, choosers, strict=True)
        rewritten = [_rewritten(program.name, part, settings, one) for part, one in pairs]
        program = cutter.cut(program, rewritten)
        # What several graphs have must stay where the others look for it.
        pinned = frozenset(_names(program)) & shared
        planned = _planned(
            program, rewritten, choosers, graphs, settings, changed=changed, pinned=pinned
        )
        graphs.append(planned)
        legalised += choosers
        results += rewritten
    return _whole(programs, results, legalised, graphs, source, settings=settings, cutter=cutter)


@frames_together
@collections_deferred()
def plan_sizes(
    load: Callable[[], Program],
    options: Sequence[PipelineOptions],
    source: SourceModel,
    settings: CompilerSettings,
) -> PlannedPrograms:
    """Plan one model for several sizes: a graph for each, which share what they have in common.

    Args:
        load: Returns the model's program, a new one whenever it is called.
        options: The sizes, one entry per graph; the first graph's inputs and outputs keep their names.
        source: What reports say of where it comes from.
        settings: The device and the level; its options are not looked at.

    Returns:
        The plans and the manifest, as :func:`plan_programs`. Weights whose content is the same in
        several graphs are one symbol.

    Raises:
        UsageError: Options contradict the model.
        OutOfDeviceMemoryError: The graphs do not fit into the target's memory.
        ModelFileError: The model's weights cannot be read any more.
        InternalError: A pass failed or changed an interface.
    """
    programs: list[Program] = []
    results: list[PipelineResult] = []
    legalised: list[PlannedChooser] = []
    graphs: list[PlannedGraph] = []
    shared = SharedWeights()
    cutter = ProgramCutter(settings.parallel, sizes=len(options))
    for each in options:
        sized = replace(settings, options=each)
        program = replace(load(), name=size_name(each, options))
        legalised.append(_chooser(program, program.parts[0], sized, frozenset()))
        result = _rewritten(program.name, program.parts[0], sized, legalised[-1])
        names: dict[str, str] = {}
        if graphs:
            taken = {symbol.name for graph in graphs for symbol in graph.plan.symbols}
            program, names = with_own_names(program, taken)
        program = cutter.cut(program, [result])
        known = shared.names(result.model.graph)
        planned = _planned(program, [result], legalised[-1:], graphs, sized, shared=known)
        record = replace(planned.plan.graph, model_names=names)
        planned = replace(planned, plan=replace(planned.plan, graph=record))
        if len(options) > 1:  # content that is computed is read for it
            shared.add(planned.model.graph)
        programs.append(program)
        results.append(result)
        graphs.append(planned)
    return _whole(programs, results, legalised, graphs, source, settings=settings, cutter=cutter)


def _names(program: Program) -> tuple[str, ...]:
    """Return the values that a graph exchanges with the host, and so with other graphs."""
    return (*program.inputs, *program.outputs)


def _shared_names(programs: Sequence[Program]) -> frozenset[str]:
    """Return the names of values that share their place in device memory, or that several graphs have."""
    users: dict[str, list[str]] = {}
    for program in programs:
        for name in dict.fromkeys(_names(program)):
            users.setdefault(program.regions.get(name, name), []).append(name)
    return frozenset(name for names in users.values() if len(names) > 1 for name in names)


def _whole(
    programs: Sequence[Program],
    results: Sequence[PipelineResult],
    choosers: Sequence[PlannedChooser],
    graphs: Sequence[PlannedGraph],
    source: SourceModel,
    settings: CompilerSettings,
    cutter: ProgramCutter,
) -> PlannedPrograms:
    """Put the graphs of a PEF together."""
    plans = [graph.plan for graph in graphs]
    refuse_split_regions(programs, plans)
    manifest = replace(
        graph_records(settings.target, settings.host, settings.level, source, plans, cutter.record),
        passes=tuple(summary for result in results for summary in result.passes),
        fusion_rules=tuple(
            FusionRuleSummary(rule.name, rule.source, float(rule.priority), rule.heuristic)
            for rule in settings.rules.rules
        ),
        legalised=tuple(record for chooser in choosers for record in chooser.records),
        changes=tuple(change for graph in graphs for change in graph.changes),
        bounds=tuple(graph.bound for graph in graphs if graph.bound is not None),
        dynamic_dimensions=_each_once(result.dynamic_dimensions for result in results),
        bound_dimensions=tuple(bound for result in results for bound in result.bound_dimensions),
        notes=(
            *_each_once(result.notes for result in results),
            *settings.rules.notes,
            *(note for planned in plans for note in planned.notes),
            *(note for program in programs for note in program.notes),
            *cutter.notes(),
        ),
        argins=argin_records(programs, plans),
        options=dict(settings.texts),
        metadata={
            key: text
            for each in (*(result.metadata for result in results), *(p.metadata for p in programs))
            for key, text in each.items()
        },
    )
    return PlannedPrograms(
        tuple(graphs), with_nodes(with_demands(manifest, programs), plans), cutter.contents
    )


def _chooser(
    program: Program, part: Part, settings: CompilerSettings, changed: frozenset[str]
) -> PlannedChooser:
    """Return what decides which nodes of a part are written with other operators."""
    ends = {name_of(value) for value in (*part.model.graph.inputs, *part.model.graph.outputs)}
    exchanged = {*program.inputs, *program.outputs, *(argin.name for argin in program.argins)}
    # What one part leaves for a later one is on the device, as residents are.
    passed = dict.fromkeys(ends - exchanged, SymbolKind.ACTIVATION)
    return PlannedChooser(
        settings.machine,
        settings.legalisation,
        graph=program.name,
        resident={**passed, **program.residents},
        regions=program.regions,
        changed=changed,
    )


def _rewritten(
    graph: str, part: Part, settings: CompilerSettings, chooser: PlannedChooser
) -> PipelineResult:
    settings.progress(f"rewrite {part.type.value}")
    return run_pipeline(
        part.model,
        settings.target,
        replace(settings.options, keep_linears=settings.rules.name_parallel_linears()),
        graph=graph,
        chooser=chooser,
        progress=settings.progress,
        watch=settings.guard(part.model) if settings.guard else None,
    )


def _planned(
    program: Program,
    rewritten: Sequence[PipelineResult],
    choosers: Sequence[PlannedChooser],
    earlier: Sequence[PlannedGraph],
    settings: CompilerSettings,
    *,
    changed: frozenset[str] = frozenset(),
    shared: Mapping[ir.Value, str] = MappingProxyType({}),
    pinned: frozenset[str] = frozenset(),
) -> PlannedGraph:
    """Place, group and join the rewritten parts of a program, and plan the whole."""
    settings.progress("place")
    for _, result in (pairs := list(zip(program.parts, rewritten, strict=True))):
        copy_what_is_read_on(result.model.graph, program.regions)
    nodes = [(part.type, tuple(result.model.graph)) for part, result in pairs]
    placed = [_placed(part, result.model, settings) for part, result in pairs]
    # Values, not names: joining may give those that clash another name.
    weights = [
        result.model.graph.initializers[name]
        for part, result in pairs
        if part.has_weights
        for name in result.weight_names
        if name in result.model.graph.initializers  # others are residents by now, in shards
    ]
    settings.progress("plan")
    taken = {symbol.name for graph in earlier for symbol in graph.plan.symbols}
    joined = join(program, placed, taken, changed, shared)

    def planned(whole: JoinedProgram) -> GraphPlan:
        return plan(
            whole.model,
            overwrite_last(whole.groups, whole.roles),
            settings.target,
            graph_name=program.name,
            weight_names=frozenset(value.name or "" for value in weights),
            placement=whole.placement,
            roles=whole.roles,
            first_stage=sum(len(graph.plan.stages) for graph in earlier),
            earlier=[graph.plan for graph in earlier],
            host=settings.host,
        )

    chosen, optimal = planned(joined), settings.placement == "optimal"
    proposal = _cheapest(joined, nodes, settings, pinned) if optimal else None
    if proposal is not None:
        chosen = _better(chosen, planned(proposal))
    graph = PlannedGraph(joined.model, chosen)
    return _with_changes(graph, joined, choosers, settings, pinned) if chosen.fallbacks else graph


def _with_changes(
    graph: PlannedGraph,
    joined: JoinedProgram,
    choosers: Sequence[PlannedChooser],
    settings: CompilerSettings,
    pinned: frozenset[str],
) -> PlannedGraph:
    """Say of a graph with fallbacks what each of their reasons costs."""
    settings.progress("compare")
    savings, bound = graph_changes(
        graph.plan.graph.name,
        joined,
        settings.machine,
        [record for chooser in choosers for record in chooser.records],
        settings.legalisation,
        pinned,
        optimal=settings.placement == "optimal",
    )
    return replace(graph, changes=savings, bound=bound)


def _cheapest(
    joined: JoinedProgram,
    parts: Sequence[tuple[SectionType, tuple[ir.Node, ...]]],
    settings: CompilerSettings,
    pinned: frozenset[str],
) -> JoinedProgram | None:
    """Return the program with the placement that a cut proposes, None where it proposes nothing else."""
    graph, roles = joined.model.graph, joined.roles
    placement = cheapest_placement(graph, joined.placement, roles, settings.machine, pinned)
    if placement is None:
        return None
    at_load = known_at_load(graph, roles)
    groups: list[Group] = []
    for kind, nodes in parts:
        homes = [Home.RDU if placement.on_rdu(node) else Home.CPU for node in nodes]
        # Other nodes are neighbours now, so groups and sections are cut anew.
        whole = group(Dataflow.of(nodes), homes, at_load)
        pieces = cut(whole, settings.target, settings.level, settings.rules)
        groups += [replace(piece, type=kind) for piece in pieces]
    return replace(joined, groups=tuple(groups), placement=placement)


def _better(strict: GraphPlan, other: GraphPlan) -> GraphPlan:
    """Return the plan with which a run takes less modelled time, if it has no fallback more."""
    before, after = (Measure(0, 0, each.seconds, len(each.fallbacks)) for each in (strict, other))
    return other if after.is_preferred(before) else strict


def _placed(part: Part, model: ir.Model, settings: CompilerSettings) -> PlacedPart:
    """Give every node its home, and cut the groups of the RDU into sections."""
    how = (settings.target, settings.level, settings.rules)
    hinted = with_constant_hints(part, place(model, settings.target))
    # Nodes that compute for the CPU alone would cost more copies than they have operations.
    placement = demote_islands(model, hinted, *how)
    return PlacedPart(part.type, model, cut(partition(model, placement), *how), placement)


def _each_once(groups: Iterable[Iterable[Item]]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))
