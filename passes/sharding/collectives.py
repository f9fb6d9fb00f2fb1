"""Nodes that exchange values between RDUs, and what they send."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import ALL_GATHER, ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.passes.rewrites.rewriting import integer_attribute, static_shape
from samba_onnx.pef.sharding import Collective, CollectiveKind

__all__ = ["CONTENT", "RDUS", "SHARDED", "collective", "is_collective"]

CONTENT: Final = "samba_onnx.content"
"""Key in ``Value.meta`` of the inputs that were initializers: residents whose whole content the PEF has."""
RDUS: Final = "rdus"
"""Attribute of a collective: the number of RDUs."""
SHARDED: Final = "samba_onnx.sharded"
"""Key in ``Value.meta`` of the values of which each RDU has a shard."""


def is_collective(node: ir.Node) -> bool:
    """Return whether a node exchanges values between RDUs."""
    return node.domain == SAMBA_DOMAIN and node.op_type in (ALL_REDUCE, ALL_GATHER)


def collective(nodes: Sequence[ir.Node]) -> Collective | None:
    """Return what a section exchanges; None for one that computes.

    Args:
        nodes: Its nodes; a collective is the only one.
    """
    if len(nodes) != 1 or not is_collective(nodes[0]):
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
    # As in a ring: every RDU sends all pieces but one twice, once to be summed and once as part of the sum.
    piece = -(-whole // rdus)
    return Collective(CollectiveKind.ALL_REDUCE, 2 * (rdus - 1) * _bytes(piece, element))


def _elements(value: ir.Value) -> int:
    shape = static_shape(value)
    assert shape is not None
    return math.prod(shape)


def _bytes(elements: int, bits: int) -> int:
    return -(-elements * bits // 8)
