"""Where nodes stand in a drawing: computed as the page is written, so that it only has to be drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import networkx

__all__ = ["SPACING", "positions"]

Position = tuple[int, int]
"""Steps to the right and down."""

SPACING: Final = 4
"""Steps between neighbours: positions are whole numbers of quarters."""


def positions(nodes: Sequence[int], edges: Collection[tuple[int, int]]) -> dict[int, Position]:
    """Return the place of each node, readers below what they read.

    Args:
        nodes: Their ids.
        edges: Ids of writer and reader, without circles.

    Returns:
        The same places for the same graph, on every machine.
    """
    # Only where a graph is drawn, for it takes a while to load.
    import networkx

    graph: networkx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(sorted(edges))
    placed: dict[int, Position] = {}
    right = 0
    # Parts that nothing connects stand side by side, the largest first.
    parts = sorted(networkx.weakly_connected_components(graph), key=lambda p: (-len(p), min(p)))
    for part in parts:
        places = _component(graph.subgraph(part))
        left = min(x for x, _ in places.values())
        placed |= {node: (x - left + right, y) for node, (x, y) in places.items()}
        right = max(x for x, _ in placed.values()) + SPACING
    return placed


def _component(graph: networkx.DiGraph[int]) -> dict[int, Position]:
    """Return places within one part."""
    if graph.number_of_edges() == 0:
        return dict.fromkeys(graph, (0, 0))
    if importlib.util.find_spec("fast_sugiyama") is None:
        return _by_generation(graph)
    from fast_sugiyama import from_edges

    (layout, *_), *_ = from_edges(
        sorted(graph.edges), minimum_length=1, vertex_spacing=1, dummy_vertices=True
    )
    # Other ids are bends of long edges. Its upwards is our downwards.
    found = {int(node): place for node, place in layout if node in graph}
    top = max(y for _, y in found.values())
    return {
        node: (round(x * SPACING), round((top - y) * SPACING)) for node, (x, y) in found.items()
    }


def _by_generation(graph: networkx.DiGraph[int]) -> dict[int, Position]:
    """Return places by how many nodes come before, where the extra ``html`` is not installed."""
    import networkx

    return {
        node: (round((place - (len(row) - 1) / 2) * SPACING), depth * SPACING)
        for depth, row in enumerate(map(sorted, networkx.topological_generations(graph)))
        for place, node in enumerate(row)
    }
