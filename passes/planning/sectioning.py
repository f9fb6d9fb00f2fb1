"""Cuts groups of RDU nodes into sections: what the device runs in one go.

At ``o0`` every operator is a section of its own (:mod:`samba_onnx.passes.planning.origins`). At ``o1`` a section is what a rule of fusion matches
(:mod:`samba_onnx.passes.planning.fusion`), and every other operator one of its own. At ``o3`` a section is as large as on-chip memory
allows: its weights all at once, plus the largest set of activations that are live at the same time,
where an activation is live from the first node of the section that touches it to the last. Among
the ways to cut a group into the fewest sections, the one that keeps the fewest bytes in off-chip
memory across its cuts is taken.

Where a target states how sections are timed, activations are streamed: of each there is a tile on the chip,
and a product keeps the smallest of its operands and result. Then compute units bound a section as well,
and the way to cut is taken that costs the least in launches and copies to off-chip memory and back.

Parts of a group that no value connects share a section when they fit: they can lie beside each
other on the chip, and one call is cheaper than two. An operator that exceeds on-chip memory by
itself is a section of its own, whose operands are streamed.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx_ir as ir

from samba_onnx.errors import UsageError
from samba_onnx.passes.planning.allocation import off_chip_tiers
from samba_onnx.passes.planning.fusion.fusing import Piece, fuse
from samba_onnx.passes.planning.fusion.patterns import NO_RULES, FusionRules
from samba_onnx.passes.planning.origins import by_operator
from samba_onnx.passes.planning.partitioning import Group, Home
from samba_onnx.passes.sharding.collectives import is_collective
from samba_onnx.passes.timing.matrix_products import looked_up, stationary, units_of
from samba_onnx.passes.timing.node_work import value_bytes
from samba_onnx.passes.timing.traffic import data_reads, traffic_seconds
from samba_onnx.program.dataflow import Dataflow, is_weight
from samba_onnx.program.repetition import repetition

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
    # All groups at once: a pattern may say that an operator of another group, or on the CPU, is near.
    fused = iter(_fused(groups, rules) if level == "o1" else ())
    for group in groups:
        if group.home is Home.CPU:
            pieces.append(group)
        elif level == "o0":
            pieces.extend(Group(home=Home.RDU, nodes=nodes) for nodes in by_operator(group.nodes))
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
    if len(nodes) == 1 or (sram_bytes(nodes, target) <= capacity and _fit_units(nodes, target)):
        return (nodes,)
    return _cut(nodes, target, capacity)


def _fit_units(nodes: Sequence[ir.Node], target: Target) -> bool:
    """Return whether the device has compute units for all nodes of a section at once."""
    timing = target.summary.timing
    if timing is None:
        return True
    return sum(units_of(node, target.summary) for node in nodes) <= timing.compute_units


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


def _body_bytes(node: ir.Node, target: Target) -> int:
    """Return the on-chip memory of the values in a body: those of one step, for the next one takes their places.

    Weights that the body reads are operands of its node, which stay on the chip as those of any other.
    """
    repeated = repetition(node)
    if repeated is None:
        return 0
    weights = sum(value_bytes(v) or 0 for v in data_reads(node, target) if is_weight(v))
    return max(sram_bytes(tuple(repeated.body), target) - weights, 0)


def _cut(nodes: Sequence[ir.Node], target: Target, capacity: int) -> list[tuple[ir.Node, ...]]:
    """Return the sections that fit and cost least."""
    best = _sections(nodes, target, capacity)
    if len(best.starts) > 1:
        # The model's own order is kept unless depth first is better: fewer values wait.
        other = _sections(_depth_first(nodes), target, capacity)
        if other.cost < best.cost:
            best = other
    cuts = (*best.starts, len(best.nodes))
    return [best.nodes[a:b] for a, b in itertools.pairwise(cuts)]


_Cost: TypeAlias = tuple[int, float]
"""What sections cost: how many there are, then the bytes kept across their cuts. Where launches and
bandwidths are known, no number of sections but the seconds that they and the cuts take."""


@dataclass(frozen=True)
class _Sections:
    """A way to cut an order of nodes."""

    nodes: tuple[ir.Node, ...]
    starts: tuple[int, ...]
    cost: _Cost


def _sections(nodes: Sequence[ir.Node], target: Target, capacity: int) -> _Sections:
    """Return the sections of an order of nodes that cost least.

    By dynamic programming over the positions of cuts. A section that begins later reaches at least as
    far, so that the starts from which a position is reached are a window that moves to the right, in
    which those stay that are cheaper than all behind them.
    """
    timing = target.summary.timing
    reach = _reach(
        _Touches.of(nodes, target), capacity, 0 if timing is None else timing.compute_units
    )
    steps = _cut_costs(nodes, target)
    costs: list[_Cost] = [(0, 0.0)]
    choice = [0]
    window: deque[int] = deque([0])
    for end in range(1, len(nodes) + 1):
        while reach[window[0]] < end:
            window.popleft()
        start = window[0]
        costs.append((costs[start][0] + steps[end][0], costs[start][1] + steps[end][1]))
        choice.append(start)
        while window and costs[window[-1]] > costs[end]:
            window.pop()
        window.append(end)
    starts: list[int] = []
    position = len(nodes)
    while position:
        position = choice[position]
        starts.append(position)
    return _Sections(tuple(nodes), tuple(reversed(starts)), costs[len(nodes)])


def _cut_costs(nodes: Sequence[ir.Node], target: Target) -> list[_Cost]:
    """Return, for a section that ends before each position, what it costs with the cut behind it."""
    summary = target.summary
    if summary.timing is None:
        return [(1, live) for live in _live(nodes, lambda value: value_bytes(value) or 0)]
    outside, launch = off_chip_tiers(summary)[0].name, summary.timing.launch_seconds

    def twice(value: ir.Value) -> float:
        """Return what it takes to write a value and read it again."""
        return 2 * traffic_seconds(summary, {outside: [value_bytes(value) or 0]})

    return [(0, launch + live) for live in _live(nodes, twice)]


def _live(nodes: Sequence[ir.Node], price: Callable[[ir.Value], float]) -> list[float]:
    """Return, for a cut before each position, the price of values written before it and read after it."""
    flow = Dataflow.of(nodes)
    steps = [0.0] * (len(nodes) + 1)
    for value, producer in flow.producer.items():
        readers = flow.readers.get(value)
        if readers:
            cost = price(value)
            steps[producer + 1] += cost
            steps[readers[-1] + 1] -= cost
    return list(itertools.accumulate(steps))


@dataclass(frozen=True)
class _Touches:
    """What every node touches in memory, with the neighbouring touches of the same value."""

    weights: list[list[tuple[ir.Value, int]]]
    """What each node keeps on the chip as long as the section runs, with its bytes: weights that it
    reads, and what a product keeps while the rest of it streams past."""
    activations: list[list[tuple[int, int, int]]]
    """For each node the activations it reads or writes: positions of the touch before (-1: none)
    and of the one after (number of nodes: none), and bytes on the chip."""
    units: list[int]
    """Compute units that each node needs."""

    @classmethod
    def of(cls, nodes: Sequence[ir.Node], target: Target) -> _Touches:
        timing = target.summary.timing
        weights: list[list[tuple[ir.Value, int]]] = []
        touched: list[list[ir.Value]] = []
        for node in nodes:
            operands = data_reads(node, target)
            table = looked_up(node)
            staying = {v: value_bytes(v) or 0 for v in operands if is_weight(v) and v is not table}
            operand = None if timing is None else stationary(node, timing.tile_bytes)
            if operand is not None:
                # It may be a weight, of which all is there already.
                staying.setdefault(*operand)
            weights.append(list(staying.items()))
            touched.append([v for v in (*operands, *node.outputs) if v not in staying])
        tile = None if timing is None else timing.tile_bytes
        after: dict[ir.Value, int] = {}
        following: list[list[int]] = []
        for position in range(len(nodes) - 1, -1, -1):
            following.append([after.get(value, len(nodes)) for value in touched[position]])
            after.update(dict.fromkeys(touched[position], position))
        following.reverse()
        before: dict[ir.Value, int] = {}
        activations: list[list[tuple[int, int, int]]] = []
        for position, values in enumerate(touched):
            touches = [
                (before.get(value, -1), following[position][index], _tile(value, tile))
                for index, value in enumerate(values)
            ]
            inner = _body_bytes(nodes[position], target)
            if inner:  # as a value that only this node touches
                touches.append((-1, len(nodes), inner))
            activations.append(touches)
            before.update(dict.fromkeys(values, position))
        units = [units_of(node, target.summary) for node in nodes]
        return cls(weights=weights, activations=activations, units=units)


def _tile(value: ir.Value, tile: int | None) -> int:
    """Return what of a value is on the chip at a time."""
    size = value_bytes(value) or 0
    return size if tile is None else min(size, tile)


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
        # An array: a value that is touched far apart changes all positions between, in one step.
        self._live = np.zeros(len(touches.weights), dtype=np.int64)
        self._users: dict[ir.Value, int] = {}
        self._weight_bytes = 0
        self.units = 0

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
        self.units += self._touches.units[position]

    def drop(self) -> None:
        """Take away the first node."""
        for weight, size in self._touches.weights[self.start]:
            self._users[weight] -= 1
            if not self._users[weight]:
                self._weight_bytes -= size
        for _, after, size in self._touches.activations[self.start]:
            if after < self.end:
                self._live[self.start + 1 : after] -= size
        self.units -= self._touches.units[self.start]
        self.start += 1

    def bytes(self) -> int:
        """Return weights plus the largest live set."""
        live = self._live[self.start : self.end]
        return self._weight_bytes + (int(live.max()) if len(live) else 0)


def _reach(touches: _Touches, capacity: int, units: int) -> list[int]:
    """Return, for each start, the furthest end of a section that fits; at least one node."""
    window = _Window(touches)
    count = len(touches.weights)
    reach: list[int] = []
    fits = 0
    for start in range(count):
        if window.end == start:
            window.extend(start)
        # The window holds one node more than was last found to fit, so that a step costs little.
        while window.bytes() <= capacity and (not units or window.units <= units):
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
        # No recursion: a chain of operators is longer than Python's stack.
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
