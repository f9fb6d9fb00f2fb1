"""The cheapest homes of nodes, by a minimum cut.

Every node has a cost on the RDU and one on the CPU, and every value that passes between nodes one for
each direction of the link, paid once however many nodes read it there. Costs are whole picoseconds.
The homes with the smallest sum are a minimum cut between two terminals, the RDU and the CPU: the nodes
on the side of a terminal have that home.

- A node is joined to both terminals by the costs of its homes; one whose home is fixed is the terminal.
- A value with one reader joins the two nodes in both directions. One with several gets a vertex for
  each direction: it is on the side of the CPU as soon as one reader is, respectively of the RDU, so
  that what joins it to the writer is cut once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from samba_onnx.passes.planning.partitioning import Home

_LARGEST = 2**29
"""Bound of a cut in the units of the solver, which adds capacities and flows in 32 bits."""

Vertex = int
_RDU, _CPU = -1, -2
"""The terminals, before they are counted after the other vertices."""


@dataclass(frozen=True)
class CutValue:
    """A value that is copied where its writer and a reader have different homes."""

    writer: int | Home
    """Position of the node that writes it, or where it is when the run begins."""
    readers: tuple[int, ...]
    """Positions of the nodes that read it."""
    down: int
    """Cost of the copy from the RDU to the CPU."""
    up: int
    """Cost of the copy from the CPU to the RDU."""
    ends: frozenset[Home] = frozenset()
    """Where it must be when the run ends, wherever it is written."""


@dataclass(frozen=True)
class CutProblem:
    """Nodes with costs by home, and the values between them."""

    rdu: tuple[int, ...]
    """Cost of each node on the RDU."""
    cpu: tuple[int, ...]
    """Cost of each node on the CPU."""
    fixed: Mapping[int, Home]
    """Homes that are no choice, by position."""
    values: tuple[CutValue, ...]

    def cost(self, homes: Sequence[Home]) -> int:
        """Return what homes cost: the objective.

        Args:
            homes: One for each node.

        Returns:
            The nodes' costs where they are, and for each value that of a copy to the other side, if
            somebody needs it there.
        """
        own = sum(
            self.cpu[position] if home is Home.CPU else self.rdu[position]
            for position, home in enumerate(homes)
        )
        return own + sum(value_cost(value, homes) for value in self.values)

    def touching(self) -> dict[int, list[CutValue]]:
        """Return the values that each node writes or reads, by position; those of some have none."""
        found: dict[int, list[CutValue]] = {}
        for value in self.values:
            writer = () if isinstance(value.writer, Home) else (value.writer,)
            for position in (*writer, *value.readers):
                found.setdefault(position, []).append(value)
        return found

    def solve(self) -> tuple[Home, ...]:
        """Return the cheapest homes; of several, those with the most nodes on the RDU.

        Costs are exact while the cost with every free node on the RDU is below 2**29 picoseconds
        (half a millisecond) more than the nodes' smaller costs together; beyond, they are rounded
        to that part of it.
        """
        return _solve(self)


def value_cost(value: CutValue, homes: Sequence[Home] | Mapping[int, Home]) -> int:
    """Return what copies of one value cost.

    Args:
        value: The value.
        homes: The home of every node that it touches, by position.
    """
    writer = value.writer if isinstance(value.writer, Home) else homes[value.writer]
    needed = value.ends.union(homes[reader] for reader in value.readers)
    if writer is Home.RDU:
        return value.down if Home.CPU in needed else 0
    return value.up if Home.RDU in needed else 0


@dataclass
class _Network:
    """Edges with capacities; vertices are positions of nodes, terminals, and those of values."""

    tails: list[Vertex]
    heads: list[Vertex]
    capacities: list[int]
    size: int
    """Vertices besides the terminals."""

    def join(self, tail: Vertex, head: Vertex, capacity: int) -> None:
        """Add an edge: what it costs that the tail is with the RDU and the head with the CPU."""
        if tail != head and capacity > 0 and tail != _CPU and head != _RDU:
            self.tails.append(tail)
            self.heads.append(head)
            self.capacities.append(capacity)

    def vertex(self) -> Vertex:
        """Return a new vertex."""
        self.size += 1
        return self.size - 1


def _solve(problem: CutProblem) -> tuple[Home, ...]:
    bound = _cost_on_rdu(problem) + 1
    network = _network(problem, unbreakable=bound)
    unit = -(-bound // _LARGEST)
    on_cpu = _sink_side(network, bound, unit)
    return tuple(
        problem.fixed.get(position, Home.CPU if position in on_cpu else Home.RDU)
        for position in range(len(problem.rdu))
    )


def _cost_on_rdu(problem: CutProblem) -> int:
    """Return a bound of the cut: its value with all free nodes on the RDU."""
    homes = [problem.fixed.get(position, Home.RDU) for position in range(len(problem.rdu))]
    own = sum(
        max(rdu - cpu, 0)
        for position, (rdu, cpu) in enumerate(zip(problem.rdu, problem.cpu, strict=True))
        if position not in problem.fixed
    )
    return own + sum(value_cost(value, homes) for value in problem.values)


def _network(problem: CutProblem, unbreakable: int) -> _Network:
    """Return the network whose cuts are the homes of nodes."""
    network = _Network([], [], [], len(problem.rdu))
    terminals = {Home.RDU: _RDU, Home.CPU: _CPU}

    def place(writer: int | Home) -> Vertex:
        if isinstance(writer, Home):
            return terminals[writer]
        home = problem.fixed.get(writer)
        return writer if home is None else terminals[home]

    for position, (rdu, cpu) in enumerate(zip(problem.rdu, problem.cpu, strict=True)):
        if position not in problem.fixed:
            # What a node costs in either home is no choice: only the difference is cut.
            network.join(_RDU, position, cpu - rdu)
            network.join(position, _CPU, rdu - cpu)
    for value in problem.values:
        writer = place(value.writer)
        others = dict.fromkeys(
            [*map(place, value.readers), *(terminals[home] for home in sorted(value.ends))]
        )
        _join_value(network, value, writer, [v for v in others if v != writer], unbreakable)
    return network


def _join_value(
    network: _Network, value: CutValue, writer: Vertex, others: Sequence[Vertex], unbreakable: int
) -> None:
    """Add the edges of one value."""
    if len(others) == 1:
        network.join(writer, others[0], value.down)
        network.join(others[0], writer, value.up)
        return
    for capacity, goes_down in ((value.down, True), (value.up, False)):
        terminal = _CPU if goes_down else _RDU
        far_terminal = _RDU if goes_down else _CPU
        if writer == terminal or not capacity or set(others) <= {far_terminal}:
            continue
        middle = terminal if terminal in others else network.vertex()
        if goes_down:
            network.join(writer, middle, capacity)
        else:
            network.join(middle, writer, capacity)
        if middle == terminal:
            continue
        for other in others:
            if goes_down:
                network.join(middle, other, unbreakable)
            else:
                network.join(other, middle, unbreakable)


def _sink_side(network: _Network, bound: int, unit: int) -> frozenset[Vertex]:
    """Return the vertices that every minimum cut leaves with the CPU."""
    if not network.capacities:
        return frozenset()
    # Most graphs run on the RDU as a whole, and need no solver: it takes a fifth of a second to import.
    from scipy.sparse import csr_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import (  # type: ignore[import-untyped]
        breadth_first_order,
        maximum_flow,
    )

    count = network.size + 2
    rdu, cpu = count - 2, count - 1
    tails, heads = (
        # 32 bits: the only indices that scipy before 1.14 finds flows with.
        np.where(ends == _RDU, rdu, np.where(ends == _CPU, cpu, ends)).astype(np.int32)
        for ends in (np.asarray(network.tails), np.asarray(network.heads))
    )
    # Nothing needs more than the bound, which no smallest cut exceeds.
    clipped = np.minimum(np.asarray(network.capacities, dtype=np.float64), float(bound))
    scaled = np.maximum(np.rint(clipped / unit), 1).astype(np.int64)
    edges = csr_array((scaled, (tails, heads)), shape=(count, count))
    edges.sum_duplicates()
    np.minimum(edges.data, _LARGEST + 1, out=edges.data)
    edges = edges.astype(np.int32)
    residual = edges - maximum_flow(edges, rdu, cpu, method="dinic").flow
    residual.eliminate_zeros()
    reached = breadth_first_order(residual.T.tocsr(), cpu, directed=True, return_predecessors=False)
    return frozenset(map(int, reached)) - {rdu, cpu}


def components(problem: CutProblem, members: Sequence[int]) -> Iterator[list[int]]:
    """Yield nodes in groups that no value connects with each other.

    Args:
        problem: Says which values the nodes write and read.
        members: Positions, ascending. Two are connected where one value touches both.

    Yields:
        Positions, ascending; the group of the first member first. What the nodes of one group cost
        does not depend on where those of another one are.
    """
    wanted = set(members)
    touching: dict[int, list[int]] = {}
    ends: list[tuple[int, ...]] = []
    for value in problem.values:
        writer = () if isinstance(value.writer, Home) else (value.writer,)
        inside = tuple(position for position in (*writer, *value.readers) if position in wanted)
        for position in inside:
            touching.setdefault(position, []).append(len(ends))
        ends.append(inside)
    left, used = dict.fromkeys(members), set[int]()
    while left:
        first = next(iter(left))
        del left[first]
        group, pending = [first], [first]
        while pending:
            for index in touching.get(pending.pop(), ()):
                if index in used:
                    continue
                used.add(index)
                new = [position for position in ends[index] if position in left]
                for position in dict.fromkeys(new):
                    del left[position]
                    group.append(position)
                    pending.append(position)
        yield sorted(group)
