"""What a placement costs in a run: transfers, bytes and modelled seconds, without the records of a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.passes.planning.allocation import off_chip_tiers
from samba_onnx.passes.planning.costs import cost, value_bytes
from samba_onnx.passes.planning.host_costs import host_seconds, known_at_load
from samba_onnx.passes.planning.islands import demote_islands
from samba_onnx.passes.planning.optimum import Machine
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.placement import Placement
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.planning.scheduling import run_transfers
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.planning.stages import interfaces
from samba_onnx.passes.planning.traffic import moved_bytes


@dataclass(frozen=True)
class Measure:
    """What one run is planned to cost."""

    transfers: int
    bytes: int
    """Copied between host and RDU."""
    seconds: float
    """Modelled: sections, fallbacks and transfers."""

    def minus(self, other: Measure) -> Measure:
        """Return by how much this one is more than another."""
        return Measure(
            self.transfers - other.transfers,
            self.bytes - other.bytes,
            self.seconds - other.seconds,
        )


def measure(
    model: ir.Model,
    placement: Placement,
    machine: Machine,
    roles: Roles,
    instead: Callable[[ir.Node], Sequence[ir.Node]] = lambda node: (node,),
) -> Measure:
    """Return what a run costs where nodes are placed so.

    Args:
        model: The model that was placed.
        placement: Where its nodes run, before index arithmetic moves to the CPU.
        machine: The device, the CPU and the level.
        roles: What its inputs and outputs are to the device.
        instead: Returns the nodes that a section would have in the place of one node.

    Returns:
        The sums. Off-chip traffic is taken to be of the fastest tier outside of the chip.
    """
    target, level, rules = machine.target, machine.level, machine.rules
    final = demote_islands(model, placement, target, level, rules)
    stages = interfaces(model.graph, cut(partition(model, final), target, level, rules), target)
    transfers = run_transfers(roles, stages, target.summary)
    outside = off_chip_tiers(target.summary)[0].name
    seconds = sum(transfer.seconds for transfer in transfers)
    at_load = known_at_load(model.graph, roles)
    for stage in stages:
        if not stage.on_rdu:
            nodes = [node for node in stage.group.nodes if node not in at_load]
            seconds += machine.host.call_seconds if nodes else 0.0
            seconds += sum(host_seconds(node, machine.host) or 0.0 for node in nodes)
        else:
            moved = (*stage.inputs, *stage.loaded, *stage.outputs)
            partly = moved_bytes(stage.group.nodes, roles.region)
            traffic = {outside: [partly.get(v, value_bytes(v) or 0) for v in moved]}
            written = [new for node in stage.group.nodes for new in instead(node)]
            seconds += cost(written, traffic, target.summary).seconds
    return Measure(len(transfers), sum(transfer.bytes for transfer in transfers), seconds)
