"""What would change if the target ran what it refuses: one reason at a time, and all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import qualified
from samba_onnx.passes.planning.islands import demote_islands
from samba_onnx.passes.planning.measuring import Measure, measure
from samba_onnx.passes.planning.optimum import Machine, cheapest_placement
from samba_onnx.passes.planning.placement import Placement
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.targets import Support
from samba_onnx.passes.targets.checks import is_static
from samba_onnx.passes.targets.reasons import OF_VALUES, Reason, ReasonCode
from samba_onnx.passes.timing.node_work import value_bytes
from samba_onnx.pef.changes import Bound, Change
from samba_onnx.program.dataflow import name_of, reads

_MOST_NODES: Final = 100_000
"""Nodes that are placed to measure the changes of a graph, at most: plans of a large one take seconds."""
_LEAST_CHANGES: Final = 3
"""Changes that are measured however large the graph is."""

Advise = Callable[[ir.Node, Reason], str]
"""Returns what to write in the place of a node that falls back for a reason."""


@dataclass(frozen=True)
class PlacedGraph:
    """A graph as it is planned, of which plans with other placements are asked for."""

    name: str
    model: ir.Model
    placement: Placement
    """By what the target supports."""
    roles: Roles
    machine: Machine
    pinned: Collection[str]
    """Names of values that other graphs of the PEF know."""
    optimal: bool
    """Whether supported nodes may move to the CPU."""

    def lifted(self, nodes: Collection[ir.Node]) -> Measure:
        """Return what a run costs if the target ran some nodes that it refuses."""
        supports = dict(self.placement.supports) | dict.fromkeys(nodes, Support(None))
        reasons = {n: s.reason for n, s in supports.items() if s.reason is not None}
        placement = Placement(reasons, supports)
        machine = self.machine
        # Islands are looked for anew: sizes that the CPU computes for a refused node only are the RDU's
        # once it takes it.
        strict = demote_islands(self.model, placement, machine.target, machine.level, machine.rules)
        chosen = measure(self.model, strict, self.machine, self.roles)
        if self.optimal:
            proposal = cheapest_placement(
                self.model.graph, strict, self.roles, self.machine, self.pinned
            )
            if proposal is not None:
                other = measure(self.model, proposal, self.machine, self.roles)
                # As the compiler chooses, which plans both.
                chosen = other if other.is_preferred(chosen) else chosen
        return chosen


def changes(graph: PlacedGraph, advise: Advise) -> tuple[tuple[Change, ...], Bound | None]:
    """Measure what each reason costs by planning without it.

    Args:
        graph: A graph and its placement.
        advise: Returns what to write instead of a node.

    Returns:
        A change for each operator and reason that an operator table could lift, the one that saves most
        first; of a large graph those with most nodes only. And what a run would cost if all nodes ran on
        the RDU; None where they do.
    """
    groups: dict[tuple[ReasonCode, str], dict[ir.Node, Reason]] = {}
    refused = {n: s.reason for n, s in graph.placement.supports.items() if s.reason is not None}
    for node, reason in refused.items():
        # A value without a size cannot be copied to a device, whatever operators that has.
        if reason.code not in OF_VALUES and _has_sizes(node):
            # Nodes of a type that is refused are one cause, whatever they compute: where one of them gets another
            # type, so do its neighbours, and one alone would save nothing.
            subject = reason.dtype or qualified(node.domain, node.op_type)
            groups.setdefault((reason.code, subject), {})[node] = reason
    if not refused:
        return (), None
    # Not read off the plan that there is: differences are those of lifting alone only if both are measured
    # alike.
    now = graph.lifted(())
    # Every change is one placement of the whole graph more, so that a large one has time for few.
    most = max(_LEAST_CHANGES, _MOST_NODES // max(len(graph.placement.supports), 1))
    # Those with most nodes are likeliest to be worth something.
    largest = sorted(groups.items(), key=lambda item: -len(item[1]))[:most]
    measured = [_change(graph, now, reasons, advise) for _, reasons in largest]
    # Seconds may be equal, as where copies go on beside sections: then bytes decide.
    ranked = sorted(measured, key=lambda change: (-change.seconds, -change.bytes))
    return tuple(ranked), _bound(graph, refused)


def _has_sizes(node: ir.Node) -> bool:
    """Return whether all values of a node could be copied to a device: strings could not."""
    values = (*reads(node), *(value for value in node.outputs if value.name))
    return is_static(node) and all(value_bytes(value) is not None for value in values)


def _change(
    graph: PlacedGraph,
    now: Measure,
    reasons: Mapping[ir.Node, Reason],
    advise: Advise,
) -> Change:
    saved = now.minus(graph.lifted(reasons))
    cause = next(iter(reasons.values()))
    advice = Counter(advise(node, reason) for node, reason in reasons.items())
    # An option before a change of the program; then what most nodes are told, for those of one type have one cause.
    text = max(advice, key=lambda text: (text.startswith("--"), advice[text]))
    operators = Counter(qualified(node.domain, node.op_type) for node in reasons)
    return Change(
        graph=graph.name,
        code=cause.code.value,
        operator=", ".join(operator for operator, _ in operators.most_common()),
        nodes=tuple(name_of(node) for node in reasons),
        transfers=saved.transfers,
        bytes=saved.bytes,
        seconds=saved.seconds,
        advice=text,
        dtype=cause.dtype,
    )


def _bound(graph: PlacedGraph, refused: Collection[ir.Node]) -> Bound | None:
    """Return the cost of a run without fallbacks; None where values have no static shape."""
    if not all(map(_has_sizes, refused)):
        return None
    everything = graph.lifted(refused)
    return Bound(graph.name, everything.transfers, everything.bytes, everything.seconds)
