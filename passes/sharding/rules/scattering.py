"""Scatter and Gather of elements: rows of a cache that are written, and elements that are chosen."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import integer_attribute
from samba_onnx.passes.sharding.layouts import WHOLE, Shape, Sharding, indices, length, shifted
from samba_onnx.passes.sharding.sharder import Sharder
from samba_onnx.pef.sharding import AxisSplit

__all__ = ["elements", "scatter_nd"]


def elements(sharder: Sharder, node: ir.Node) -> None:
    """Cut GatherElements or ScatterElements by an axis that indices do not run along.

    All operands must be as long along it, so that an RDU has the indices of its own elements.
    """
    operands = [value for value in node.inputs if value is not None]
    shapes = [sharder.shape(value) for value in operands]
    first = shapes[0]
    if first is None or any(shape is None for shape in shapes):
        sharder.whole(node, f"{node.op_type} has sizes that are not known")
        return
    axis = integer_attribute(node, "axis", 0) % len(first)
    found = [sharder.sharding(value) for value in operands]
    target = next((each for each in found if each.axes), WHOLE)
    alike = all(
        (shape or ())[split.axis] == first[split.axis] for split in target.axes for shape in shapes
    )
    if target.of(axis) is not None or not alike or any(each.partial for each in found):
        sharder.whole(node, f"{node.op_type} chooses along an axis that is cut")
        return
    for place in range(len(operands)):
        sharder.operand(node, place, target)
    sharder.results(node, target)


def scatter_nd(sharder: Sharder, node: ir.Node) -> None:
    """Cut a ScatterND as its data or updates are cut.

    1. Along an axis that is written whole, behind those that indices choose in: indices stay as they are.
    2. Along an axis in which the indices count, as heads or sequences of a cache of which a row each is
       written: each RDU counts its own.
    """
    data, places, updates = node.inputs
    assert data is not None
    assert places is not None
    assert updates is not None
    shape, rows = sharder.shape(data), sharder.shape(places)
    split = _split(sharder, data, updates, shape, rows)
    if shape is None or rows is None or split is None:
        sharder.whole(node, "ScatterND writes where its indices say")
        return
    chosen, before = rows[-1], len(rows) - 1
    if split.axis >= chosen:  # Case 1
        sharder.operand(node, 0, Sharding((split,)))
        sharder.operand(node, 1, WHOLE)
        sharder.operand(node, 2, Sharding((shifted(split, split.axis - chosen + before),)))
        sharder.results(node, Sharding((split,)))
        return
    # Case 2.
    counts = split.axis < before and rows[split.axis] == shape[split.axis]
    own = _own_places(sharder, places, split, rows) if counts else None
    if own is None:
        sharder.whole(node, "ScatterND writes where its indices say")
        return
    sharder.operand(node, 0, Sharding((split,)))
    node.replace_input_with(1, own)
    sharder.operand(node, 2, Sharding((split,)))
    sharder.results(node, Sharding((split,)))


def _split(
    sharder: Sharder, data: ir.Value, updates: ir.Value, shape: Shape | None, rows: Shape | None
) -> AxisSplit | None:
    """Return the axis of the data that is cut, and how: as the data are, else as the updates."""
    if shape is None or rows is None:
        return None
    axes = sharder.sharding(data).axes
    if len(axes) == 1:
        return axes[0]
    axes = sharder.sharding(updates).axes
    if len(axes) != 1 or sharder.sharding(data).partial:
        return None
    before, chosen = len(rows) - 1, rows[-1]
    axis = axes[0].axis
    return axes[0] if axis < before else shifted(axes[0], axis - before + chosen)


def _own_places(
    sharder: Sharder, places: ir.Value, split: AxisSplit, rows: Shape
) -> ir.Value | None:
    """Return the indices of an RDU's own rows among its own data; None where they do not count."""
    join = places.producer()
    if join is None or join.op_type != "Concat" or len(join.inputs) != rows[-1]:
        return None
    axis = split.axis
    wanted = [
        np.arange(rows[axis]).reshape([-1 if a == axis else 1 for a in range(len(rows))]),
        np.arange(length(split)).reshape([-1 if a == axis else 1 for a in range(len(rows))]),
    ]
    local = [length(split) if a == axis else size for a, size in enumerate((*rows[:-1], 1))]
    whole = (*rows[:-1], 1)
    parts: list[ir.Value] = []
    for place, value in enumerate(join.inputs):
        assert value is not None
        known = sharder.known(value)
        if place == axis:
            # Only an index that counts all places of the axis can be counted anew by each RDU for its own.
            if known is None or known.shape != whole or (known != wanted[0]).any():
                return None
            counted = np.broadcast_to(wanted[1], local).astype(np.int64)
            parts.append(sharder.initializer("own_places", np.ascontiguousarray(counted)))
        # A constant that is the same on all RDUs needs no input with a shard for each.
        elif known is not None and known.shape == whole and _alike(known, split):
            same = np.ascontiguousarray(np.take(known, indices(split, 0), axis=axis))
            parts.append(sharder.initializer("places", same))
        else:
            parts.append(sharder.need(value, Sharding((split,))))
    return sharder.add(
        "Concat", parts, rows, Sharding((split,)), attributes={"axis": len(rows) - 1}
    )


def _alike(array: np.ndarray, split: AxisSplit) -> bool:
    """Return whether all RDUs have the same part of a constant."""
    first = np.take(array, indices(split, 0), axis=split.axis)
    return all(
        (np.take(array, indices(split, rdu), axis=split.axis) == first).all()
        for rdu in range(1, len(split.ranges))
    )
