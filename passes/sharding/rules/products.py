"""Products of matrices: where weights are cut, and where sums of several RDUs come from.

A weight that nothing has cut yet is cut along its columns where its operand is whole, and along its rows
where its operand is cut along the axis that is summed: the sum of the RDUs' products is then the product.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import integer_attribute
from samba_onnx.passes.sharding.column_units import columns
from samba_onnx.passes.sharding.layouts import (
    PARTIAL,
    WHOLE,
    Shape,
    Sharding,
    is_partition,
    shifted,
)
from samba_onnx.passes.sharding.sharder import Sharder
from samba_onnx.pef.sharding import AxisSplit

__all__ = ["gemm", "matmul"]


@dataclass(frozen=True)
class _Operand:
    """One factor: which of its axes is which of the product's."""

    place: int
    shape: Shape
    free: int
    """The axis that the result keeps; -1 for a vector, which has none."""
    summed: int
    rank: int
    """Number of axes of the result."""
    kept: int
    """Axis of the result that ``free`` becomes; -1 where none."""

    def result_axis(self, axis: int) -> int:
        """Return the axis of the result that one of the operand's becomes."""
        if axis == self.free:
            return self.kept
        return axis + self.rank - len(self.shape)  # a batch axis

    def own_axis(self, axis: int) -> int | None:
        """Return the operand's axis for a batch axis of the result; None where it is broadcast."""
        own = axis - (self.rank - len(self.shape))
        return own if own >= 0 and own < len(self.shape) - 2 and self.shape[own] != 1 else None


def matmul(sharder: Sharder, node: ir.Node) -> None:
    """Cut a product of matrices, or of batches of them."""
    a, b = (sharder.shape(value) for value in node.inputs if value is not None)
    result = sharder.shape(node.outputs[0])
    if result is None or a is None or b is None:
        sharder.whole(node, "a product has sizes that are not known")
        return
    rank = len(result)
    # A vector lacks one of the axes that the rules below speak of.
    if len(a) < 2 or len(b) < 2:
        sharder.whole(node, "a product with a vector is computed whole")
        return
    left = _Operand(0, a, len(a) - 2, len(a) - 1, rank, rank - 2)
    right = _Operand(1, b, len(b) - 1, len(b) - 2, rank, rank - 1)
    _product(sharder, node, left, right, result)


def gemm(sharder: Sharder, node: ir.Node) -> None:
    """Cut a product of two matrices with a third one added.

    Where the product becomes a sum of several RDUs, the third is added behind it, once.
    """
    shapes = [sharder.shape(value) if value is not None else None for value in node.inputs]
    result, a, b = sharder.shape(node.outputs[0]), *shapes[:2]
    if result is None or a is None or b is None:
        sharder.whole(node, "a product has sizes that are not known")
        return
    left_t, right_t = integer_attribute(node, "transA", 0), integer_attribute(node, "transB", 0)
    left = _Operand(0, a, left_t, 1 - left_t, 2, 0)
    right = _Operand(1, b, 1 - right_t, right_t, 2, 1)
    _product(sharder, node, left, right, result)
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return
    sharding, added = sharder.sharding(node.outputs[0]), shapes[2] or ()
    if sharding.partial:
        _add_behind(sharder, node)
        return
    before = 2 - len(added)
    own = Sharding(
        tuple(
            shifted(split, split.axis - before)
            for split in sharding.axes
            if split.axis >= before and added[split.axis - before] != 1
        )
    )
    sharder.operand(node, 2, own)


