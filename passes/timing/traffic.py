"""The bytes that a section reads and writes in off-chip memory, and the time that they take.

They are those of data and no sizes, of rows of a table, and of updates of what stays in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import onnx_ir as ir

from samba_onnx.facts.operator_facts import Kind
from samba_onnx.facts.operators import facts
from samba_onnx.passes.timing.matrix_products import looked_up
from samba_onnx.passes.timing.node_work import value_bytes
from samba_onnx.pef.target_summary import TargetSummary, Tier
from samba_onnx.program.dataflow import implicit_inputs, is_weight
from samba_onnx.program.repetition import repetition

if TYPE_CHECKING:
    from samba_onnx.passes.targets import Target

__all__ = [
    "by_tier",
    "crossing_seconds",
    "data_reads",
    "moved_bytes",
    "tier_seconds",
    "traffic_seconds",
]

_SHARING: Final = 3
"""Values that share the rate of those that do not lie in all channels: the operands and the result of a product."""
# A published ReLU of 240 million elements of bfloat16 (480 MB) is the last one at the narrow rate, and a published
# convolution that writes 411 MB has it, too; one that writes 822 MB has the wide rate.
_SLOPE: Final = 0.8
"""Share of the size of a value in all channels from which on it lies in more channels than smaller ones."""


def data_reads(node: ir.Node, target: Target) -> list[ir.Value]:
    """Return the operands that a node on the RDU reads from memory, each once.

    Args:
        node: A node that the target supports.
        target: The device.

    Returns:
        The operands without the compile-time constants that become part of the section.
    """
    static = target.static_inputs(node)
    operands = [
        value
        for position, value in enumerate(node.inputs)
        if value is not None and not (position in static and is_weight(value))
    ]
    outer = implicit_inputs(node)
    repeated = repetition(node)
    if repeated is not None:  # sizes and axes are part of a body as they are of a section
        data = {value for inner in repeated.body for value in data_reads(inner, target)}
        outer = tuple(value for value in outer if value in data)
    return list(dict.fromkeys([*operands, *outer]))


def moved_bytes(nodes: Sequence[ir.Node], place: Callable[[ir.Value], str]) -> dict[ir.Value, int]:
    """Return the values that a section does not read or write as a whole, with the bytes that it does.

    Args:
        nodes: The section's nodes.
        place: The region of a value.

    Returns:
        Tables of which only rows are looked up. Then what is overwritten in its place: only the updates are
        written, and what nobody in the section reads is not read.
    """
    return {**_tables(nodes), **_overwritten(nodes, place)}


def _tables(nodes: Sequence[ir.Node]) -> dict[ir.Value, int]:
    tables: dict[ir.Value, int] = {}
    whole: set[ir.Value] = set()
    for node in nodes:
        table = looked_up(node)
        whole.update(v for v in node.inputs if v is not None and v is not table)
        if table is not None:
            tables[table] = tables.get(table, 0) + (value_bytes(node.outputs[0]) or 0)
    return {
        table: rows
        for table, rows in tables.items()
        # Who reads it as data reads all of it, and more rows than it has are not read from memory again.
        if table not in whole and rows < (value_bytes(table) or 0)
    }


def _overwritten(nodes: Sequence[ir.Node], place: Callable[[ir.Value], str]) -> dict[ir.Value, int]:
    inside, found = set(nodes), dict[ir.Value, int]()
    for node in nodes:
        row = facts(node.op_type, node.domain)
        if row is None or row.kind is not Kind.OVERWRITE or len(node.inputs) < 3:
            continue
        old, new, updates = node.inputs[0], node.outputs[0], node.inputs[2]
        # In another place, what is not overwritten has to be copied there.
        if old is None or updates is None or place(old) != place(new):
            continue
        found[new] = value_bytes(updates) or 0
        readers = [user for value in (old, new) for user, _ in value.uses() if user in inside]
        # Whoever else reads either of both needs more than the updates.
        if readers == [node]:
            found[old] = 0
    return found


def by_tier(traffic: Mapping[ir.Value, tuple[str, int]]) -> dict[str, list[int]]:
    """Return the bytes of each value by tier, of tier and bytes by value."""
    sizes: dict[str, list[int]] = {}
    for tier, size in traffic.values():
        sizes.setdefault(tier, []).append(size)
    return sizes


def traffic_seconds(target: TargetSummary, traffic: Mapping[str, Sequence[int]]) -> float:
    """Return the modelled time of a section's traffic with off-chip memory.

    Args:
        target: The device's figures.
        traffic: Bytes of each value that is read or written, by tier.

    Returns:
        The sum over tiers, in seconds.
    """
    wide = 0 if target.timing is None else target.timing.wide_bytes
    times = (tier_seconds(target.tier(name), sizes, wide) for name, sizes in traffic.items())
    return sum(times, start=0.0)


def crossing_seconds(target: TargetSummary, tier: Tier, size: int) -> float:
    """Return the modelled time of a value between a section and the host: over the link, and to or from memory.

    Args:
        target: The device's figures.
        tier: Where the value lies on the device.
        size: Its bytes.
    """
    # At the published rate, and not at those that sections achieve: this one pays for a place, not for a plan.
    return target.transfer_seconds(size) + size / tier.bytes_per_second


def tier_seconds(tier: Tier, sizes: Sequence[int], wide_bytes: int) -> float:
    """Return the modelled time in which a section reads and writes values of one tier, each once.

    Args:
        tier: The tier.
        sizes: Bytes of each value.
        wide_bytes: The size from which a value lies in all channels.

    Returns:
        Seconds: all bytes over the wide rate, but not less than the three largest values that do not lie
        in all channels over the narrow rate, which these have to share, as those of a single operator do.
        So one more value never takes less time, nor do more bytes of a value, except where they make
        it lie in more channels.
    """
    rate = tier.wide_bytes_per_second or tier.bytes_per_second
    narrow = tier.narrow_bytes_per_second or tier.bytes_per_second
    sharing = sorted((_narrow_bytes(size, wide_bytes) for size in sizes), reverse=True)[:_SHARING]
    return max(sum(sizes) / rate, sum(sharing) / narrow)


def _narrow_bytes(size: int, wide_bytes: int) -> float:
    """Return how many bytes of a value lie in some channels only: all of a small one, none of a large one."""
    begin = _SLOPE * wide_bytes
    if size <= begin:
        return float(size)
    return size * max(wide_bytes - size, 0) / (wide_bytes - begin) if wide_bytes else 0.0
