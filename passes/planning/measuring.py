"""What a placement costs in a run: transfers, bytes and modelled seconds, without the records of a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from samba_onnx.passes.planning.allocation import off_chip_tiers
from samba_onnx.passes.planning.islands import demote_islands
from samba_onnx.passes.planning.optimum import Machine
from samba_onnx.passes.planning.partitioning import partition
from samba_onnx.passes.planning.placement import Placement
from samba_onnx.passes.planning.records import section_record
from samba_onnx.passes.planning.roles import Roles, known_at_load
from samba_onnx.passes.planning.scheduling import run_transfers, schedule
from samba_onnx.passes.planning.sectioning import cut
from samba_onnx.passes.planning.stages import StageInterface, interfaces
from samba_onnx.passes.targets import Target
from samba_onnx.passes.timing.hosts import fallback_seconds, host_seconds
from samba_onnx.passes.timing.launches import SectionDraft, in_programs
from samba_onnx.passes.timing.node_work import value_bytes
from samba_onnx.passes.timing.schedule_time import schedule_time
from samba_onnx.passes.timing.traffic import moved_bytes
from samba_onnx.pef.manifest import Fallback, Graph, Section, Stage
from samba_onnx.program.dataflow import name_of

Instead = Callable[[ir.Node], Sequence[ir.Node]]
"""Returns the nodes that a section would have in the place of one node."""


@dataclass(frozen=True)
class Measure:
    """What one run is planned to cost."""

    transfers: int
    bytes: int
    """Copied between host and RDU."""
    seconds: float
    """Modelled, as a plan and its report have it."""
    fallbacks: int = 0
    """Groups of nodes on the CPU."""

    def is_preferred(self, strict: Measure) -> bool:
        """Return whether it is chosen in the place of the placement by what the target supports.

        A run has to be shorter, and no fallback more is worth that.
        """
        return self.seconds < strict.seconds and self.fallbacks <= strict.fallbacks

    def minus(self, other: Measure) -> Measure:
        """Return by how much this one is more than another."""
        return Measure(
            self.transfers - other.transfers,
            self.bytes - other.bytes,
            self.seconds - other.seconds,
            self.fallbacks - other.fallbacks,
        )


def measure(
    model: ir.Model,
    placement: Placement,
    machine: Machine,
    roles: Roles,
    instead: Instead = lambda node: (node,),
) -> Measure:
    """Return what a run costs where nodes are placed so.

    Args:
        model: The model that was placed.
        placement: Where its nodes run, before index arithmetic moves to the CPU.
        machine: The device, the CPU and the level.
        roles: What its inputs and outputs are to the device.
        instead: Returns the nodes that a section would have in the place of one node.

    Returns:
        Copies, and the modelled time of a plan, launches and exchanges included. Off-chip traffic is taken to
        be of the fastest tier outside of the chip.
    """
    target, level, rules = machine.target, machine.level, machine.rules
    final = demote_islands(model, placement, target, level, rules)
    stages = interfaces(model.graph, cut(partition(model, final), target, level, rules), target)
    transfers = run_transfers(roles, stages, target.summary)
    graph = Graph(
        name="",
        inputs=tuple(map(name_of, roles.inputs)),
        outputs=tuple(map(name_of, roles.outputs)),
        calls=schedule(0, len(stages)),
        load_transfers=(),
        run_transfers=transfers,
    )
    records: dict[int, Section | Fallback] = {}
    at_load = known_at_load(model.graph, roles)
    for place, stage in enumerate(stages):
        if not stage.on_rdu:
            in_runs = [node for node in stage.group.nodes if node not in at_load]
            times = [host_seconds(node, machine.host) for node in in_runs]
            seconds, _ = fallback_seconds(times, machine.host)
            records[place] = Fallback(**vars(_stage(place, stage)), seconds=seconds)
    records |= {section.id: section for section in _sections(stages, target, roles, instead)}
    regions = {
        name_of(value): roles.region(value)
        for stage in stages
        for value in (*stage.inputs, *stage.outputs)
    }
    time = schedule_time(graph, records, target.summary, regions)
    size = sum(transfer.bytes for transfer in transfers)
    fallbacks = sum(not stage.on_rdu for stage in stages)
    return Measure(len(transfers), size, time.total, fallbacks)


def _stage(place: int, stage: StageInterface) -> Stage:
    """Return what a stage reads and writes, in a record without a name."""
    inputs, outputs, weights = (
        tuple(map(name_of, each)) for each in (stage.inputs, stage.outputs, stage.weights)
    )
    return Stage(place, "", "", "", inputs, outputs, weights=weights, operators={})


def _sections(
    stages: Sequence[StageInterface], target: Target, roles: Roles, instead: Instead
) -> Sequence[Section]:
    """Return the sections of a schedule with their times."""
    # Regions are given only when a plan is made in full.
    outside = off_chip_tiers(target.summary)[0].name
    drafts: list[SectionDraft] = []
    for place, stage in enumerate(stages):
        if not stage.on_rdu:
            continue
        nodes = tuple(new for node in stage.group.nodes for new in instead(node))
        # Of the nodes that there are: what a legal form has inside stays on the chip, and its ends are
        # those of the node.
        partly = moved_bytes(stage.group.nodes, roles.region)
        moved = (*stage.inputs, *stage.loaded, *stage.outputs)
        traffic = {v: (outside, partly.get(v, value_bytes(v) or 0)) for v in moved}
        executed = replace(stage, group=replace(stage.group, nodes=nodes))
        section = section_record(_stage(place, stage), executed, target, traffic)
        drafts.append(SectionDraft(place, section, nodes, traffic))
    return in_programs(drafts, len(stages), target.summary)
