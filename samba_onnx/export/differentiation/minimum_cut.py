"""The cheapest way to separate two ends of a network."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import networkx as nx
from networkx.algorithms.flow import boykov_kolmogorov

SOURCE: Final = "source"
SINK: Final = "sink"
ENDLESS: Final = 1 << 62
"""Capacity of an edge that is never cut."""


class Network:
    """Directed edges with capacities between any hashable points."""

    def __init__(self) -> None:
        self._graph: nx.DiGraph[Hashable] = nx.DiGraph()
        self._graph.add_nodes_from((SOURCE, SINK))

    def edge(self, start: Hashable, end: Hashable, capacity: int) -> None:
        """Add an edge, or capacity to the one that there is.

        Args:
            start: Where it begins.
            end: Where it ends.
            capacity: What cutting it costs.
        """
        there = self._graph.get_edge_data(start, end, {}).get("capacity", 0)
        self._graph.add_edge(start, end, capacity=there + capacity)

    def before_cut(self) -> set[Hashable]:
        """Return the points on the source's side of the cheapest cut, the one closest to it."""
        residual = boykov_kolmogorov(self._graph, SOURCE, SINK)
        room = nx.subgraph_view(
            residual, filter_edge=lambda a, b: residual[a][b]["flow"] < residual[a][b]["capacity"]
        )
        return {SOURCE, *nx.descendants(room, SOURCE)}
