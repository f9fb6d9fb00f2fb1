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

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from samba_onnx.passes.planning.partitioning import Home
from samba_onnx.program.minimum_cut import ENDLESS, SINK, SOURCE, Network

Vertex = int | str
_TERMINALS: Final = {Home.RDU: SOURCE, Home.CPU: SINK}


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
        computing = sum(
            self.cpu[position] if home is Home.CPU else self.rdu[position]
            for position, home in enumerate(homes)
        )
        return computing + sum(value_cost(value, homes) for value in self.values)

    def touching(self) -> dict[int, list[CutValue]]:
        """Return the values that each node writes or reads, by position; nodes without such values are left out."""
        found: dict[int, list[CutValue]] = {}
        for value in self.values:
            writer = () if isinstance(value.writer, Home) else (value.writer,)
            for position in (*writer, *value.readers):
                found.setdefault(position, []).append(value)
        return found

    def solve(self) -> tuple[Home, ...]:
        """Return the cheapest homes; of several, those with the most nodes on the RDU."""
        # Of several cheapest cuts the one closest to the CPU, which leaves the most nodes on the RDU.
        on_cpu = _network(self).behind_cut()
        return tuple(
            self.fixed.get(position, Home.CPU if position in on_cpu else Home.RDU)
            for position in range(len(self.rdu))
        )


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


def _network(problem: CutProblem) -> Network:
    """Return the network whose cuts are the homes of nodes."""
    network = Network()

    def place(writer: int | Home) -> Vertex:
        home = writer if isinstance(writer, Home) else problem.fixed.get(writer)
        return writer if home is None else _TERMINALS[home]

    for position, (rdu, cpu) in enumerate(zip(problem.rdu, problem.cpu, strict=True)):
        if position not in problem.fixed:
            # What a node costs in either home is no choice: only the difference is cut.
            _join(network, SOURCE, position, cpu - rdu)
            _join(network, position, SINK, rdu - cpu)
    for number, value in enumerate(problem.values):
        writer = place(value.writer)
        # Each place once: readers of fixed homes are one terminal, and share a copy. In an order that is
        # the same in all processes, which that of a set is not.
        others = dict.fromkeys(
            [*map(place, value.readers), *(_TERMINALS[home] for home in sorted(value.ends))]
        )
        _join_value(network, number, value, writer, [v for v in others if v != writer])
    return network


def _join(network: Network, tail: Hashable, head: Hashable, capacity: int) -> None:
    """Add an edge: what it costs that the tail is with the RDU and the head with the CPU."""
    # No cut goes through an edge into the source or out of the sink, and none between a point and itself.
    if tail != head and capacity > 0 and tail != SINK and head != SOURCE:
        network.edge(tail, head, capacity)


def _join_value(
    network: Network, number: int, value: CutValue, writer: Vertex, others: Sequence[Vertex]
) -> None:
    """Add the edges of one value."""
    if len(others) == 1:
        _join(network, writer, others[0], value.down)
        _join(network, others[0], writer, value.up)
        return
    # Several readers share a copy: it is cut once, on the way to a vertex that all of them pull along.
    down, up = ("down", number), ("up", number)
    _join(network, writer, down, value.down)
    _join(network, up, writer, value.up)
    for other in others:
        _join(network, down, other, ENDLESS)
        _join(network, other, up, ENDLESS)


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
    unvisited, used = dict.fromkeys(members), set[int]()
    while unvisited:
        first = next(iter(unvisited))
        del unvisited[first]
        group, pending = [first], [first]
        while pending:
            for index in touching.get(pending.pop(), ()):
                # Each value once: else every reader of a value with many would look at all others again.
                if index in used:
                    continue
                used.add(index)
                new = [position for position in ends[index] if position in unvisited]
                for position in dict.fromkeys(new):
                    del unvisited[position]
                    group.append(position)
                    pending.append(position)
        yield sorted(group)
