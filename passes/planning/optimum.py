"""The placement that a run takes the least modelled time with, where some nodes must run on the CPU.

What the target cannot run has its home on the CPU. Every other node has a choice, and all choices
together are one minimum cut (:mod:`samba_onnx.passes.planning.cheapest_homes`) of this objective:

- a node on the RDU costs the longer of its arithmetic and of reading its weights from off-chip memory,
  at ``o0`` of everything that it reads and writes, and a launch, for then it is a section;
- a node on the CPU costs what the host's profile says, or nothing if it computes from weights only,
  which the host does once, when they are loaded;
- a value costs a copy, latency and bytes over the link and through off-chip memory, where it is
  written on one side and needed on the other: once in each direction, whoever reads it there.
  Graph inputs are on the host, and graph outputs are needed there; residents are on the device.
  Weights cost nothing: the device has its copy of them, and the host its own.

What the start of a section or fallback costs depends on how nodes are grouped, which no cut knows.
Therefore a cut is a proposal: whoever asks for it compares the whole plan with the one that puts
everything on the RDU that can run there.

A model is ported for the RDU, also one that is so small that a CPU would do it all in less time than
one copy takes. Therefore the bulk of the arithmetic stays on the RDU: the fewest nodes that together
do 99 of 100 operations of those that the target supports, and all that do as many as the least of
these. And a supported node moves only beside one that is not supported: nodes that are moved without
such a one among those that values connect them with are put back, and a graph of supported nodes
only has nothing to cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import qualified
from samba_onnx.facts.operator_facts import Randomness
from samba_onnx.facts.operators import facts
from samba_onnx.passes.planning.allocation import off_chip_tiers
from samba_onnx.passes.planning.cheapest_homes import CutProblem, CutValue, components, value_cost
from samba_onnx.passes.planning.fusion.patterns import NO_RULES, FusionRules
from samba_onnx.passes.planning.partitioning import Home
from samba_onnx.passes.planning.placement import Placement
from samba_onnx.passes.planning.roles import Roles, known_at_load
from samba_onnx.passes.sharding.collectives import is_collective
from samba_onnx.passes.targets import Target
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from samba_onnx.passes.timing.hosts import host_seconds
from samba_onnx.passes.timing.node_work import node_flops, value_bytes
from samba_onnx.passes.timing.section_terms import section_terms
from samba_onnx.passes.timing.traffic import crossing_seconds, data_reads
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.program.dataflow import Dataflow, is_weight, name_of

_BULK: Final = 0.99
"""Share of the arithmetic that stays on the RDU."""
# Whole numbers add up to the same in every order, so that homes of equal cost are seen to be equal.
_PER_SECOND: Final = 10**12
"""Units of cost: picoseconds."""


@dataclass(frozen=True)
class Machine:
    """What a graph is placed on."""

    target: Target
    host: HostSummary
    level: str
    """``o0``, ``o1`` or ``o3``."""
    rules: FusionRules = NO_RULES
    """The rules of fusion of ``o1``."""


def cheapest_placement(
    graph: ir.Graph,
    placement: Placement,
    roles: Roles,
    machine: Machine,
    pinned: Collection[str] = (),
) -> Placement | None:
    """Propose a placement that costs less than one by what the target supports.

    Args:
        graph: A graph in topological order.
        placement: The placement by what the target supports; reasons that it has are kept.
        roles: What inputs and outputs of the graph are to the device.
        machine: The device, the CPU and the level.
        pinned: Names of values that other graphs of the PEF know: their nodes stay where they are.

    Returns:
        The proposal, with a reason for every node that it moves; None where it would move none.
    """
    flow = Dataflow.of(graph)
    unsupported = {
        p for p, node in enumerate(flow.nodes) if placement.supports[node].reason is not None
    }
    # Without a fallback there is nothing to move beside; spatial mapping takes no node on the CPU at all.
    if not unsupported or roles.spatial_batches:
        return None
    view = _View(flow, roles, machine, placement, known_at_load(flow.nodes, roles), pinned)
    problem = view.problem(unsupported)
    homes = problem.solve()
    moved = [p for p, home in enumerate(homes) if home is Home.CPU]
    touching = problem.touching()
    reasons: dict[ir.Node, Reason] = {}
    for component in components(problem, moved):
        # What moved without a fallback beside it goes back: a model is ported for the RDU, however small it
        # is.
        if not unsupported.isdisjoint(component):
            reasons |= view.explain(problem, touching, component, unsupported)
    # A proposal that moves nothing would be planned and measured for the same result.
    if reasons.keys() == placement.reasons.keys():
        return None
    return replace(placement, reasons={n: reasons[n] for n in flow.nodes if n in reasons})


@dataclass(frozen=True)
class _View:
    """The parts of a graph and of its surroundings that its cut depends on."""

    flow: Dataflow
    roles: Roles
    machine: Machine
    placement: Placement
    at_load: frozenset[ir.Node]
    pinned: Collection[str]

    def problem(self, unsupported: Collection[int]) -> CutProblem:
        """Return the costs of all nodes and values."""
        nodes = self.flow.nodes
        times = [None if p in unsupported else self._cpu(node) for p, node in enumerate(nodes)]
        fixed = dict.fromkeys(unsupported, Home.CPU)
        bulk = self._bulk()
        for position, node in enumerate(nodes):
            stays = times[position] is None or position in bulk or self._stays(node)
            if position not in unsupported and stays:
                on_rdu = self.placement.on_rdu(node)
                fixed[position] = Home.RDU if on_rdu else Home.CPU
        # The target says nothing about the time of what it cannot run, and with one home no cost counts.
        rdu = (0 if p in unsupported else self._rdu(node) for p, node in enumerate(nodes))
        return CutProblem(
            rdu=tuple(rdu),
            cpu=tuple(time or 0 for time in times),
            fixed=fixed,
            values=tuple(self._values()),
        )

    def explain(
        self,
        problem: CutProblem,
        touching: Mapping[int, Sequence[CutValue]],
        component: Sequence[int],
        unsupported: Collection[int],
    ) -> Mapping[ir.Node, Reason]:
        """Return the reasons of nodes that run on the CPU together."""
        nodes, causes = self.flow.nodes, self.placement.reasons
        tied = [position for position in component if position in unsupported]
        supported = [position for position in component if nodes[position] not in causes]
        saved = _saving(problem, touching, component, supported) / _PER_SECOND
        # What lets the RDU run a fallback lets it have the nodes beside it, too.
        hint = next((h for p in tied if (h := causes[nodes[p]].hint)), "")
        beside = nodes[tied[0]]
        reasons: dict[ir.Node, Reason] = {}
        for node in (nodes[position] for position in component):
            reasons[node] = causes.get(node) or Reason(
                ReasonCode.CHEAPER, self._sentence(node, beside, len(supported), saved), hint
            )
        return reasons

    def _sentence(self, node: ir.Node, beside: ir.Node, count: int, saved: float) -> str:
        name, other = (qualified(n.domain, n.op_type) for n in (node, beside))
        who = "it" if count == 1 else f"these {count} nodes"
        if node in self.at_load:
            why = f"computes from weights only what the CPU reads for {other} {beside.name!r}"
            return f"{name} {why}: once, when they are loaded, in place of copies in every run"
        why = f"could run on {self.machine.target.summary.name}, but is cheaper beside"
        return (
            f"{name} {why} {other} {beside.name!r}: {who} there save {saved * 1e6:.3g} µs per run"
        )

    def _bulk(self) -> frozenset[int]:
        """Return the nodes that a model is ported for: those that do nearly all of its arithmetic."""
        work = {
            position: node_flops(node)
            for position, node in enumerate(self.flow.nodes)
            if self.placement.on_rdu(node)
        }
        remaining, least = _BULK * sum(work.values()), 0
        for operations in sorted(work.values(), reverse=True):
            if remaining <= 0:
                break
            remaining, least = remaining - operations, operations
        # Nodes that do as much as the least of them stay, too: equal layers must not be torn apart. Where
        # no node does anything, none is bulk.
        return frozenset(p for p, operations in work.items() if operations >= max(least, 1))

    def _stays(self, node: ir.Node) -> bool:
        """Return whether the cut must leave a supported node where it is."""
        row = facts(node.op_type, node.domain)
        if row is None or row.random is not Randomness.NEVER:
            return True  # the host would draw other numbers
        if is_collective(node):
            return True  # the host has no other RDU's values
        values = (*(value for value in node.inputs if value is not None), *node.outputs)
        return any(name_of(value) in self.pinned for value in values)

    def _cpu(self, node: ir.Node) -> int | None:
        if node in self.at_load:
            return 0
        seconds = host_seconds(node, self.machine.host)
        return None if seconds is None else round(seconds * _PER_SECOND)

    def _rdu(self, node: ir.Node) -> int:
        target, residents = self.machine.target, self.roles.residents
        read = data_reads(node, target)
        # Operands from other nodes are on the chip if they share a section, and weights and residents never
        # are.
        if self.machine.level != "o0":
            read = [value for value in read if is_weight(value) or value in residents]
        written = node.outputs if self.machine.level == "o0" else ()
        moved = [value_bytes(value) or 0 for value in (*read, *written)]
        tier = off_chip_tiers(target.summary)[0]
        terms = section_terms([node], {tier.name: moved}, target.summary)
        time = terms.time(target.summary)
        # Where operators share sections, one more of them is not one more launch.
        launch = time.launch if self.machine.level == "o0" else 0.0
        return round((launch + time.overlapped) * _PER_SECOND)

    def _values(self) -> list[CutValue]:
        """Return the values that copies may be made of."""
        graph_inputs = (v for v in self.flow.readers if v not in self.flow.producer)
        values = [self._value(value) for value in (*graph_inputs, *self.flow.producer)]
        return [value for value in values if value is not None]

    def _value(self, value: ir.Value) -> CutValue | None:
        roles, size = self.roles, value_bytes(value)
        # Weights are on both sides, argins are registers, and what the host knows it need not copy.
        if size is None or is_weight(value) or value in roles.argins or roles.known_to_host(value):
            return None
        producer, resident = self.flow.producer.get(value), value in roles.residents
        ends: set[Home] = set()
        if producer is not None:
            ends = {Home.RDU} if resident else set()
            if value in roles.outputs:
                ends.add(Home.CPU)
        start = Home.RDU if resident else Home.CPU
        target = self.machine.target.summary
        seconds = crossing_seconds(target, off_chip_tiers(target)[0], size)
        copy = round(seconds * _PER_SECOND)
        writer = start if producer is None else producer
        return CutValue(writer, self.flow.readers.get(value, ()), copy, copy, frozenset(ends))


def _saving(
    problem: CutProblem,
    touching: Mapping[int, Sequence[CutValue]],
    component: Sequence[int],
    chosen: Collection[int],
) -> int:
    """Return what it saves that the chosen nodes of a component are on the CPU, too."""
    values = {id(v): v for position in component for v in touching.get(position, ())}.values()

    def total(on_cpu: Collection[int]) -> int:
        # Whoever touches these values and is not in the component runs on the RDU: values connect all that
        # is on the CPU.
        homes = defaultdict(lambda: Home.RDU, dict.fromkeys(on_cpu, Home.CPU))
        computing = sum(problem.cpu[p] if p in on_cpu else problem.rdu[p] for p in component)
        return computing + sum(value_cost(value, homes) for value in values)

    return total(set(component) - set(chosen)) - total(set(component))
