"""The cheapest way to separate two ends of a network (Dinic's algorithm)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

SOURCE: Final = "source"
SINK: Final = "sink"
ENDLESS: Final = 1 << 62
"""Capacity of an edge that is never cut."""


class Network:
    """Directed edges with capacities between any hashable points."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._edges: list[list[int]] = []
        self._ends: list[int] = []
        self._room: list[int] = []
        self._number(SOURCE)
        self._number(SINK)

    def edge(self, start: Hashable, end: Hashable, capacity: int) -> None:
        """Add an edge.

        Args:
            start: Where it begins.
            end: Where it ends.
            capacity: What cutting it costs.
        """
        first, last = self._number(start), self._number(end)
        for origin, target, room in ((first, last, capacity), (last, first, 0)):
            self._edges[origin].append(len(self._ends))
            self._ends.append(target)
            self._room.append(room)

    def before_cut(self) -> set[Hashable]:
        """Return the points on the source's side of the cheapest cut, the one closest to it."""
        while (levels := self._levels())[1] >= 0:
            self._saturate(levels)
        return {point for point, number in self._numbers.items() if levels[number] >= 0}

    def _number(self, point: Hashable) -> int:
        if point not in self._numbers:
            self._numbers[point] = len(self._edges)
            self._edges.append([])
        return self._numbers[point]

    def _levels(self) -> list[int]:
        """Return distances from the source over edges with room, -1 for what is out of reach."""
        levels = [-1] * len(self._edges)
        levels[0] = 0
        pending = deque([0])
        while pending:
            point = pending.popleft()
            for edge in self._edges[point]:
                end = self._ends[edge]
                if levels[end] < 0 and self._room[edge] > 0:
                    levels[end] = levels[point] + 1
                    pending.append(end)
        return levels

    def _saturate(self, levels: list[int]) -> None:
        """Push as much as goes along shortest paths."""
        tried = [0] * len(self._edges)
        path: list[int] = []
        point = 0
        while True:
            if point == 1:
                self._push(path)
                path, point = [], 0
                continue
            edge = self._next(point, tried, levels)
            if edge is not None:
                path.append(edge)
                point = self._ends[edge]
            elif path:
                edge = path.pop()
                point = self._ends[edge ^ 1]
                tried[point] += 1
            else:
                return

    def _next(self, point: int, tried: list[int], levels: list[int]) -> int | None:
        edges = self._edges[point]
        while tried[point] < len(edges):
            edge = edges[tried[point]]
            if self._room[edge] > 0 and levels[self._ends[edge]] == levels[point] + 1:
                return edge
            tried[point] += 1
        return None

    def _push(self, path: list[int]) -> None:
        amount = min(self._room[edge] for edge in path)
        for edge in path:
            self._room[edge] -= amount
            self._room[edge ^ 1] += amount
