"""Operators that compute every element from those at its place, and operators of one batch each."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.passes.sharding.cut_values import is_float
from samba_onnx.passes.sharding.layouts import PARTIAL, WHOLE, Shape, Sharding, shifted
from samba_onnx.passes.sharding.sharder import Sharder

__all__ = ["elementwise", "fitting", "per_row"]

_SUMS: Final = frozenset({"Add", "Sub", "Sum"})
"""Operators whose result of summands is a summand of the result."""
_FACTORS: Final = frozenset({"Div", "Mul", "Neg", "Identity"})
"""Linear in the first operand, and Mul in either."""


def elementwise(sharder: Sharder, node: ir.Node) -> None:
    """Cut an operator with broadcasting as its operands are cut.

    1. Sums of summands, and summands times what is whole, stay summands.
    2. Otherwise the operands lie as the first one that is cut; what is broadcast along a cut axis is whole.
    3. Where one operand is cut along its last axis and another one that was computed is whole, the first
       is gathered: what follows, as a normalisation, reads whole rows.
    """
    shape = sharder.shape(node.outputs[0])
    operands = [value for value in node.inputs if value is not None]
    shapes = [sharder.shape(value) for value in operands]
    if shape is None or len(node.outputs) != 1 or any(each is None for each in shapes):
        sharder.whole(node, f"{node.op_type} has sizes that are not known")
        return
    # Case 1. No exchange is needed yet, and the sum may be smaller further on.
    if _stays_partial(sharder, node, operands):
        sharder.results(node, PARTIAL)
        return
    # Cases 2 and 3.
    target = _target(sharder, shape, operands)
    for place, value in enumerate(node.inputs):
        if value is not None:
            sharder.operand(node, place, fitting(target, shape, sharder.shape(value) or ()))
    sharder.results(node, target)


def fitting(target: Sharding, shape: Shape, own: Shape) -> Sharding:
    """Return how an operand lies where the broadcast result lies in a certain way.

    Args:
        target: How the result lies.
        shape: Shape of the result.
        own: Shape of the operand.
    """
    before = len(shape) - len(own)
    return Sharding(
        tuple(
            shifted(split, split.axis - before)
            for split in target.axes
            if split.axis >= before and own[split.axis - before] != 1
        )
    )


def _stays_partial(sharder: Sharder, node: ir.Node, operands: list[ir.Value]) -> bool:
    """Case 1; makes other operands whole."""
    partial = [sharder.sharding(value).partial for value in operands]
    if not any(partial):
        return False
    if node.op_type in _SUMS and all(partial):
        return True
    linear = node.op_type == "Mul" or (node.op_type in _FACTORS and partial[0])
    # Quotients of integers are rounded, so that those of summands do not add up to that of their sum.
    linear = linear and (node.op_type != "Div" or is_float(node.outputs[0]))
    others = [v for v, is_partial in zip(operands, partial, strict=True) if not is_partial]
    # A product of two sums is no sum of products, and with a shard each RDU would have a part of its
    # summand only.
    if not linear or sum(partial) != 1 or any(sharder.sharding(value).axes for value in others):
        return False
    for place, value in enumerate(node.inputs):
        if value in others:
            sharder.operand(node, place, WHOLE)
    return True


def _target(sharder: Sharder, shape: Shape, operands: list[ir.Value]) -> Sharding:
    """Return how the result lies: cases 2 and 3."""
    computed = [v for v in operands if not sharder.is_open(v) and sharder.shape(v) == shape]
    for value in operands:
        axes = sharder.sharding(value).axes
        if not axes:
            continue
        before = len(shape) - len(sharder.shape(value) or ())
        target = Sharding(tuple(shifted(split, split.axis + before) for split in axes))
        last = target.axes[-1].axis == len(shape) - 1
        # Case 3. As a residual sum, of which one operand is whole: to cut the other costs no exchange, but
        # the gather behind would be of as many bytes.
        if last and len(shape) > 1 and any(not sharder.sharding(v).axes for v in computed):
            return WHOLE
        return target
    return WHOLE


def per_row(sharder: Sharder, node: ir.Node) -> None:
    """Cut an operator that treats each row of its first operand's first axis by itself."""
    value = node.inputs[0]
    assert value is not None
    axes = sharder.sharding(value).axes
    known = all(sharder.shape(each) is not None for each in node.outputs)
    # Kernels and statistics run over all other axes.
    if [split.axis for split in axes] != [0] or not known:
        sharder.whole(node, f"{node.op_type} needs its operand whole")
        return
    sharder.operand(node, 0, Sharding(axes))
    for place in range(1, len(node.inputs)):
        sharder.operand(node, place, WHOLE)
    sharder.results(node, Sharding(axes))
