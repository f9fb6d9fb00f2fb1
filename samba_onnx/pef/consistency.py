"""Whether a manifest's records agree with each other; every disagreement is refused.

The reader applies this to what it read and the writer to what it is about to write, so that both
mean the same by a valid PEF.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from samba_onnx.errors import PefFormatError, UsageError
from samba_onnx.facts.dtypes import tensor_element, type_problem
from samba_onnx.pef.batch_checks import check_batches
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.pef.layout import stage_member
from samba_onnx.pef.manifest import (
    Fallback,
    Graph,
    Manifest,
    Region,
    Section,
    Symbol,
)
from samba_onnx.pef.packing import packed_bytes
from samba_onnx.pef.schedule_checks import check_boundaries, check_schedule, check_transfers
from samba_onnx.pef.sharding_checks import sharding_problem
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.pef.weights import TensorLayout, lay_out_tensors, shape_is_fixed
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.safety.files import printable

__all__ = ["check_manifest", "weights_layout"]

_DIGEST = re.compile("[0-9a-f]{64}")
_MOST_RUNS = 100
"""Runs of a reference sample; more than that would be no sample, but an attempt to waste time."""


@dataclass(frozen=True)
class _Index:
    """The records by name."""

    graphs: dict[str, Graph]
    stages: dict[int, Section | Fallback]
    symbols: dict[str, Symbol]
    regions: dict[str, Region]


def check_manifest(manifest: Manifest) -> None:
    """Check all that the records say about each other.

    Args:
        manifest: What to check; ``members`` and the content of stages are checked elsewhere.

    Raises:
        PefFormatError: Two records contradict each other, a name is missing or used twice, or a
            figure is impossible.
    """
    # An index first: all later checks may then take names to be unique and to lead somewhere.
    index = _index(manifest)
    _check_target(manifest.target)
    _check_host(manifest.host)
    _check_regions(manifest)
    for symbol in manifest.symbols:
        _check_symbol(symbol, index)
    for stage in index.stages.values():
        _check_stage(stage, index)
    problem = sharding_problem(manifest)
    if problem:
        _refuse(problem)
    _check_argins(manifest, index)
    residents = manifest.residents()
    filled = _filled_residents(manifest, residents, index)
    argins = {argin.name for argin in manifest.argins}
    for graph in manifest.graphs:
        _known("graph", graph.name, "symbol", (*graph.inputs, *graph.outputs), index.symbols)
        _unique(f"input of graph {graph.name}", graph.inputs)
        _check_model_names(graph)
        _check_demands(graph, index)
        check_schedule(graph, index.stages, index.symbols, filled)
        check_transfers(graph, index.stages, index.symbols, residents, argins)
        check_boundaries(graph, index.stages, index.symbols)
    check_batches(manifest)
    _check_reference(manifest, index)
    _check_figures(manifest)
    # Last, since a layout is computed for tensors whose types and sizes were checked above.
    weights_layout(manifest)


def weights_layout(manifest: Manifest) -> TensorLayout:
    """Return the layout that the member of weights must have for the manifest's symbols.

    Symbols with the same range are one tensor, named after the first of them.

    Args:
        manifest: Its symbols; those with a range must have fixed sizes.

    Raises:
        PefFormatError: Ranges overlap, leave holes, or differ from the layout in any other way.
    """
    first: dict[tuple[int, int, str], Symbol] = {}
    for symbol in manifest.symbols:
        if symbol.stored is not None:
            # Tensors without elements take no room, so that several have the same range; their
            # names keep them apart.
            empty = symbol.name if symbol.stored.bytes == 0 else ""
            first.setdefault((symbol.stored.offset, symbol.stored.bytes, empty), symbol)
    tensors = [first[place] for place in sorted(first)]
    try:
        layout = lay_out_tensors([(s.name, s.type, _fixed_shape(s.whole())) for s in tensors])
    except UsageError as error:
        _refuse(str(error))
    laid = {tensor.name: tensor.stored for tensor in layout.tensors}
    for symbol in tensors:
        # A layout follows from names, types and shapes alone. Comparing with it refuses overlaps,
        # holes and any other order in one go.
        if laid[symbol.name] != symbol.stored:
            _refuse(f"weight {symbol.name} is not stored where the layout puts it")
    return layout


def _refuse(problem: str) -> NoReturn:
    # Names are made printable here and not where messages begin: most of them are never sent.
    raise PefFormatError(f"the manifest contradicts itself: {printable(problem, 400)}")


def _unique(what: str, names: Iterable[object]) -> None:
    # Counted in one pass: of a Split there may be ten thousand outputs.
    for name, count in Counter(names).items():
        if count > 1 or name == "":
            _refuse(f"{what} {name!r} " + ("has no name" if name == "" else "occurs twice"))


def _known(
    what: str, name: object, kind: str, names: Iterable[object], known: Iterable[object]
) -> None:
    for item in names:
        if item not in known:
            _refuse(f"{what} {name} names {kind} {item}, which is not there")


def _not_negative(what: str, **figures: float) -> None:
    for name, figure in figures.items():
        # NaN is the codec's to refuse.
        if figure < 0:
            _refuse(f"{what} has {name} {figure}")


def _index(manifest: Manifest) -> _Index:
    stages = (*manifest.sections, *manifest.fallbacks)
    if not manifest.graphs:
        _refuse("there is no graph")
    _unique("graph", (graph.name for graph in manifest.graphs))
    _unique("stage id", (stage.id for stage in stages))
    _unique("stage", (stage.name for stage in stages))
    _unique("symbol", (symbol.name for symbol in manifest.symbols))
    _unique("region", (region.name for region in manifest.regions))
    _unique("tier", (tier.name for tier in manifest.target.tiers))
    _unique("argin", (argin.name for argin in manifest.argins))
    return _Index(
        {graph.name: graph for graph in manifest.graphs},
        manifest.stages(),
        {symbol.name: symbol for symbol in manifest.symbols},
        {region.name: region for region in manifest.regions},
    )


def _check_target(target: TargetSummary) -> None:
    for tier in target.tiers:
        _not_negative(f"tier {tier.name}", bytes=tier.bytes, rate=tier.bytes_per_second)
    _not_negative(
        "the link", rate=target.link_bytes_per_second, latency=target.link_latency_seconds
    )
    for dtype, rate in target.peak_flops.items():
        _not_negative(f"the peak of {dtype}", rate=rate)


def _check_host(host: HostSummary | None) -> None:
    if host is not None:
        rates = {"rate": host.bytes_per_second, "rate of copies": host.copy_bytes_per_second}
        peaks = {f"peak of {dtype}": rate for dtype, rate in host.peak_flops.items()}
        _not_negative("the host", node=host.node_seconds, call=host.call_seconds, **rates, **peaks)


def _check_regions(manifest: Manifest) -> None:
    tiers = {tier.name for tier in manifest.target.tiers}
    for region in manifest.regions:
        _known("region", region.name, "tier", (region.tier,), tiers)
        _not_negative(f"region {region.name}", bytes=region.bytes)


def _fixed_shape(symbol: Symbol) -> tuple[int, ...]:
    shape = symbol.shape or ()
    return tuple(dimension for dimension in shape if isinstance(dimension, int))


def _expected_bytes(symbol: Symbol) -> int | None:
    element = tensor_element(symbol.type)
    # Dynamic sizes and types without elements have no bytes to check.
    if element is None or symbol.shape is None or not shape_is_fixed(symbol.shape):
        return None
    return packed_bytes(element, _fixed_shape(symbol))


def _check_symbol(symbol: Symbol, index: _Index) -> None:
    name = f"symbol {symbol.name}"
    problem = type_problem(symbol.type)
    if problem:
        _refuse(f"{name}: {problem}")
    # A dimension beyond int64 is none that ONNX can express.
    if any(isinstance(d, int) and not 0 <= d < 2**63 for d in symbol.shape or ()):
        _refuse(f"{name} has an impossible dimension")
    expected = _expected_bytes(symbol)
    if symbol.bytes != expected:
        _refuse(f"{name} has {symbol.bytes} bytes, its type and shape make {expected}")
    if symbol.region:
        _known("symbol", symbol.name, "region", (symbol.region,), index.regions)
        room = index.regions[symbol.region].bytes
        # A region without a size that is known could not be reserved.
        if expected is None or expected > room:
            _refuse(f"{name} of {expected} bytes does not fit its region of {room} bytes")
    # The file holds the value whole, also where each RDU gets a shard.
    whole = _expected_bytes(symbol.whole())
    if symbol.stored and symbol.stored.bytes != whole:
        _refuse(f"{name} of {whole} bytes is stored in {symbol.stored.bytes}")


def _check_demands(graph: Graph, index: _Index) -> None:
    """Refuse demands of what is no input of a graph, and of parts that it cannot have."""
    _known(
        "graph",
        graph.name,
        "input",
        (index_demand.input for index_demand in graph.index_demands),
        graph.inputs,
    )
    for demand in graph.index_demands:
        symbol, name = index.symbols[demand.input], f"graph {graph.name}"
        shape, element = symbol.whole_shape, tensor_element(symbol.type)
        if element is None or element.numpy is None or element.numpy.kind not in "iu":
            _refuse(f"{name} demands indices of {demand.input}, which is {symbol.type}")
        if demand.lowest > demand.highest:
            _refuse(f"{name} demands numbers from {demand.lowest} to {demand.highest}")
        if demand.part and (shape is None or len(shape) != len(demand.part)):
            _refuse(f"{name} demands a part of {demand.input} that has other axes")
        if any(len(ends) != 2 or not 0 <= ends[0] <= ends[1] for ends in demand.part):
            _refuse(f"{name} demands an impossible part of {demand.input}")


def _check_stage(stage: Section | Fallback, index: _Index) -> None:
    what = "section" if isinstance(stage, Section) else "fallback"
    _known(what, stage.name, "graph", (stage.graph,), index.graphs)
    names = (*stage.inputs, *stage.outputs, *stage.weights)
    _known(what, stage.name, "symbol", names, index.symbols)
    name = f"{what} {stage.name}"
    # Inputs and weights are told apart by name in the stage's model.
    _unique(f"input or weight of {name}", (*stage.inputs, *stage.weights))
    _unique(f"output of {name}", stage.outputs)
    _not_negative(name, id=stage.id)
    # The name of a member follows from the stage, so that no two stages can claim one.
    if stage.member != stage_member(stage):
        _refuse(f"{name} is in {stage.member}, not in {stage_member(stage)}")
    for operator, count in stage.operators.items():
        if count < 1 or not operator:
            _refuse(f"{name} has {count} nodes {operator}")
    if isinstance(stage, Section):
        traffic = {"bytes": stage.bytes, "sram_bytes": stage.sram_bytes}
        _not_negative(name, flops=stage.flops, seconds=stage.seconds, **traffic)
        for body in stage.repeated:
            _not_negative(f"a body of {name}", steps=body.steps, **body.operators)
        if stage.streaming is not None:
            _not_negative(f"the streaming of {name}", seconds=stage.streaming.seconds)
            if stage.streaming.tiles < 1:
                _refuse(f"the streaming of {name} has {stage.streaming.tiles} tiles")
    else:
        _not_negative(name, seconds=stage.seconds, unmodelled=stage.unmodelled)
        for node in stage.reasons:
            _not_negative(f"node {node.name} of {name}", seconds=node.seconds)


def _filled_residents(
    manifest: Manifest, residents: Iterable[str], index: _Index
) -> frozenset[str]:
    """Return the residents that have a value before the first run, or are given one on request."""
    loaded = {
        # By region, since a symbol that shares the region of a loaded one has a value as well.
        index.symbols[move.symbol].region
        for graph in manifest.graphs
        for move in graph.load_transfers
        if move.symbol in index.symbols
    }
    return frozenset(
        name
        for name in residents
        if index.symbols[name].kind is SymbolKind.GRADIENT or index.symbols[name].region in loaded
    )


def _check_argins(manifest: Manifest, index: _Index) -> None:
    inputs = {name for graph in manifest.graphs for name in graph.inputs}
    for argin in manifest.argins:
        _known("argin", argin.name, "graph input", (argin.name,), inputs)
        _known("argin", argin.name, "stage", argin.stages, index.stages)
        symbol = index.symbols[argin.name]
        # A register holds one number: no shape, and no type but a plain element.
        if argin.type != symbol.type or tensor_element(argin.type) is None or symbol.shape != ():
            _refuse(f"argin {argin.name} is {argin.type}, its symbol is no such scalar")


def _check_reference(manifest: Manifest, index: _Index) -> None:
    sample = manifest.reference
    if sample is None:
        return
    _known("the reference sample", "", "graph", (sample.graph,), index.graphs)
    graph = index.graphs[sample.graph]
    _known("the reference sample of", sample.graph, "input", sample.inputs, graph.inputs)
    _known("the reference sample of", sample.graph, "output", sample.outputs, graph.outputs)
    _unique("input of the reference sample", sample.inputs)
    _known(
        "the reference sample of", sample.graph, "output in float32", sample.wide, sample.outputs
    )
    _unique("output of the reference sample", sample.outputs)
    _unique("output in float32 of the reference sample", sample.wide)
    _not_negative("the reference sample", rtol=sample.rtol, atol=sample.atol, depth=sample.depth)
    for name in sample.wide:
        element = tensor_element(index.symbols[name].type)
        # float32 has no place for an imaginary part.
        if element is None or element.name.startswith("complex"):
            _refuse(f"the reference sample has {name} in float32, which is no real number")
    if not 1 <= sample.runs <= _MOST_RUNS:
        _refuse(f"the reference sample has {sample.runs} runs: there are 1 to {_MOST_RUNS}")


def _check_model_names(graph: Graph) -> None:
    """Check that the model's names of inputs and outputs tell these apart."""
    ports = {*graph.inputs, *graph.outputs}
    _known("graph", graph.name, "renamed symbol", graph.model_names, ports)
    # An output may be returned twice under one name, an input may not be given twice.
    for what, names in (("input", graph.inputs), ("output", dict.fromkeys(graph.outputs))):
        _unique(f"{what} of the model of graph {graph.name}", map(graph.model_name, names))


