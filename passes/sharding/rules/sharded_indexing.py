"""Gather: embeddings cut by their words or by their width, and choices from what is cut otherwise."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import integer_attribute
from samba_onnx.passes.sharding.layouts import (
    PARTIAL,
    WHOLE,
    Shape,
    Sharding,
    even,
    is_partition,
    length,
    shifted,
)
from samba_onnx.passes.sharding.sharder import Sharder
from samba_onnx.pef.sharding import AxisSplit

__all__ = ["gather"]


def gather(sharder: Sharder, node: ir.Node) -> None:
    """Cut a Gather.

    1. A table that nothing else reads is cut by its width, and the rows that were chosen are gathered.
    2. A table that a linear layer reads, too, is cut by its words, as that layer's columns are: each RDU
       chooses among its own words, with zeros for others, and the sum is what was chosen.
    3. Data that are cut along another axis, or indices that are cut, stay so.
    """
    data, chosen = node.inputs[0], node.inputs[1]
    assert data is not None
    assert chosen is not None
    shape, places = sharder.shape(data), sharder.shape(chosen)
    if shape is None or places is None:
        sharder.whole(node, "Gather has sizes that are not known")
        return
    axis = integer_attribute(node, "axis", 0) % len(shape)
    # Case 3, of indices.
    if sharder.sharding(chosen).axes:
        _by_indices(sharder, node, axis)
        return
    sharder.operand(node, 1, WHOLE)
    # Cases 1 and 2: a table in which nothing was decided yet.
    if len(shape) == 2 and axis == 0 and sharder.is_open_weight(data):
        _table(sharder, node, data, shape)
    sharding = sharder.sharding(_data(node))
    own = sharding.of(axis)
    if sharding.partial:
        sharder.operand(node, 0, WHOLE)
        sharder.results(node, WHOLE)
    # Case 3, of data; and case 1, whose rows are gathered just behind.
    elif own is None:
        after = [
            s if s.axis < axis else shifted(s, s.axis + len(places) - 1) for s in sharding.axes
        ]
        sharder.operand(node, 0, sharding)
        sharder.results(node, Sharding(tuple(after)))
        # What follows, as a norm, reads whole rows, and these are few beside the table.
        if len(shape) == 2 and axis == 0 and after and _data(node).producer() is None:
            result = node.outputs[0]
            with sharder.behind(result) as replacement:
                replacement.append(sharder.need(result, WHOLE))
    # Case 2.
    elif len(sharding.axes) == 1 and axis == 0 and _is_own_block(own, shape[0]) and places:
        _among_own(sharder, node, own, places)
    else:
        sharder.whole(node, "Gather chooses along an axis that is cut")


def _data(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


def _by_indices(sharder: Sharder, node: ir.Node, axis: int) -> None:
    """Choose for the indices that each RDU has: case 3."""
    chosen = node.inputs[1]
    assert chosen is not None
    sharding = sharder.sharding(chosen)
    sharder.operand(node, 0, WHOLE)
    sharder.operand(node, 1, sharding)
    moved = tuple(shifted(split, split.axis + axis) for split in sharding.axes)
    sharder.results(node, Sharding(moved))


def _table(sharder: Sharder, node: ir.Node, data: ir.Value, shape: Shape) -> None:
    """Decide how a table of embeddings is cut: cases 1 and 2."""
    words, width = shape
    rdus = sharder.rdus
    # One table for both: a copy that lies otherwise would take as much memory again.
    multiplied = any(_is_factor(reader) for reader, _ in data.uses())
    if multiplied and words % rdus == 0:
        sharder.operand(node, 0, Sharding((even(0, words, rdus, rdus),)))
    elif not multiplied and width % rdus == 0:
        sharder.operand(node, 0, Sharding((even(1, width, rdus, rdus),)))
    else:
        what = f"{words} words" if multiplied else f"the width {width}"
        sharder.note(f"{what} of an embedding cannot be divided between {rdus} RDUs: each has all")
        sharder.operand(node, 0, WHOLE)


def _is_factor(node: ir.Node) -> bool:
    """Return whether a node multiplies by a table, maybe behind a Transpose or a Cast."""
    if node.op_type in ("Cast", "Transpose", "Identity"):
        return any(_is_factor(reader) for reader, _ in node.outputs[0].uses())
    return node.op_type in ("Gemm", "MatMul")


def _is_own_block(split: AxisSplit, size: int) -> bool:
    """Return whether every RDU has one range of the words, and no other one has any of it."""
    return all(len(flat) == 2 for flat in split.ranges) and is_partition(split, size)


def _among_own(sharder: Sharder, node: ir.Node, split: AxisSplit, places: Shape) -> None:
    """Choose among an RDU's own words, with zeros for the others: case 2."""
    chosen, result = node.inputs[1], node.outputs[0]
    assert chosen is not None
    assert chosen.dtype is not None
    kind, shape = chosen.dtype, sharder.shape(result) or ()
    firsts = np.array([[flat[0]] for flat in split.ranges], kind.numpy())
    first = sharder.of_each("first_word", firsts)
    zero = sharder.initializer("zero", np.array(0, kind.numpy()))
    count = sharder.initializer("words", np.array(length(split), kind.numpy()))
    own = sharder.add("Sub", [chosen, first], places, WHOLE)
    truth = ir.DataType.BOOL
    negative = sharder.add("Less", [own, zero], places, WHOLE, dtype=truth)
    beyond = sharder.add("Less", [own, count], places, WHOLE, dtype=truth)
    # An index of another RDU's word reads word 0, which each has; its row is replaced by zeros below.
    some = sharder.add("Where", [negative, zero, own], places, WHOLE, dtype=kind)
    some = sharder.add("Where", [beyond, some, zero], places, WHOLE, dtype=kind)
    sharder.operand(node, 0, Sharding((split,)))
    node.replace_input_with(1, some)
    sharder.results(node, PARTIAL)
    rows = (*places, *(1,) * (len(shape) - len(places)))
    width = sharder.constant("shape", rows)
    with sharder.behind(result) as replacement:
        flags = [
            sharder.add("Reshape", [flag, width], rows, WHOLE, dtype=truth)
            for flag in (negative, beyond)
        ]
        nothing = sharder.scalar(result, 0.0)
        kept = sharder.add("Where", [flags[0], nothing, result], shape, PARTIAL, dtype=result.dtype)
        kept = sharder.add("Where", [flags[1], kept, nothing], shape, PARTIAL, dtype=result.dtype)
        replacement.append(kept)
