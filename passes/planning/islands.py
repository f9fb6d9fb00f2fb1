"""Moves small islands of index arithmetic to the CPU that computes for nobody but the CPU.

In a model that is partly dynamic, the nodes around a dynamic operator compute its sizes, axes and
positions: a Gather, an Add, a Concat on a handful of integers. The target can run each of them, but
on the RDU they would cost more copies over the link than they have operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from samba_onnx.facts.domains import qualified
from samba_onnx.passes.planning.fusion.patterns import NO_RULES, FusionRules
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.placement import Placement
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.planning.scheduling import boundaries, run_transfers, schedule
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.planning.stages import interfaces
from samba_onnx.passes.sharding.collectives import is_collective
from samba_onnx.passes.targets import Target
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from samba_onnx.passes.targets.rows import DTYPE_NAMES
from samba_onnx.program.dataflow import Dataflow, dimensions, is_weight

LARGEST = 64
"""Elements up to which a tensor counts as a size, an axis or a position rather than as data."""
INDEX_TYPES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL})
"""Data types of what an island reads and of what it is for; inside it scale factors are floats."""


def demote_islands(
    model: ir.Model,
    placement: Placement,
    target: Target,
    level: str,
    rules: FusionRules = NO_RULES,
) -> Placement:
    """Move nodes from the RDU to the CPU where that saves copies and costs none.

    A node is moved when all of this holds:

    1. None of its operands and results has more than 64 elements.
    2. Each operand is a constant, comes from another node that is moved, or is a value of int64,
       int32 or bool that is on the host anyway: a graph input, or read or written by a node that
       the target cannot run.
    3. Each result is read by other nodes that are moved, or is of int64, int32 or bool and read by
       nodes that the target cannot run or returned to the caller; no node that stays on the RDU
       reads it.
    4. It belongs to an island, that is nodes connected by such values, which reads from or writes
       to a node that the target cannot run, and has a result that the host needs.

    Everything is left as it is when the calls that pass values to each other over the link would
    become more pairs than before.

    Args:
        model: The model that was placed.
        placement: Where its nodes run by what the target supports.
        target: The device.
        level: How RDU groups will be cut into sections.
        rules: The rules of fusion of ``o1``.

    Returns:
        The placement with a reason for every node that was moved.
    """
    flow = Dataflow.of(model.graph)
    on_cpu = [node in placement.reasons for node in flow.nodes]
    view = _View(flow, on_cpu, {p for p, cpu in enumerate(on_cpu) if not cpu})
    view.shrink()
    reasons = dict(placement.reasons)
    for island in view.islands():
        reasons.update(_explain(view, island, placement.reasons))
    if len(reasons) == len(placement.reasons):
        return placement
    moved = replace(placement, reasons={n: reasons[n] for n in flow.nodes if n in reasons})
    # A node that leaves a section may tear it apart, which makes more boundaries than copies are saved.
    before, after = (_pairs(model, p, target, level, rules) for p in (placement, moved))
    if after > before:
        return placement
    return moved


@dataclass
class _View:
    """The nodes that may be moved, as far as is known."""

    flow: Dataflow
    on_cpu: list[bool]
    candidates: set[int]
    """Positions of nodes."""

    def shrink(self) -> None:
        """Strike out nodes until rules 1 to 3 hold for all that are left: the largest such set."""
        pending = sorted(self.candidates)
        while pending:
            position = pending.pop()
            if position in self.candidates and not self._may_move(position):
                self.candidates.remove(position)
                # A node that stays may be what its neighbours counted on: they are looked at again.
                pending.extend(self.flow.predecessors(position))
                pending.extend(self.flow.successors(position))

    def islands(self) -> list[list[int]]:
        """Return the candidates in connected groups for which rule 4 holds, in graph order."""
        unvisited = set(self.candidates)
        closed: list[list[int]] = []
        for first in sorted(self.candidates):
            if first not in unvisited:
                continue
            unvisited.remove(first)
            island, pending = [first], [first]
            while pending:
                position = pending.pop()
                near = (*self.flow.predecessors(position), *self.flow.successors(position))
                new = unvisited.intersection(near)
                unvisited -= new
                island.extend(new)
                pending.extend(new)
            if self.neighbours(island) and self.results(island):
                closed.append(sorted(island))
        return closed

    def neighbours(self, island: Iterable[int]) -> list[int]:
        """Return the CPU nodes around an island: those that read from it, then those it reads."""
        after = [p for i in island for p in self.flow.successors(i) if self.on_cpu[p]]
        before = [p for i in island for p in self.flow.predecessors(i) if self.on_cpu[p]]
        return [*after, *before]

    def operands(self, island: Iterable[int]) -> dict[ir.Value, None]:
        """Return the values that would be copied to the RDU for an island only."""
        values = (value for i in island for value in self.flow.reads[i] if not is_weight(value))
        return dict.fromkeys(v for v in values if self._from_host(v) and not self._read_by_rdu(v))

    def results(self, island: Iterable[int]) -> dict[ir.Value, None]:
        """Return the values that an island writes and that would be copied back for the host."""
        values = (value for i in island for value in self.flow.nodes[i].outputs)
        return dict.fromkeys(v for v in values if v.is_graph_output() or self._read_by_cpu(v))

    def _may_move(self, position: int) -> bool:
        outputs = [v for v in self.flow.nodes[position].outputs if v.name]
        # The host has the values of one RDU, and an exchange is with all of them.
        if is_collective(self.flow.nodes[position]):
            return False
        # Rule 1 before 2 and 3: a look at shapes strikes out most nodes of a model.
        return all(_is_small(v) for v in (*self.flow.reads[position], *outputs)) and (
            all(self._operand_fits(v) for v in self.flow.reads[position])
            and all(self._result_fits(v) for v in outputs)
        )

    def _operand_fits(self, value: ir.Value) -> bool:
        if self.flow.producer.get(value) in self.candidates or is_weight(value):
            return True
        on_host = self._from_host(value) or self._read_by_cpu(value)
        return on_host and value.dtype in INDEX_TYPES

    def _result_fits(self, value: ir.Value) -> bool:
        if self._read_by_rdu(value):
            return False
        is_read_outside = value.is_graph_output() or self._read_by_cpu(value)
        return not is_read_outside or value.dtype in INDEX_TYPES

    def _from_host(self, value: ir.Value) -> bool:
        producer = self.flow.producer.get(value)
        return producer is None or self.on_cpu[producer]

    def _read_by_rdu(self, value: ir.Value) -> bool:
        """Return whether a node reads the value that stays on the RDU."""
        readers = self.flow.readers.get(value, ())
        return any(not self.on_cpu[r] and r not in self.candidates for r in readers)

    def _read_by_cpu(self, value: ir.Value) -> bool:
        return any(self.on_cpu[reader] for reader in self.flow.readers.get(value, ()))


def _is_small(value: ir.Value) -> bool:
    shape = dimensions(value)
    if shape is None:
        return False
    sizes = [size for size in shape if isinstance(size, int)]
    # A size that is not known may be large.
    return len(sizes) == len(shape) and math.prod(sizes) <= LARGEST


def _explain(
    view: _View, island: list[int], reasons: Mapping[ir.Node, Reason]
) -> dict[ir.Node, Reason]:
    """Return the reason of every node of an island, with the hint that would free its readers."""
    copies = len(view.operands(island)) + len(view.results(island))
    # Readers come first: an island is computed for them, and what lets the RDU run them lets it have the
    # island.
    hints = (reasons[view.flow.nodes[p]].hint for p in view.neighbours(island))
    hint = next((hint for hint in hints if hint), "")
    who = "it" if len(island) == 1 else f"this island of {len(island)} nodes"
    cost = f"on the RDU {who} would cost {copies} transfer{'s' if copies > 1 else ''}"
    return {
        node: Reason(
            ReasonCode.ISLAND,
            f"{qualified(node.domain, node.op_type)} computes {_contents(node)} that only the host needs; {cost}",
            hint,
        )
        for node in (view.flow.nodes[position] for position in island)
    }


def _contents(node: ir.Node) -> str:
    """Say what a node computes: ``3 int64 values``."""
    counts: dict[str, int] = {}
    for value in node.outputs:
        if value.name and value.dtype is not None:
            name = DTYPE_NAMES[value.dtype]
            elements = math.prod(size for size in dimensions(value) or () if isinstance(size, int))
            counts[name] = counts.get(name, 0) + elements
    several = sum(counts.values()) != 1
    return " and ".join(f"{count} {name}" for name, count in counts.items()) + (
        " values" if several else " value"
    )


def _pairs(
    model: ir.Model, placement: Placement, target: Target, level: str, rules: FusionRules
) -> int:
    """Return the number of boundaries that a report of the placement would show."""
    groups = cut(partition(model, placement), target, level, rules)
    stages = interfaces(model.graph, groups, target)
    transfers = run_transfers(Roles.of(model.graph), stages, target.summary)
    return len(boundaries(stages, schedule(0, len(stages)), transfers))