def _check_figures(manifest: Manifest) -> None:
    graphs = {graph.name for graph in manifest.graphs}
    _not_negative("the source model", nodes=manifest.source.nodes)
    # The model's own file comes first, and may have any name.
    beside = manifest.source.files[1:]
    _unique("file beside the source model", (file.name for file in beside))
    for file in manifest.source.files:
        _not_negative(f"file {file.name} of the source model", bytes=file.bytes)
        if not _DIGEST.fullmatch(file.sha256):
            _refuse(f"file {printable(file.name)} of the source model has no SHA-256")
    for step in manifest.passes:
        name = f"pass {step.name}"
        _not_negative(name, before=step.nodes_before, after=step.nodes_after)
    for bound in manifest.bound_dimensions:
        _known("bound dimension", bound.name, "graph", (bound.graph,), graphs)
        _not_negative(f"bound dimension {bound.name}", size=bound.size)
    _check_fixed_inputs(manifest)
    for operator, count in manifest.experimental.items():
        _not_negative(f"experimental operator {operator}", nodes=count)


def _check_fixed_inputs(manifest: Manifest) -> None:
    """Check that constants in the place of inputs have a value, and that no run is given another one."""
    _unique("fixed input", (fixed.name for fixed in manifest.fixed_inputs))
    taken = {graph.model_name(name) for graph in manifest.graphs for name in graph.inputs}
    for fixed in manifest.fixed_inputs:
        if fixed.name in taken:
            _refuse(f"input {printable(fixed.name)} of a graph is fixed as a constant, too")
        if problem := fixed.problem():
            _refuse(f"fixed input {printable(fixed.name)} {printable(problem)}")
