"""Groups nodes into pieces that run on one side, the RDU or the host, in as few pieces as possible.

Every group is a run of nodes with one home, and the homes of the groups alternate, so that each
step from one group to the next is a boundary between RDU and CPU. How few there can be is fixed by
the graph: a node must come after every node that it needs, and where the homes differ, in a later
group. The smallest possible group number of a node is therefore the largest over its predecessors,
plus one for each change of home, and the whole graph needs as many groups as the largest number
found, starting with whichever home needs fewer.

Which values cross the link does not depend on the grouping at all: a value written on one side and
read on the other crosses once, wherever its reader is. What does depend on it is how many bytes the
device must keep in memory from one RDU group to the next. Nodes that may run in several groups are
placed so that these are fewest, by a minimum cut for each pair of neighbouring RDU groups.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from samba_onnx.passes.timing.node_work import value_bytes
from samba_onnx.program.dataflow import Dataflow
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.minimum_cut import SINK, SOURCE, Network

if TYPE_CHECKING:
    from samba_onnx.passes.planning.placement import Placement

# A second of time at ten times as many, and a graph of many fallbacks has hundreds of boundaries.
CUT_LIMIT = 1000
"""Movable nodes up to which a minimum cut is computed; above, they run as early as possible."""


class Home(enum.StrEnum):
    """The side that a group of nodes runs on."""

    RDU = "rdu"
    CPU = "cpu"


@dataclass(frozen=True)
class Group:
    """Nodes that run on one side without a switch in between, in topological order."""

    home: Home
    nodes: tuple[ir.Node, ...]
    type: SectionType = SectionType.FWD
    """What the group does in a training or inference step."""
    rule: str = ""
    """The rule of fusion that made it a section; empty where none did."""


def partition(model: ir.Model, placement: Placement) -> tuple[Group, ...]:
    """Return the graph's nodes in groups, in the order in which they run.

    Args:
        model: A model with its main graph in topological order. Values that the bodies of a node
            read from outside count as operands of that node.
        placement: Which nodes must run on the CPU; all others run on the RDU.

    Returns:
        The smallest number of groups that runs every node after those it needs; homes alternate,
        and within a group the order is that of the model. No groups for a graph without nodes.
    """
    flow = Dataflow.of(model.graph)
    homes = [Home.CPU if node in placement.reasons else Home.RDU for node in flow.nodes]
    return group(flow, homes)


def group(
    flow: Dataflow, homes: Sequence[Home], at_load: Collection[ir.Node] = ()
) -> tuple[Group, ...]:
    """Return nodes in the smallest number of groups of alternating home.

    Args:
        flow: The nodes in topological order and their dependencies.
        homes: The side of each node.
        at_load: Nodes that read nothing but weights and results of each other. Those of them on the
            CPU join the group of the first node that reads them.

    Returns:
        Groups in execution order, as ``partition`` describes them.
    """
    # Which side begins is not known beforehand, and may save a switch: both are tried.
    candidates = [
        (_fewest_kept_bytes(flow, homes, _earliest(flow, homes, start)), start) for start in Home
    ]
    phases, start = min(
        candidates,
        key=lambda entry: (len(set(entry[0])), _kept_bytes(flow, homes, entry[0])),
    )
    if at_load:
        phases = _beside_readers(flow, homes, phases, at_load)
    members: dict[int, list[ir.Node]] = {phase: [] for phase in sorted(set(phases))}
    for node, phase in zip(flow.nodes, phases, strict=True):
        members[phase].append(node)
    other = Home.CPU if start is Home.RDU else Home.RDU
    return tuple(
        Group(home=other if phase % 2 else start, nodes=tuple(nodes))
        for phase, nodes in members.items()
    )


def _beside_readers(
    flow: Dataflow, homes: Sequence[Home], phases: Sequence[int], at_load: Collection[ir.Node]
) -> list[int]:
    """Move nodes that are computed at load to the phase of their first reader.

    Those that read each other stay together, so that a fallback needs nothing of another one at load.
    """
    movable = {
        position
        for position, node in enumerate(flow.nodes)
        if homes[position] is Home.CPU and node in at_load
    }
    if not movable:
        return list(phases)
    # Only where something is computed at load, for it takes a while to load itself.
    import networkx

    # Tied in either direction: at load, a fallback has nothing that another one computes.
    ties: networkx.Graph[int] = networkx.Graph()
    ties.add_nodes_from(movable)
    for position in movable:
        ties.add_edges_from((position, p) for p in flow.successors(position) if p in movable)
    moved = list(phases)
    for tied in networkx.connected_components(ties):
        readers = {p for position in tied for p in flow.successors(position)} - tied
        # Before the first reader. One on the RDU needs results of the phase before its own, one on the CPU
        # is joined.
        latest = min(
            (phases[p] - (homes[p] is Home.RDU) for p in readers),
            default=max(phases[p] for p in tied),
        )
        for position in tied:
            moved[position] = latest
    return moved


def _earliest(flow: Dataflow, homes: Sequence[Home], start: Home) -> list[int]:
    """Return the smallest phase of each node, when phase 0 runs on ``start``."""
    phases: list[int] = []
    for position, home in enumerate(homes):
        phase = 0 if home is start else 1
        for before in flow.predecessors(position):
            phase = max(phase, phases[before] + (homes[before] is not home))
        phases.append(phase)
    return phases


def _latest(flow: Dataflow, homes: Sequence[Home], phases: Sequence[int]) -> list[int]:
    """Return the largest phase of each RDU node while the CPU nodes stay where they are."""
    last = max((p for p, home in zip(phases, homes, strict=True) if home is Home.RDU), default=0)
    latest = list(phases)
    for position in range(len(homes) - 1, -1, -1):
        if homes[position] is Home.RDU:
            bounds = (
                latest[after] - (homes[after] is Home.CPU) for after in flow.successors(position)
            )
            latest[position] = min(bounds, default=last)
    return latest


def _weights(flow: Dataflow, homes: Sequence[Home]) -> dict[ir.Value, int]:
    """Return the bytes of the values that stay on the RDU, and need device memory only if kept."""
    return {
        value: value_bytes(value) or 0
        for value, position in flow.producer.items()
        if homes[position] is Home.RDU
        and value in flow.readers
        and not value.is_graph_output()
        and all(homes[reader] is Home.RDU for reader in flow.readers[value])
    }


def _kept_bytes(flow: Dataflow, homes: Sequence[Home], phases: Sequence[int]) -> int:
    """Return the bytes kept from phase to phase; a value counts once for each switch that it outlives."""
    total = 0
    for value, size in _weights(flow, homes).items():
        last = max(phases[reader] for reader in flow.readers[value])
        total += size * (last - phases[flow.producer[value]])
    return total


def _fewest_kept_bytes(flow: Dataflow, homes: Sequence[Home], earliest: list[int]) -> list[int]:
    """Move RDU nodes to later phases where fewer bytes are then kept between RDU phases.

    For each pair of neighbouring RDU phases this is a minimum cut between the nodes that have run
    and those that have not. Of several, the one that moves the most nodes is taken; these cuts
    are nested, so that taking one after the other is as good as taking all together.
    """
    latest = _latest(flow, homes, earliest)
    if latest == earliest:
        return earliest
    phases = list(earliest)
    weights = _weights(flow, homes)
    free: dict[int, list[int]] = {}
    for position, phase in enumerate(phases):
        if phase < latest[position]:
            free.setdefault(phase, []).append(position)
    # Homes alternate, so that every second phase is one of the RDU.
    for boundary in range(min(free), max(phases), 2):
        candidates = [p for p in sorted(free.get(boundary, ())) if boundary < latest[p]]
        # As early as possible is right, too: it only may keep more bytes in device memory.
        if candidates and len(candidates) <= CUT_LIMIT:
            for position in _run_after(flow, weights, candidates, phases, boundary):
                phases[position] = boundary + 2
                free.setdefault(boundary + 2, []).append(position)
    return phases


def _run_after(
    flow: Dataflow,
    weights: dict[ir.Value, int],
    free: Sequence[int],
    phases: Sequence[int],
    boundary: int,
) -> list[int]:
    """Return the free nodes that should run after a switch.

    Args:
        flow: All nodes.
        weights: Bytes of the values to be counted.
        free: Positions of the nodes that may run on either side.
        phases: The phase of every node; of the nodes that are not free, those up to ``boundary``
            run before the switch.
        boundary: The phase before the switch.

    Returns:
        Positions, ascending; of several smallest cuts that with the most of them.
    """
    movable = set(free)

    def vertex(position: int) -> int | str:
        if position in movable:
            return position
        # The sink is what runs before the switch.
        return SINK if phases[position] <= boundary else SOURCE

    # Edges run backwards, from readers to producers: of all smallest cuts the one closest to the sink leaves
    # the most behind the switch, the same for every order of the nodes.
    network = Network()
    values: dict[ir.Value, None] = {}
    for position in free:
        values.update(dict.fromkeys(flow.reads[position]))
        values.update(dict.fromkeys(flow.nodes[position].outputs))
        for earlier in flow.predecessors(position):
            # Endless: nothing runs before the switch that needs a result from behind it.
            network.edge(vertex(earlier), position)
    for value in values:
        if value in weights:
            network.edge(value, vertex(flow.producer[value]), weights[value])
            for reader in flow.readers[value]:
                network.edge(vertex(reader), value)
    before = network.behind_cut()
    return [position for position in free if position not in before]
