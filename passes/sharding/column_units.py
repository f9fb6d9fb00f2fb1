"""In how many parts the columns of a linear layer can be cut: what reads its result decides.

A head of attention belongs to one RDU. Where the result becomes ``[..., heads, width]``, parts are whole
heads; where it is taken apart, as queries, keys and values that one layer computes, each piece is cut.
"""

from __future__ import annotations

import itertools
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.operator_facts import Kind
from samba_onnx.facts.operators import facts
from samba_onnx.passes.rewrites.rewriting import integer_attribute, integers
from samba_onnx.passes.sharding.layouts import Shape, blocks
from samba_onnx.passes.sharding.sharder import Sharder
from samba_onnx.pef.sharding import AxisSplit

__all__ = ["columns"]

_FARTHEST: Final = 12
"""Nodes behind a layer that are looked at."""
_FEW: Final = 4
"""An axis before the heads of so many places is that of queries, keys and values."""

Blocks = tuple[tuple[int, int], ...]
"""Size of each piece of an axis, and the number of units, as heads, that it must be cut between."""


def columns(sharder: Sharder, value: ir.Value, axis: int) -> AxisSplit | None:
    """Return how the columns of a layer are cut.

    Args:
        sharder: Knows shapes, and is told the reason where columns are not cut.
        value: What the layer computes.
        axis: The axis of its columns.

    Returns:
        The cut; None where every RDU computes all.
    """
    size = (sharder.shape(value) or ())[axis]
    # Where no reader asks for heads, each column is a unit of its own.
    pieces = _units(sharder, value, axis, _FARTHEST) or ((size, size),)
    parts: list[tuple[int, int]] = []
    for width, units in pieces:
        if units % sharder.rdus == 0:
            parts.append((width, sharder.rdus))
        # Fewer heads than RDUs: each is computed whole by several, as no head is divided.
        elif sharder.rdus % units == 0 and units < width:
            parts.append((width, units))
            if units > 1:
                sharder.note(
                    f"{units} heads are fewer than {sharder.rdus} RDUs: each head is on "
                    f"{sharder.rdus // units} of them"
                )
        else:
            what = "heads" if units < width else "columns"
            sharder.note(
                f"{units} {what} of a linear layer cannot be divided between {sharder.rdus} RDUs: "
                "each computes all of them"
            )
            return None
    # Every RDU would have all of the axis, which is no cut.
    if all(count == 1 for _, count in parts):
        sharder.note("one head is on all RDUs")
        return None
    return blocks(axis, parts, sharder.rdus)


def _units(sharder: Sharder, value: ir.Value, axis: int, steps: int) -> Blocks | None:
    """Return the pieces that readers of a value ask for; None where none of them asks for any."""
    shape = sharder.shape(value)
    if steps == 0 or shape is None or value.is_graph_output():
        return None
    slices: dict[tuple[int, int], Blocks | None] = {}
    for node, _ in value.uses():
        # Slices say nothing alone: together they may be the pieces of one axis.
        if node.op_type == "Slice":
            found = _slice(sharder, node, shape, axis)
            if found is not None:
                slices[found] = _units(sharder, node.outputs[0], axis, steps - 1)
                continue
        pieces = _through(sharder, node, shape, axis, steps)
        # The first reader that asks decides; who needs the result otherwise has it exchanged.
        if pieces is not None:
            return pieces
    return _sliced(slices, shape[axis])


def _through(sharder: Sharder, node: ir.Node, shape: Shape, axis: int, steps: int) -> Blocks | None:
    """Return the pieces that one reader asks for."""
    result = node.outputs[0]
    after = sharder.shape(result)
    if after is None:
        return None
    row = facts(node.op_type, node.domain)
    if node.op_type in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return _reshaped(sharder, result, shape, after, axis, steps)
    if node.op_type == "Transpose":
        order = node.attributes["perm"].as_ints() if "perm" in node.attributes else ()
        places = list(order) or list(reversed(range(len(shape))))
        return _units(sharder, result, places.index(axis), steps - 1)
    if node.op_type == "Split" and integer_attribute(node, "axis", 0) % len(shape) == axis:
        pieces: list[tuple[int, int]] = []
        for output in node.outputs:
            size = (sharder.shape(output) or shape)[axis]
            pieces += _units(sharder, output, axis, steps - 1) or ((size, size),)
        return tuple(pieces)
    if row is not None and row.kind is Kind.ELEMENTWISE:
        moved = axis + len(after) - len(shape)
        # An axis that is repeated by the operator is no axis of columns.
        return _units(sharder, result, moved, steps - 1) if after[moved] == shape[axis] else None
    return None


def _reshaped(
    sharder: Sharder, result: ir.Value, before: Shape, after: Shape, axis: int, steps: int
) -> Blocks | None:
    """Look at the axes that one becomes."""
    leading, rest = 1, before[axis]
    for size in before[:axis]:
        leading *= size
    place, product = 0, 1
    while place < len(after) and product < leading:
        product *= after[place]
        place += 1
    if product != leading:
        return None
    # An axis of one place in front is none of the heads.
    while place < len(after) - 1 and after[place] == 1:
        place += 1
    own: list[int] = []
    product = 1
    for size in after[place:]:
        if product >= rest:
            break
        own.append(size)
        product *= size
    if product != rest:
        return None
    if len(own) == 1:
        return _units(sharder, result, place, steps - 1)
    # Heads of all three, which are split later.
    inner = _units(sharder, result, place, steps - 1)
    if inner is None and own[0] <= _FEW and len(own) > 2:
        return ((rest // own[0], own[1]),) * own[0]
    width = rest // own[0]
    return tuple((size * width, units) for size, units in inner or ((own[0], own[0]),))


def _slice(sharder: Sharder, node: ir.Node, shape: Shape, axis: int) -> tuple[int, int] | None:
    """Return start and end of a Slice along an axis and no other; None for any other one."""
    starts, ends = integers(node.inputs[1]), integers(node.inputs[2])
    axes = integers(node.inputs[3]) if len(node.inputs) > 3 else None
    steps = integers(node.inputs[4]) if len(node.inputs) > 4 else [1]
    if starts is None or ends is None or axes is None or len(axes) != 1 or steps != [1]:
        return None
    if axes[0] % len(shape) != axis:
        return None
    start, stop, _ = slice(starts[0], ends[0]).indices(shape[axis])
    return start, stop


def _sliced(slices: dict[tuple[int, int], Blocks | None], size: int) -> Blocks | None:
    """Return the pieces where slices cut an axis into neighbours without gaps."""
    spans = sorted(slices)
    if len(spans) < 2 or spans[0][0] != 0 or spans[-1][1] != size:
        return None
    if any(a[1] != b[0] for a, b in itertools.pairwise(spans)):
        return None
    pieces: list[tuple[int, int]] = []
    for start, stop in spans:
        pieces += slices[start, stop] or ((stop - start, stop - start),)
    return tuple(pieces)
