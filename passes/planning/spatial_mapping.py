"""What spatial mapping asks of a graph: all of it on the RDU, and on the chip, at the same time.

SambaFlow's ``trace_graph`` documents it: forward and backward graphs are mapped onto the RDU at the
same time and sections are not swapped, which is only feasible for small models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_onnx.errors import OutOfDeviceMemoryError, UsageError
from samba_onnx.facts.domains import qualified
from samba_onnx.facts.dtypes import ELEMENT_TYPES
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.planning.stages import StageInterface
from samba_onnx.passes.timing.node_work import value_bytes
from samba_onnx.pef.manifest import Section
from samba_onnx.pef.target_summary import TargetSummary

if TYPE_CHECKING:
    from samba_onnx.passes.planning.placement import Placement

_MOST_LISTED = 4
"""Operators on the CPU that the refusal names."""


def refuse_unless_spatial(
    roles: Roles, stages: Sequence[StageInterface], placement: Placement
) -> None:
    """Refuse a graph that cannot be mapped spatially.

    Args:
        roles: What its inputs and outputs are to the device.
        stages: The interfaces of its stages.
        placement: The reason of every node on the CPU.

    Raises:
        UsageError: It has nodes on the CPU, a value to exchange has no fixed size or elements of
            less than a byte, or one shares its place with another value.
    """
    on_cpu = [node for stage in stages if not stage.on_rdu for node in stage.group.nodes]
    if on_cpu:
        counts = Counter(qualified(node.domain, node.op_type) for node in on_cpu)
        listed = ", ".join(name for name, _ in counts.most_common(_MOST_LISTED))
        raise UsageError(
            "mapping 'spatial' needs all of the model on the RDU at once, but "
            f"{len(on_cpu)} operators run on the CPU ({listed}): {placement.reasons[on_cpu[0]].message}. "
            "Compile with mapping 'section', or write them with operators of the RDU"
        )
    for value in (*roles.inputs, *roles.outputs):
        if not roles.is_batch(value):
            continue
        element = None if value.dtype is None else ELEMENT_TYPES.get(value.dtype.name.lower())
        # Mini-batches lie behind each other in a region: of packed elements, two would share a byte.
        if value_bytes(value) is None or element is None or element.packs:
            raise UsageError(
                f"mapping 'spatial' takes tensors of fixed sizes and whole bytes; {value.name!r} is "
                f"{value.type} of shape {value.shape}: compile with mapping 'section'"
            )
        if roles.region(value) != value.name:
            raise UsageError(
                f"tensor {value.name!r} is to share region {roles.region(value)!r}, which holds one "
                "batch only: in spatial mapping give it no sn_region_name"
            )


def refuse_unless_on_chip(
    sections: Sequence[Section], resident_bytes: int, target: TargetSummary
) -> None:
    """Refuse sections that are too large to be on the chip at the same time.

    Args:
        sections: All sections of a graph; each needs what it keeps and its largest set of values.
        resident_bytes: What the graph has between runs. It never leaves the chip, while a section that
            is swapped in may stream some of it.
        target: The device's figures.

    Raises:
        OutOfDeviceMemoryError: They are.
    """
    # Sections count residents already, but of a table that is looked up only rows.
    needed = max(sum(section.sram_bytes for section in sections), resident_bytes)
    capacity = target.tier("sram").bytes
    if needed > capacity:
        largest = max(sections, key=lambda section: section.sram_bytes)
        raise OutOfDeviceMemoryError(
            f"mapping 'spatial' keeps all {len(sections)} sections on the chip at once, which takes "
            f"{needed:,} bytes of on-chip memory; {target.name} has {capacity:,}, and section "
            f"{largest.id} ({largest.name}) alone takes {largest.sram_bytes:,}: give a smaller "
            "batch, or compile with mapping 'section'"
        )
