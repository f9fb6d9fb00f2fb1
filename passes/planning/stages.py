"""What each stage reads and writes, and which values meet the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from samba_onnx.passes.planning.partitioning import Group, Home
from samba_onnx.passes.planning.roles import Roles, unique
from samba_onnx.passes.timing.traffic import data_reads
from samba_onnx.program.dataflow import is_weight, reads

if TYPE_CHECKING:
    from samba_onnx.passes.targets import Target


@dataclass(frozen=True)
class StageInterface:
    """The values that pass in and out of one group."""

    group: Group
    inputs: tuple[ir.Value, ...]
    """Graph inputs and values of earlier groups, in the order of the first read."""
    weights: tuple[ir.Value, ...]
    """Initializers read, in the order of the first read."""
    loaded: tuple[ir.Value, ...]
    """Weights that the section reads from device memory while it runs; none for a fallback."""
    outputs: tuple[ir.Value, ...]
    """Values that later groups or the caller of the graph read, in the order of writing."""

    @property
    def on_rdu(self) -> bool:
        """Whether the group is a section."""
        return self.group.home is Home.RDU


def interfaces(
    graph: ir.Graph, groups: Sequence[Group], target: Target
) -> tuple[StageInterface, ...]:
    """Return the interface of every group.

    Args:
        graph: The graph that the groups are made of.
        groups: All groups in execution order, sections already cut.
        target: The device; tells which operands it bakes into a section.

    Returns:
        Interfaces in the order of the groups. A group whose results nobody reads still has an
        output, its last named value, so that it can be written as a model of its own.
    """
    visible: set[ir.Value] = set(graph.outputs)
    backwards: list[StageInterface] = []
    # From the last one: what a group has to return is what later ones read.
    for group in reversed(groups):
        operands = unique(value for node in group.nodes for value in reads(node))
        results = [value for node in group.nodes for value in node.outputs if value.name]
        inside = set(results)
        outputs = [value for value in results if value in visible] or results[-1:]
        inputs = [v for v in operands if not is_weight(v) and v not in inside]
        loaded: list[ir.Value] = []
        if group.home is Home.RDU:
            # Operands that become part of the section's configuration are never loaded, unless a node reads
            # them as data, too.
            data = unique(value for node in group.nodes for value in data_reads(node, target))
            loaded = [value for value in data if is_weight(value)]
        visible.update(inputs)
        backwards.append(
            StageInterface(
                group=group,
                inputs=tuple(inputs),
                weights=tuple(value for value in operands if is_weight(value)),
                loaded=tuple(loaded),
                outputs=tuple(outputs),
            )
        )
    return tuple(reversed(backwards))


def on_device(roles: Roles, stages: Sequence[StageInterface]) -> tuple[ir.Value, ...]:
    """Return the values that need a place in off-chip device memory.

    Args:
        roles: What inputs and outputs of the graph are to the device.
        stages: The interfaces of all groups.

    Returns:
        Each value once: graph inputs that sections read, residents, then what passes between stages
        and sections write or read, in the order of execution, then the weights that sections load.
    """
    read = {value for stage in stages if stage.on_rdu for value in stage.inputs}
    inputs = [value for value in roles.inputs if value in read]
    passed = [value for stage in stages for value in stage.outputs if stage.on_rdu or value in read]
    loaded = [value for stage in stages for value in stage.loaded]
    return unique([*inputs, *roles.residents, *passed, *loaded])


def baked(stages: Sequence[StageInterface]) -> frozenset[ir.Value]:
    """Return the initializers that sections use, but only as part of their configuration.

    Args:
        stages: The interfaces of all groups.

    Returns:
        Initializers that are never transferred although a section needs them.
    """
    used = {value for stage in stages if stage.on_rdu for value in stage.weights}
    return frozenset(used.difference(value for stage in stages for value in stage.loaded))
