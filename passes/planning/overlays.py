"""Lets activations take the place of others in device memory that no later call needs, where memory is short."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import onnx_ir as ir

from samba_onnx.passes.planning.allocation import off_chip_tiers
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.passes.planning.scheduling import fixed_bytes
from samba_onnx.passes.planning.stages import StageInterface, on_device
from samba_onnx.pef.manifest import Region
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.kinds import SymbolKind

__all__ = ["overlaid"]


def overlaid(
    roles: Roles,
    stages: Sequence[StageInterface],
    kinds: Mapping[ir.Value, SymbolKind],
    target: TargetSummary,
    used: Collection[Region] = (),
) -> Roles:
    """Return roles in which activations share regions, if not all values have room in the fastest tier.

    A value takes the region of another one

    1. if both are activations: passed from stage to stage, and neither exchanged, kept nor given a region,
    2. if both have as many bytes, so that a region is as large as each of its values, and
    3. if no call needs the other one any more: the last that reads it comes before the one that writes this.

    With room for all, every value has a region of its own, so that each can be read after a run. In spatial
    mapping all sections run at once, and nothing is shared.

    Args:
        roles: What inputs and outputs of the graph are to the device.
        stages: The interfaces of its stages in execution order.
        kinds: The kinds of its symbols.
        target: The device's figures.
        used: Regions of other graphs, which take up room.

    Returns:
        The roles, with the region of every activation that shares one.
    """
    values = on_device(roles, stages)
    if roles.spatial_batches or _fits(roles, values, target, used):
        return roles
    # Case 1: not a value that somebody else knows by the name of its region.
    candidates = [
        value
        for value in values
        if kinds.get(value) is SymbolKind.ACTIVATION and name_of(value) not in roles.regions
    ]
    regions = _taking_turns(candidates, stages)
    return replace(roles, regions=MappingProxyType({**roles.regions, **regions}))


def _fits(
    roles: Roles, values: Sequence[ir.Value], target: TargetSummary, used: Collection[Region]
) -> bool:
    """Whether the fastest tier outside of the chip has room for every value, and for other graphs."""
    fastest = off_chip_tiers(target)[0]
    sizes = {roles.region(value): fixed_bytes(value) for value in values}
    sizes |= {region.name: region.bytes for region in used}
    return sum(sizes.values()) <= fastest.bytes


def _taking_turns(
    values: Sequence[ir.Value], stages: Sequence[StageInterface]
) -> Mapping[str, str]:
    """Return, by name, the regions of the values that do not keep a region of their own name."""
    candidates = set(values)
    last: dict[ir.Value, int] = {}
    for call, stage in enumerate(stages):
        # A result that nobody reads is needed while it is written, if not longer.
        for value in (*stage.inputs, *stage.outputs):
            last[value] = call
    ending: dict[int, list[ir.Value]] = {}
    for value in values:
        ending.setdefault(last[value], []).append(value)
    regions: dict[ir.Value, str] = {}
    free: dict[int, list[str]] = {}
    """Regions that no later call needs, by their bytes; the one that was left last is taken first."""
    for call, stage in enumerate(stages):
        for value in stage.outputs:
            if value in candidates:
                places = free.get(fixed_bytes(value))  # Case 2
                regions[value] = places.pop() if places else name_of(value)
        # Case 3: what a call reads last is free for the next call, not for its own results.
        for value in ending.get(call, ()):
            free.setdefault(fixed_bytes(value), []).append(regions[value])
    return {name_of(value): region for value, region in regions.items() if region != name_of(value)}
