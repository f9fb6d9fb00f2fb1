"""Operators that take elements along some axes together: those axes must be whole, or the result is a sum."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import integer_attribute, integers
from samba_onnx.passes.sharding.cut_values import is_float
from samba_onnx.passes.sharding.layouts import (
    PARTIAL,
    WHOLE,
    Shape,
    Sharding,
    is_partition,
    length,
    shifted,
)
from samba_onnx.passes.sharding.sharder import Sharder

__all__ = ["along_axis", "normalisation", "reduction"]

_SEARCHES: Final = frozenset({"ArgMax", "ArgMin"})


def reduction(sharder: Sharder, node: ir.Node) -> None:
    """Cut a reduction.

    1. Axes that are cut and kept stay cut.
    2. A sum or mean along the only axis that is cut is the sum of what the RDUs compute.
    3. Any other operator reads the axis whole.
    """
    value = node.inputs[0]
    assert value is not None
    shape, result = sharder.shape(value), sharder.shape(node.outputs[0])
    sharding = sharder.sharding(value)
    axes = _axes(node, len(shape or ()))
    if sharding == WHOLE or shape is None or result is None or axes is None:
        sharder.whole(node, f"{node.op_type} has sizes that are not known")
        return
    keeps = integer_attribute(node, "keepdims", 1)
    # A mean of integers is rounded: those of summands, or of shards, are not summands of it.
    sums = node.op_type == "ReduceSum" or (node.op_type == "ReduceMean" and is_float(value))
    # Case 2, of what is summands already.
    if sharding.partial and sums:
        sharder.results(node, PARTIAL)
        return
    cut = [split for split in sharding.axes if split.axis in axes]
    # Case 1.
    if not cut and not sharding.partial:
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        moved = [s if keeps else shifted(s, kept.index(s.axis)) for s in sharding.axes]
        sharder.operand(node, 0, sharding)
        sharder.operand(node, 1, WHOLE)
        sharder.results(node, Sharding(tuple(moved)))
        return
    # Case 2, where no place counts twice.
    if len(sharding.axes) == 1 and sums and is_partition(cut[0], shape[cut[0].axis]):
        sharder.operand(node, 0, sharding)
        sharder.operand(node, 1, WHOLE)
        sharder.results(node, PARTIAL)
        if node.op_type == "ReduceMean":
            # An RDU has divided by the size of its shard.
            _scale(sharder, node, result, length(cut[0]) / shape[cut[0].axis])
        return
    # Case 3. Of a largest element, for one, there is no exchange: all that RDUs can do together is to sum
    # and to gather.
    sharder.whole(node, f"{node.op_type} takes all elements of an axis that is cut")


def _scale(sharder: Sharder, node: ir.Node, shape: Shape, factor: float) -> None:
    """Make of the mean of a shard its share of the mean of the whole."""
    result = node.outputs[0]
    with sharder.behind(result) as replacement:
        scale = sharder.scalar(result, factor)
        replacement.append(sharder.add("Mul", [result, scale], shape, PARTIAL))


def _axes(node: ir.Node, rank: int) -> set[int] | None:
    """Return the axes that are reduced; None where they are computed."""
    if node.op_type in _SEARCHES:
        return {integer_attribute(node, "axis", 0) % rank} if rank else set()
    if "axes" in node.attributes:
        return {axis % rank for axis in node.attributes["axes"].as_ints()}
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        found = integers(node.inputs[1])
        if found is None:
            return None
        if found:
            return {axis % rank for axis in found}
    return set() if integer_attribute(node, "noop_with_empty_axes", 0) else set(range(rank))


def along_axis(sharder: Sharder, node: ir.Node) -> None:
    """Cut an operator that works along one axis, as Softmax, by any other axis."""
    value = node.inputs[0]
    assert value is not None
    shape, sharding = sharder.shape(value), sharder.sharding(value)
    if shape is None or sharding.partial or not shape:
        sharder.whole(node, f"{node.op_type} needs its operand whole")
        return
    axis = integer_attribute(node, "axis", -1) % len(shape)
    others = Sharding(tuple(split for split in sharding.axes if split.axis != axis))
    if others != sharding:
        sharder.note(f"{node.op_type} takes all elements of an axis that is cut")
        # A gather makes a value whole along all of its axes: there is none for one axis of several.
        others = WHOLE
    sharder.operand(node, 0, others)
    for place in range(1, len(node.inputs)):
        sharder.operand(node, place, WHOLE)
    sharder.results(node, others)


def normalisation(sharder: Sharder, node: ir.Node) -> None:
    """Cut a normalisation over the last axes by any axis before them."""
    value = node.inputs[0]
    assert value is not None
    shape, sharding = sharder.shape(value), sharder.sharding(value)
    axis = integer_attribute(node, "axis", -1) % len(shape or (1,))
    if shape is None or sharding.partial or any(split.axis >= axis for split in sharding.axes):
        sharder.whole(node, f"{node.op_type} takes all elements of an axis that is cut")
        return
    sharder.operand(node, 0, sharding)
    for place in range(1, len(node.inputs)):
        sharder.operand(node, place, WHOLE)
    sharder.results(node, sharding)
