"""Whether what a manifest says of spatially mapped graphs and their mini-batches makes sense."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

from samba_onnx.errors import PefFormatError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.pef.manifest import Fallback, Graph, Manifest, Symbol
from samba_onnx.program.mini_batches import batched_shape
from samba_onnx.safety.files import printable

__all__ = ["check_batches"]


def check_batches(manifest: Manifest) -> None:
    """Check the graphs that are mapped spatially, and the symbols that hold mini-batches.

    Args:
        manifest: A manifest whose names are known to lead somewhere.

    Raises:
        PefFormatError: A number of mini-batches is negative or too large, a graph that has some has
            a fallback, or an input that holds one only; a symbol does not hold as many mini-batches
            as its graph has, shares its region, or is no plain tensor.
    """
    symbols = {symbol.name: symbol for symbol in manifest.symbols}
    argins = {argin.name for argin in manifest.argins}
    batches: dict[str, int] = {}
    for graph in manifest.graphs:
        names = _check_graph(graph, manifest, symbols, argins)
        # Every symbol of a graph has the graph's number of mini-batches; symbols between graphs
        # must agree on it.
        for name in names:
            if batches.setdefault(name, graph.spatial_batches) != graph.spatial_batches:
                _refuse(f"symbol {name} belongs to graphs of different numbers of mini-batches")
    regions = [symbol.region for symbol in manifest.symbols if symbol.region]
    inner = {name for stage in manifest.stages().values() for name in stage.weights}
    for symbol in manifest.symbols:
        if symbol.batch_shape is not None:
            # A region that symbols share, a weight, an argin or a stored default has one value, of
            # which no stage could be shown a mini-batch.
            alone = regions.count(symbol.region) == 1 if symbol.region else True
            fixed = symbol.name in inner or symbol.name in argins or symbol.stored is not None
            _check_symbol(symbol, batches.get(symbol.name, 0), alone=alone and not fixed)


def _check_graph(
    graph: Graph, manifest: Manifest, symbols: Mapping[str, Symbol], argins: Collection[str]
) -> set[str]:
    """Check one graph; return the symbols that it names."""
    stages = manifest.stages()
    own = [stages[call.stage] for call in graph.calls]
    if not 0 <= graph.spatial_batches < 2**31:
        _refuse(f"graph {graph.name} has {graph.spatial_batches} mini-batches")
    if graph.spatial_batches:
        if any(isinstance(stage, Fallback) for stage in own):
            _refuse(f"graph {graph.name} is mapped spatially and has a fallback")
        # What is not cut into mini-batches would be seen whole by each of them.
        for name in graph.inputs:
            if name not in argins and symbols[name].batch_shape is None:
                _refuse(f"input {name} of the spatially mapped graph {graph.name} is no batch")
    named = {name for stage in own for name in (*stage.inputs, *stage.outputs)}
    return named.union(graph.inputs, graph.outputs)


def _check_symbol(symbol: Symbol, batches: int, *, alone: bool) -> None:
    element = tensor_element(symbol.type)
    shape = symbol.batch_shape or ()
    whole = batched_shape(shape, batches) if batches else None
    if whole != symbol.shape or min(shape, default=0) < 0:
        _refuse(
            f"symbol {symbol.name} of shape {list(symbol.shape or ())} does not hold {batches} "
            f"mini-batches of {list(shape)}"
        )
    # Elements that share bytes cannot be cut at every place.
    if element is None or element.packs or not alone:
        _refuse(f"symbol {symbol.name} can hold no mini-batches")


def _refuse(problem: str) -> NoReturn:
    raise PefFormatError(f"the manifest contradicts itself: {printable(problem, 400)}")
