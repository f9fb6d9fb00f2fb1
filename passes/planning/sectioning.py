"""Cuts groups of RDU nodes into sections: what the device runs in one go.

At ``o0`` every operator is a section of its own. At ``o1`` a section is what a rule of fusion matches
(:mod:`samba_onnx.passes.planning.fusion`), and every other operator one of its own. At ``o3`` a section is as large as on-chip memory
allows: its weights all at once, plus the largest set of activations that are live at the same time,
where an activation is live from the first node of the section that touches it to the last. Among
the ways to cut a group into the fewest sections, the one that keeps the fewest bytes in off-chip
memory across its cuts is taken.

Parts of a group that no value connects share a section when they fit: they can lie beside each
other on the chip, and one call is cheaper than two. An operator that exceeds on-chip memory by
itself is a section of its own, whose operands are streamed.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.passes.planning.costs import value_bytes
from samba_onnx.passes.planning.fusion.fusing import Piece, fuse
from samba_onnx.passes.planning.fusion.patterns import NO_RULES, FusionRules
from samba_onnx.passes.planning.partitioning import Group, Home
from samba_onnx.passes.sharding.collectives import is_collective
from samba_onnx.program.dataflow import Dataflow, implicit_inputs, is_weight

if TYPE_CHECKING:
    from samba_onnx.passes.targets import Target


LEVELS = ("o0", "o1", "o3")
"""Optimization levels: ``o0`` makes every operator its own section, ``o1`` what a rule of fusion matches,
``o3`` makes sections as large as on-chip memory allows (compiler reference, ``--o0``, ``--o1``, ``--o3``)."""


def cut(
    groups: Sequence[Group], target: Target, level: str, rules: FusionRules = NO_RULES
) -> tuple[Group, ...]:
    """Return the groups with each RDU group cut into sections.

    Args:
        groups: Groups in execution order, as ``partition`` returns them.
        target: The device; the bytes of its tier ``sram`` bound a section of several operators.
        level: ``o0`` for one section per operator, ``o1`` for those of rules, ``o3`` for the largest possible.
        rules: The rules of ``o1``.

    Returns:
        Groups in execution order; CPU groups are the same objects as before.

    Raises:
        UsageError: There is no such level.
    """
    if level not in LEVELS:
        raise UsageError(f"level is {level!r}: expected one of {', '.join(LEVELS)}")
    pieces: list[Group] = []
    capacity = target.summary.tier("sram").bytes
    fused = iter(_fused(groups, rules) if level == "o1" else ())
    for group in groups:
        if group.home is Home.CPU:
            pieces.append(group)
        elif level == "o0":
            pieces.extend(Group(home=Home.RDU, nodes=(node,)) for node in group.nodes)
        elif level == "o1":
            pieces.extend(
                Group(home=Home.RDU, nodes=nodes, rule=piece.rule)
                for piece in next(fused)
                for run in _between_collectives(piece.nodes)
                for nodes in _fitting(run, target, capacity)
            )
        else:
            runs = _between_collectives(group.nodes)
            pieces.extend(
                Group(home=Home.RDU, nodes=nodes)
                for run in runs
                for nodes in _cut(run, target, capacity)
            )
    return tuple(pieces)


def _between_collectives(nodes: Sequence[ir.Node]) -> list[tuple[ir.Node, ...]]:
    """Return nodes in runs; one that exchanges values between RDUs is a run of its own."""
    return [
        tuple(run)
        for _, run in itertools.groupby(nodes, key=lambda n: id(n) if is_collective(n) else 0)
    ]


def _fused(groups: Sequence[Group], rules: FusionRules) -> list[list[Piece]]:
    """Return what the rules make of each RDU group."""
    on_rdu = [group.nodes for group in groups if group.home is Home.RDU]
    on_cpu = [node for group in groups if group.home is Home.CPU for node in group.nodes]
    return fuse(on_rdu, on_cpu, rules.rules)


def _fitting(
    nodes: tuple[ir.Node, ...], target: Target, capacity: int
) -> Sequence[tuple[ir.Node, ...]]:
    """Return nodes as they are where they fit on the chip, and cut as at ``o3`` where not."""
    if len(nodes) == 1 or sram_bytes(nodes, target) <= capacity:
        return (nodes,)
    return _cut(nodes, target, capacity)


def sram_bytes(nodes: Sequence[ir.Node], target: Target) -> int:
    """Return the on-chip memory that a section needs.

    Args:
        nodes: The section's nodes in the order in which they run.
        target: The device; operands that it bakes into a section take no memory.

    Returns:
        Bytes of all weights plus those of the largest set of activations live at the same time.
    """
    window = _Window(_Touches.of(nodes, target))
    for position in range(len(nodes)):
        window.extend(position)
    return window.bytes()


def data_reads(node: ir.Node, target: Target) -> list[ir.Value]:
    """Return the operands that a node on the RDU reads from memory, each once.

    Args:
        node: A node that the target supports.
        target: The device.

    Returns:
        The operands without the compile-time constants that become part of the section.
    """
    static = target.static_inputs(node)
    operands = [
        value
        for position, value in enumerate(node.inputs)
        if value is not None and not (position in static and is_weight(value))
    ]
    return list(dict.fromkeys([*operands, *implicit_inputs(node)]))


def _cut(nodes: Sequence[ir.Node], target: Target, capacity: int) -> list[tuple[ir.Node, ...]]:
    """Return the fewest sections that fit, with the fewest bytes kept across their cuts."""
    best = _sections(nodes, target, capacity)
    if len(best.starts) > 1:
        # The model's own order is kept unless depth first is better: fewer values wait.
        other = _sections(_depth_first(nodes), target, capacity)
        if (len(other.starts), other.kept) < (len(best.starts), best.kept):
            best = other
    cuts = (*best.starts, len(best.nodes))
    return [best.nodes[a:b] for a, b in itertools.pairwise(cuts)]


@dataclass(frozen=True)
class _Sections:
    """A way to cut an order of nodes."""

    nodes: tuple[ir.Node, ...]
    starts: tuple[int, ...]
    kept: int
    """Bytes written before and read after a cut, summed over the cuts."""


def _sections(nodes: Sequence[ir.Node], target: Target, capacity: int) -> _Sections:
    """Return the fewest sections of an order of nodes, cut where the fewest bytes are live.

    A section that begins later reaches at least as far, so that the n-th cut of a shortest
    sequence lies between the position that greedy cutting from the end gives and the one that
    greedy cutting from the start gives. Between these, dynamic programming finds the cheapest.
    """
    touches = _Touches.of(nodes, target)
    reach = _reach(touches, capacity)
    furthest = [0]
    while furthest[-1] < len(nodes):
        furthest.append(reach[furthest[-1]])
    live = _live_bytes(nodes)
    earliest = [len(nodes)]
    while earliest[-1] > 0:
        earliest.append(_first_reaching(reach, earliest[-1]))
    earliest.reverse()
    costs = {0: 0}
    choices: list[dict[int, int]] = []
    for low, high in zip(earliest[1:], furthest[1:], strict=True):
        costs, choice = _cheapest(costs, reach, live, range(low, high + 1))
        choices.append(choice)
    starts: list[int] = []
    position = len(nodes)
    for choice in reversed(choices):
        position = choice[position]
        starts.append(position)
    return _Sections(tuple(nodes), tuple(reversed(starts)), costs[len(nodes)])


def _first_reaching(reach: Sequence[int], end: int) -> int:
    """Return the first position from which a section reaches ``end``; ``reach`` ascends."""
    return bisect_left(reach, end)


def _cheapest(
    costs: dict[int, int], reach: Sequence[int], live: Sequence[int], ends: range
) -> tuple[dict[int, int], dict[int, int]]:
    """Add one section to every cut so far.

    Args:
        costs: Bytes kept so far by position of the last cut, positions ascending.
        reach: The furthest end of a section by its start.
        live: Bytes live at each cut.
        ends: Where the new section may end.

    Returns:
        Bytes kept by the new position, and the start of the section that ends there.
    """
    new_costs: dict[int, int] = {}
    choice: dict[int, int] = {}
    waiting = list(costs)
    taken = 0
    window: deque[int] = deque()  # starts with ascending costs, of which the first is the cheapest
    for end in ends:
        while taken < len(waiting) and waiting[taken] < end:
            start = waiting[taken]
            while window and costs[window[-1]] > costs[start]:
                window.pop()
            window.append(start)
            taken += 1
        while window and reach[window[0]] < end:
            window.popleft()
        if window:
            new_costs[end] = costs[window[0]] + live[end]
            choice[end] = window[0]
    return new_costs, choice


def _live_bytes(nodes: Sequence[ir.Node]) -> list[int]:
    """Return, for a cut before each position, the bytes written before it and read after it."""
    flow = Dataflow.of(nodes)
    steps = [0] * (len(nodes) + 1)
    for value, producer in flow.producer.items():
        readers = flow.readers.get(value)
        if readers:
            size = value_bytes(value) or 0
            steps[producer + 1] += size
            steps[readers[-1] + 1] -= size
    live = 0
    result: list[int] = []
    for step in steps:
        live += step
        result.append(live)
    return result


@dataclass(frozen=True)
class _Touches:
    """What every node touches in memory, with the neighbouring touches of the same value."""

    weights: list[list[tuple[ir.Value, int]]]
    """Weights read by each node, with their bytes."""
    activations: list[list[tuple[int, int, int]]]
    """For each node the activations it reads or writes: positions of the touch before (-1: none)
    and of the one after (number of nodes: none), and bytes."""

    @classmethod
    def of(cls, nodes: Sequence[ir.Node], target: Target) -> _Touches:
        weights: list[list[tuple[ir.Value, int]]] = []
        touched: list[list[ir.Value]] = []
        for node in nodes:
            operands = data_reads(node, target)
            weights.append([(v, value_bytes(v) or 0) for v in operands if is_weight(v)])
            touched.append([v for v in (*operands, *node.outputs) if not is_weight(v)])
        after: dict[ir.Value, int] = {}
        following: list[list[int]] = []
        for position in range(len(nodes) - 1, -1, -1):
            following.append([after.get(value, len(nodes)) for value in touched[position]])
            after.update(dict.fromkeys(touched[position], position))
        following.reverse()
        before: dict[ir.Value, int] = {}
        activations: list[list[tuple[int, int, int]]] = []
        for position, values in enumerate(touched):
            activations.append(
                [
                    (before.get(value, -1), following[position][index], value_bytes(value) or 0)
                    for index, value in enumerate(values)
                ]
            )
            before.update(dict.fromkeys(values, position))
        return cls(weights=weights, activations=activations)


class _Window:
    """The memory needed by a run of nodes, while nodes are added at its end or taken at its start.

    Attributes:
        start: First node of the run.
        end: The node after the last one.
    """

    def __init__(self, touches: _Touches) -> None:
        self.start = 0
        self.end = 0
        self._touches = touches
        self._live = np.zeros(len(touches.weights), dtype=np.int64)
        self._users: dict[ir.Value, int] = {}
        self._weight_bytes = 0

    def extend(self, position: int) -> None:
        """Add the node at ``position``, which is the next one."""
        for weight, size in self._touches.weights[position]:
            if not self._users.get(weight):
                self._weight_bytes += size
            self._users[weight] = self._users.get(weight, 0) + 1
        for before, _, size in self._touches.activations[position]:
            first = before + 1 if before >= self.start else position
            self._live[first : position + 1] += size
        self.end = position + 1

    def drop(self) -> None:
        """Take away the first node."""
        for weight, size in self._touches.weights[self.start]:
            self._users[weight] -= 1
            if not self._users[weight]:
                self._weight_bytes -= size
        for _, after, size in self._touches.activations[self.start]:
            if after < self.end:
                self._live[self.start + 1 : after] -= size
        self.start += 1

    def bytes(self) -> int:
        """Return weights plus the largest live set."""
        live = self._live[self.start : self.end]
        return self._weight_bytes + (int(live.max()) if len(live) else 0)


def _reach(touches: _Touches, capacity: int) -> list[int]:
    """Return, for each start, the furthest end of a section that fits; at least one node."""
    window = _Window(touches)
    count = len(touches.weights)
    reach: list[int] = []
    fits = 0
    for start in range(count):
        if window.end == start:
            window.extend(start)
        # The window holds one node more than was last found to fit, so that a step costs little.
        while window.bytes() <= capacity:
            fits = window.end
            if window.end == count:
                break
            window.extend(window.end)
        fits = max(fits, start + 1)
        reach.append(fits)
        window.drop()
    return reach


def _depth_first(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Return nodes in an order that finishes one operand before it begins the next."""
    flow = Dataflow.of(nodes)
    done = [False] * len(nodes)
    order: list[ir.Node] = []
    for root in range(len(nodes)):
        if flow.successors(root):
            continue
        stack = [(root, iter(flow.predecessors(root)))]
        while stack:
            position, waiting = stack[-1]
            needed = next((before for before in waiting if not done[before]), None)
            if needed is not None:
                stack.append((needed, iter(flow.predecessors(needed))))
                continue
            stack.pop()
            if not done[position]:
                done[position] = True
                order.append(nodes[position])
    return order
