"""The graphs that one model became for several sizes, by the names that the model itself has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from samba_onnx.errors import InputError
from samba_onnx.facts.names import in_a_list
from samba_onnx.pef.fixed_inputs import fixed_arrays
from samba_onnx.pef.manifest import Graph, Manifest, Symbol
from samba_onnx.runtime.inputs import InputSpec, fits, without_fixed


class SizedGraphs:
    """Chooses the graph that inputs fit, and translates names.

    Symbols are names of one size: the second graph's input ``x`` is the symbol ``x@batch=8``. Whoever
    runs the model says ``x``, and gets ``y``.
    """

    def __init__(self, manifest: Manifest) -> None:
        """Look at the graphs of a PEF.

        Args:
            manifest: The manifest of any PEF.
        """
        self._graphs = {graph.name: graph for graph in manifest.graphs}
        self._symbols = {symbol.name: symbol for symbol in manifest.symbols}
        self._bound = manifest.bound_dimensions
        self._fixed = fixed_arrays(manifest.fixed_inputs)
        self._is_sized = any(graph.model_names for graph in manifest.graphs)

    def __bool__(self) -> bool:
        """Return whether there are graphs for several sizes."""
        return self._is_sized

    def specs(self) -> dict[str, InputSpec]:
        """Return what the inputs look like, by the model's names; a size that differs is any."""
        merged: dict[str, Symbol] = {}
        for graph in self._graphs.values():
            for name, symbol in self._inputs(graph).items():
                first = merged.setdefault(name, symbol)
                shape = None
                if first.shape is not None and symbol.shape is not None:
                    pairs = zip(first.shape, symbol.shape, strict=True)
                    shape = tuple(one if one == other else None for one, other in pairs)
                merged[name] = replace(first, name=name, shape=shape)
        return {name: InputSpec(symbol) for name, symbol in merged.items()}

    def graph_specs(self, graph: Graph) -> dict[str, InputSpec]:
        """Return what the inputs of one graph look like, by the model's names."""
        return {
            name: InputSpec(replace(symbol, name=name))
            for name, symbol in self._inputs(graph).items()
        }

    def fitting(self, inputs: Mapping[str, Any], dims: Mapping[str, int] | None = None) -> Graph:
        """Return the first graph that takes some inputs.

        Args:
            inputs: Values by the model's names; not all need be there.
            dims: Sizes of dimensions by name that the graph must have been compiled for; names that
                no graph has a size of are left to inputs that have them dynamic.

        Raises:
            InputError: There is none; the message lists those that there are. Or an input was fixed as a
                constant of another value.
        """
        inputs = without_fixed(self._fixed, inputs)
        known = {bound.name for bound in self._bound}
        for graph in self._graphs.values():
            sizes = {one.name: one.size for one in self._bound if one.graph == graph.name}
            if all(sizes.get(name) == size for name, size in (dims or {}).items() if name in known):
                symbols = self._inputs(graph)
                if all(_fits(symbols.get(name), value) for name, value in inputs.items()):
                    return graph
        given = [f"{name} {list(_shape(value) or ())}" for name, value in inputs.items()]
        given += [f"{name}={size}" for name, size in (dims or {}).items()]
        raise InputError(
            f"no graph of the PEF takes {', '.join(given)}; it has {self._text()}: give inputs of "
            "such sizes, or convert the model for these, too (--dim NAME=SIZE,SIZE,...)"
        )

    def chosen(self, name: str | None, inputs: Mapping[str, Any]) -> SizedGraph | None:
        """Return the graph of that name, or the first that takes some inputs.

        Args:
            name: Name of the graph; None for the one that fits.
            inputs: Values by the model's names.

        Returns:
            The graph; None where there is none of that name.

        Raises:
            InputError: No graph takes the inputs.
        """
        graph = self.fitting(inputs) if name is None else self._graphs.get(name)
        return None if graph is None else SizedGraph(graph)

    def _inputs(self, graph: Graph) -> dict[str, Symbol]:
        return {graph.model_name(name): self._symbols[name] for name in graph.inputs}

    def _text(self) -> str:
        shown = [
            f"{name} ({', '.join(f'{key} {spec}' for key, spec in self.graph_specs(graph).items())})"
            for name, graph in self._graphs.items()
        ]
        return "; ".join(shown)


class SizedGraph:
    """One of the graphs, with the names that the model and the PEF have for its inputs and outputs."""

    def __init__(self, graph: Graph) -> None:
        """Look at the names.

        Args:
            graph: A graph of a PEF with graphs for several sizes.
        """
        self.name = graph.name
        self._graph = graph
        names = (*graph.inputs, *graph.outputs)
        self._symbols = {graph.model_name(name): name for name in names}

    def inward(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values that go by the model's names, by symbol; other names stay."""
        return {self._symbols.get(name, name): value for name, value in values.items()}

    def symbols(self, names: str | Sequence[str] | None) -> Sequence[str] | None:
        """Return the symbols of outputs that go by the model's names."""
        if names is None:
            return None
        return [self._symbols.get(name, name) for name in in_a_list(names)]

    def outward(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values that go by symbol, by the model's names."""
        return {self._graph.model_name(name): value for name, value in values.items()}


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the sizes of what a user gave; None for what is no tensor."""
    try:
        return tuple(np.shape(value))
    except (TypeError, ValueError):
        return None


def _fits(symbol: Symbol | None, value: Any) -> bool:
    if symbol is None:
        return False
    shape = _shape(value)
    # A sequence has no sizes by which to choose; whether it fits is checked when it is run.
    return not symbol.type.startswith("tensor(") or (
        shape is not None and fits(shape, symbol.shape)
    )
