"""Nodes that exchange values between RDUs, and what they send."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import ALL_GATHER, ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.rewrites.rewriting import integer_attribute, static_shape
from samba_onnx.pef.sharding import Collective, CollectiveKind
from samba_onnx.pef.target_summary import TargetSummary

__all__ = ["CONTENT", "RDUS", "SHARDED", "collective", "exchanges", "is_collective"]

CONTENT: Final = "samba_onnx.content"
"""Key in ``Value.meta`` of the inputs that were initializers: residents whose whole content the PEF has."""
RDUS: Final = "rdus"
"""Attribute of a collective: the number of RDUs."""
SHARDED: Final = "samba_onnx.sharded"
"""Key in ``Value.meta`` of the values of which each RDU has a shard."""


def is_collective(node: ir.Node) -> bool:
    """Return whether a node exchanges values between RDUs."""
    return node.domain == SAMBA_DOMAIN and node.op_type in (ALL_REDUCE, ALL_GATHER)


def exchanges(nodes: Sequence[ir.Node]) -> bool:
    """Return whether a section exchanges values: a collective is the only node of one that does."""
    return len(nodes) == 1 and is_collective(nodes[0])


def collective(nodes: Sequence[ir.Node], target: TargetSummary) -> Collective | None:
    """Return what a section exchanges; None for one that computes.

    Args:
        nodes: Its nodes.
        target: The device, whose link decides how a sum is made.
    """
    if not exchanges(nodes):
        return None
    (node,) = nodes
    before, after = node.inputs[0], node.outputs[0]
    assert before is not None
    assert after.dtype is not None
    rdus, element = integer_attribute(node, RDUS, 1), after.dtype.bitwidth
    have, whole = _elements(before), _elements(after)
    if node.op_type == ALL_GATHER:
        # As in a ring, too: every RDU passes on all but what the next one has.
        return Collective(CollectiveKind.ALL_GATHER, _bytes(whole - have, element))
    steps, piece = 2 * (rdus - 1), -(-whole // rdus)
    # In a ring every RDU sends all pieces but one twice, once to be summed and once as part of the sum. A small sum is
    # there sooner where each sends its summand to all others, as communication libraries do it, too.
    ring = Collective(CollectiveKind.ALL_REDUCE, steps * _bytes(piece, element), steps=steps)
    size = (rdus - 1) * _bytes(whole, element)
    direct = Collective(CollectiveKind.ALL_REDUCE, size, direct=True)
    return min(direct, ring, key=lambda one: target.exchange_seconds(one.bytes, one.steps))


def _elements(value: ir.Value) -> int:
    shape = static_shape(value)
    assert shape is not None
    return math.prod(shape)


def _bytes(elements: int, bits: int) -> int:
    return -(-elements * bits // 8)
