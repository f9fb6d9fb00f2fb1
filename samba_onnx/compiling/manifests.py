"""The records of a whole PEF, put together from the plans of its graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from samba_onnx.errors import UsageError
from samba_onnx.passes.planning.plan import GraphPlan
from samba_onnx.passes.targets import Target
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.manifest import Argin, Manifest, Producer, SourceModel, Symbol
from samba_onnx.pef.sharding import Parallelism
from samba_onnx.pef.stage_graphs import StageGraphs
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Program
from samba_onnx.version import __version__

__all__ = ["argin_records", "graph_records", "with_demands", "with_nodes"]


def argin_records(programs: Sequence[Program], plans: Sequence[GraphPlan]) -> tuple[Argin, ...]:
    """Return the argins that graphs have as inputs, each with the stages that read it.

    Args:
        programs: The graphs' programs, with what they say of argins.
        plans: Their plans.
    """
    specs = {argin.name: argin for program in programs for argin in program.argins}
    stages = [stage for planned in plans for stage in (*planned.sections, *planned.fallbacks)]
    inputs = {name for planned in plans for name in planned.graph.inputs}
    readers: dict[str, set[int]] = {name: set() for name in specs}
    for stage in stages:
        for name in specs.keys() & stage.inputs:
            readers[name].add(stage.id)
    return tuple(
        Argin(name, spec.type, spec.default, tuple(sorted(readers[name])))
        for name, spec in specs.items()
        if name in inputs
    )


def with_demands(manifest: Manifest, programs: Sequence[Program]) -> Manifest:
    """Return a manifest whose graphs demand of their inputs what the programs do.

    Args:
        manifest: Has a graph of the name of each program.
        programs: What was compiled.
    """
    demands = {program.name: program.index_demands for program in programs}
    # Parts are places of the whole input, as one batch has it: a shard, or several batches in one
    # input, have others. What is demanded of all numbers holds there, too.
    cut = {symbol.name for symbol in manifest.symbols if symbol.sharded or symbol.batch_shape}
    graphs = (
        replace(
            graph,
            index_demands=tuple(
                one
                for one in demands.get(graph.name, ())
                if one.input in graph.inputs and not (one.part and one.input in cut)
            ),
        )
        for graph in manifest.graphs
    )
    return replace(manifest, graphs=tuple(graphs))


def with_nodes(manifest: Manifest, plans: Sequence[GraphPlan]) -> Manifest:
    """Return a manifest that gives the nodes of its stages, too.

    Args:
        manifest: The records of the plans.
        plans: The graphs, with the nodes of each stage.
    """
    nodes = {stage: group.nodes for planned in plans for stage, group in planned.stages}
    return replace(manifest, stage_graphs=StageGraphs(nodes.__getitem__))


def graph_records(
    target: Target,
    host: HostSummary,
    level: str,
    source: SourceModel,
    plans: Sequence[GraphPlan],
    parallel: Parallelism | None = None,
) -> Manifest:
    """Return the records of graphs; a symbol that several have is there once.

    Args:
        target: The device.
        host: The CPU that fallbacks run on.
        level: ``o0`` or ``o3``.
        source: What reports say of where the programs come from.
        plans: The graphs.
        parallel: How the programs were cut for several RDUs; None for one.

    Raises:
        UsageError: Two graphs have different tensors of one name.
    """
    experimental: Counter[str] = Counter()
    for planned in plans:
        experimental.update(planned.experimental)
    sections = tuple(section for planned in plans for section in planned.sections)
    # Replicas of a program that trains talk to each other, too.
    meets_others = parallel or any(section.type is SectionType.BCKWD for section in sections)
    return Manifest(
        producer=Producer("samba-onnx", __version__),
        target=target.summary if meets_others else target.summary.alone(),
        source=source,
        level=level,
        graphs=tuple(planned.graph for planned in plans),
        sections=sections,
        fallbacks=tuple(fallback for planned in plans for fallback in planned.fallbacks),
        symbols=_symbols(plans),
        regions=tuple(region for planned in plans for region in planned.regions),
        experimental=dict(sorted(experimental.items())),
        host=host if any(planned.fallbacks for planned in plans) else None,
        parallel=parallel,
    )


def _symbols(plans: Sequence[GraphPlan]) -> tuple[Symbol, ...]:
    symbols: dict[str, Symbol] = {}
    for planned in plans:
        for symbol in planned.symbols:
            first = symbols.setdefault(symbol.name, symbol)
            if (first.type, first.shape) != (symbol.type, symbol.shape):
                raise UsageError(
                    f"two graphs have a tensor {symbol.name!r}, of {first.type} "
                    f"{list(first.shape or ())} and of {symbol.type} {list(symbol.shape or ())}; "
                    "give one of them another name"
                )
            # Graphs of several sizes share weights, of which each may ask something else.
            symbols[symbol.name] = replace(
                first,
                region=first.region or symbol.region,
                baked=first.baked and symbol.baked,
            )
    return tuple(symbols.values())
