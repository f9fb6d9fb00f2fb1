"""Traces of several graphs, on their way into one PEF and from it onto the device."""

from __future__ import annotations

from samba_onnx.errors import UsageError
from samba_onnx.graph import SambaGraph
from samba_onnx.sessions.traced import TracedGraph


class GraphTraces:
    """Graphs that were traced one by one, and those of them that are to be compiled together."""

    def __init__(self) -> None:
        """Begin without any."""
        self.traces: list[TracedGraph] = []
        """Every trace that was made, in order."""
        self._graphs: dict[str, SambaGraph] = {}

    @property
    def output_names(self) -> set[str]:
        """Names of the outputs of all traces."""
        return {tensor.sn_name for traced in self.traces for tensor in traced.outputs}

    def add_graph(self, graph: SambaGraph, overwrite: bool = False) -> None:
        """Add a graph to those that ``compile_multigraph`` compiles.

        Args:
            graph: A graph of outputs that ``trace_multigraph`` returned.
            overwrite: Take the place of a graph of that name; the new one is the last.

        Raises:
            UsageError: There is a graph of that name already, or it was not traced.
        """
        if not isinstance(graph, SambaGraph):
            raise UsageError(f"a graph is {type(graph).__name__}; give a samba.graph.FwdGraph")
        if graph.name in self._graphs and not overwrite:
            raise UsageError(
                f"there is a graph {graph.name!r} already; give this one another name, or "
                "overwrite=True"
            )
        # Taken out first: a dict keeps the place of a key that is set again, and the new graph
        # is to be the last.
        self._graphs.pop(graph.name, None)
        self._traced_by(graph).name = graph.name
        self._graphs[graph.name] = graph

    def added(self) -> list[TracedGraph]:
        """Return the traces of the graphs that were added, in their order.

        Raises:
            UsageError: None was added.
        """
        if not self._graphs:
            raise UsageError("there are no graphs to compile: add some with session.add_graph")
        return [self._traced_by(graph) for graph in self._graphs.values()]

    def _traced_by(self, graph: SambaGraph) -> TracedGraph:
        """The trace that a graph's outputs come from."""
        # By identity: tensors compare element by element, and names may have been changed since.
        output_ids = {id(output) for output in graph.outputs}
        for traced in self.traces:
            # A graph may be made of some of the outputs of a trace.
            if output_ids <= {id(output) for output in traced.outputs}:
                return traced
        raise UsageError(
            f"the outputs of graph {graph.name!r} are not those of one trace: give outputs that "
            "samba.utils.trace_multigraph returned"
        )