def _product(
    sharder: Sharder, node: ir.Node, left: _Operand, right: _Operand, result: Shape
) -> None:
    """Choose how two factors lie, and state how their product does."""
    values = [node.inputs[0], node.inputs[1]]
    a, b = values
    assert a is not None
    assert b is not None
    for factor, value in ((left, a), (right, b)):
        sharding = sharder.sharding(value)
        # What follows looks at one cut axis of each factor; a product of two sums is no sum of products.
        if sharding.partial or len(sharding.axes) > 1:
            node.replace_input_with(factor.place, sharder.need(value, WHOLE))
    if sharder.is_open_weight(b) and not sharder.sharding(_read(node, 0)).axes:
        # By columns no exchange is needed here, and the layer behind is cut by rows: two layers make one
        # sum.
        split = columns(sharder, node.outputs[0], len(result) - 1)
        wanted = WHOLE if split is None else Sharding((shifted(split, right.free),))
        sharder.operand(node, 0, WHOLE)
        sharder.operand(node, 1, wanted)
        cut = () if split is None else (shifted(split, len(result) - 1),)
        sharder.results(node, Sharding(cut))
        return
    # Each attempt in vain gathers one factor, so that the third one finds both whole.
    for _ in range(3):
        done = _matched(sharder, node, left, right)
        if done is not None:
            sharder.results(node, done)
            return
    sharder.whole(node, "two factors of a product are cut along different axes")


def _matched(sharder: Sharder, node: ir.Node, left: _Operand, right: _Operand) -> Sharding | None:
    """Return how the product lies with factors as they are; None after one of them was gathered."""
    splits = [_split(sharder, node, factor) for factor in (left, right)]
    if not any(splits):
        sharder.operand(node, 0, WHOLE)
        sharder.operand(node, 1, WHOLE)
        return WHOLE
    for factor, other, split in ((left, right, splits[0]), (right, left, splits[1])):
        if split is None:
            continue
        if split.axis == factor.summed:
            return _summed(sharder, node, factor, other, split)
        if split.axis == factor.free:
            if splits[other.place] is not None:
                break
            sharder.operand(node, other.place, WHOLE)
            return Sharding((shifted(split, factor.kept),))
        axis = factor.result_axis(split.axis)
        own = other.own_axis(axis)
        wanted = WHOLE if own is None else Sharding((shifted(split, own),))
        if splits[other.place] is not None and sharder.sharding(_read(node, other.place)) != wanted:
            break
        sharder.operand(node, other.place, wanted)
        return Sharding((shifted(split, axis),))
    # The one that takes fewer bytes to exchange.
    smaller = min((left, right), key=lambda each: _size(each.shape))
    sharder.operand(node, smaller.place, WHOLE)
    return None


def _summed(
    sharder: Sharder, node: ir.Node, factor: _Operand, other: _Operand, split: AxisSplit
) -> Sharding | None:
    """Cut the other factor along the summed axis, too; or gather this one."""
    wanted = Sharding((shifted(split, other.summed),))
    value = _read(node, other.place)
    current = sharder.sharding(value)
    fits = current == wanted or (sharder.is_open(value) and not current.axes)
    # Where several RDUs have the same part, the sum would have it several times.
    if not is_partition(split, factor.shape[factor.summed]) or not fits:
        sharder.operand(node, factor.place, WHOLE)
        return None
    sharder.operand(node, other.place, wanted)
    if sharder.sharding(_read(node, other.place)) != wanted:
        sharder.operand(node, factor.place, WHOLE)
        return None
    return PARTIAL


def _split(sharder: Sharder, node: ir.Node, factor: _Operand) -> AxisSplit | None:
    axes = sharder.sharding(_read(node, factor.place)).axes
    return axes[0] if axes else None


def _read(node: ir.Node, place: int) -> ir.Value:
    value = node.inputs[place]
    assert value is not None
    return value


def _size(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _add_behind(sharder: Sharder, node: ir.Node) -> None:
    """Take what a product is added to out of the node, and add it to the sum of all RDUs."""
    added, result = node.inputs[2], node.outputs[0]
    assert added is not None
    shape = sharder.shape(result) or ()
    node.replace_input_with(2, None)
    with sharder.behind(result) as replacement:
        # Behind the sum: added by each RDU, it would count once for every one of them.
        added = sharder.need(added, WHOLE)
        beta = node.attributes["beta"].as_float() if "beta" in node.attributes else 1.0
        if beta != 1.0:
            own = sharder.shape(added) or ()
            added = sharder.add("Mul", [added, sharder.scalar(added, beta)], own, WHOLE)
        replacement.append(sharder.add("Add", [sharder.need(result, WHOLE), added], shape, WHOLE))
