"""Rearrange a tensor before it is split, instead of every piece of it."""

from __future__ import annotations

import math

import onnx_ir as ir

from samba_onnx.passes.rewrites.interface import Dimension, dimensions
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_integers,
    each_graph,
    inherit,
    integer_attribute,
    integers,
    is_operator,
    is_read_once,
    take_over,
)

Sizes = tuple[Dimension, ...]


class HoistOverSplitPass(ReasonedPass):
    """Reshape or transpose once before a Split, where all that reads its pieces does the same.

    Heads of queries, keys and values that one layer computes are the usual case.

    1. Every piece is read by one node of the same graph, and all these are Reshapes, or Transposes
       of one order.
    2. A Reshape divides the axis that is split, into sizes that are known and equal but for the
       first, and leaves the other axes as they are; at most one of these is dynamic.
    3. Sizes of the pieces along the axis are known.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Hoist what follows every Split."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if is_operator(node, "Split"):
                    modified |= self.refusals.applied(node, _hoist(model, node))
        return ir.passes.PassResult(model, modified=modified)


def _hoist(model: ir.Model, split: ir.Node) -> Refusal | None:
    source, graph = split.inputs[0], split.graph
    shape = None if source is None else dimensions(source.shape)
    if source is None or shape is None or graph is None:
        return Refusal("the rank of what is split is not known")
    # Case 1: one kind of reader.
    if len(split.outputs) < 2 or not all(is_read_once(piece) for piece in split.outputs):
        return Refusal("a piece is not read by exactly one node")
    readers = [next(iter(piece.consumers())) for piece in split.outputs]
    kinds = {reader.op_type for reader in readers}
    if any(reader.graph is not graph or reader.domain for reader in readers) or len(kinds) > 1:
        return Refusal("its pieces are read by different operators")
    # A Split of a scalar is invalid; the modulus must not fail of it.
    axis = integer_attribute(split, "axis", 0) % max(1, len(shape))
    # Case 3.
    widths = [_size(piece, axis) for piece in split.outputs]
    known = [width for width in widths if width is not None]
    if len(known) < len(widths):
        return Refusal("the sizes of its pieces are not known")
    if kinds == {"Reshape"}:
        return _hoist_reshapes(model, split, readers, axis, known)
    if kinds == {"Transpose"}:
        return _hoist_transposes(model, split, readers, axis, known)
    return Refusal("its pieces are not rearranged")


def _size(value: ir.Value, axis: int) -> int | None:
    shape = dimensions(value.shape)
    size = None if shape is None or axis >= len(shape) else shape[axis]
    return size if isinstance(size, int) else None


def _hoist_transposes(
    model: ir.Model, split: ir.Node, readers: list[ir.Node], axis: int, widths: list[int]
) -> Refusal | None:
    orders = {
        tuple(reader.attributes["perm"].as_ints()) if "perm" in reader.attributes else None
        for reader in readers
    }
    order = orders.pop()
    if orders or order is None:
        return Refusal("its pieces are transposed in different orders")
    transpose = ir.node("Transpose", [split.inputs[0]], {"perm": order})
    shape = dimensions(split.inputs[0].shape) if split.inputs[0] is not None else None
    if shape is not None:
        # Its shape is known at once, without inference: permuted sizes.
        transpose.outputs[0].shape = ir.Shape([shape[place] for place in order])
    _replace(model, split, readers, transpose, order.index(axis), widths)
    return None


def _hoist_reshapes(
    model: ir.Model, split: ir.Node, readers: list[ir.Node], axis: int, widths: list[int]
) -> Refusal | None:
    shape = dimensions(split.inputs[0].shape) if split.inputs[0] is not None else None
    if shape is None:
        return Refusal("the rank of what is split is not known")
    lead, trail = shape[:axis], shape[axis + 1 :]
    # Case 2: what stands between the axes that stay.
    heads: list[int] = []
    tails: set[tuple[int, ...]] = set()
    for reader, width in zip(readers, widths, strict=True):
        divided = _divided(reader, lead, trail, width)
        if divided is None:
            return Refusal("a Reshape changes more than the axis that is split")
        heads.append(divided[0])
        tails.add(divided[1:])
    tail = tails.pop()
    if tails or not tail:
        return Refusal("the Reshapes divide the axis differently, or not at all")
    # A size of 0 in a Reshape would copy a dimension instead.
    if 0 in (*heads, *shape):
        return Refusal("it has empty pieces")
    # Dynamic sizes in front are copied by 0, and one behind is found by -1.
    target: list[int] = [dim if isinstance(dim, int) else 0 for dim in lead]
    target += [sum(heads), *tail]
    target += [dim if isinstance(dim, int) else -1 for dim in trail]
    if target.count(-1) > 1:
        return Refusal("several axes behind the one that is split are dynamic")
    name = f"{readers[0].outputs[0].name}_shape"
    reshape = ir.node("Reshape", [split.inputs[0], add_integers(model, name, target)])
    reshape.outputs[0].shape = ir.Shape([*lead, sum(heads), *tail, *trail])
    _replace(model, split, readers, reshape, axis, heads)
    return None


def _divided(reader: ir.Node, lead: Sizes, trail: Sizes, width: int) -> tuple[int, ...] | None:
    """Return the sizes into which a Reshape divides the axis, None when it does anything else."""
    shape = dimensions(reader.outputs[0].shape)
    if shape is None or integers(reader.inputs[1]) is None:
        return None
    end = len(shape) - len(trail)
    between = shape[len(lead) : end]
    numbers = tuple(dim for dim in between if isinstance(dim, int))
    # Unknown sizes are not known to be equal, though they look alike.
    same = shape[: len(lead)] == lead and shape[end:] == trail and None not in (*lead, *trail)
    whole = len(numbers) == len(between) > 0 and math.prod(numbers) == width
    return numbers if same and whole else None


def _replace(
    model: ir.Model,
    split: ir.Node,
    readers: list[ir.Node],
    rearranged: ir.Node,
    axis: int,
    widths: list[int],
) -> None:
    """Put a rearrangement and a Split of it in the place of a Split and its readers."""
    graph, name = split.graph, readers[0].outputs[0].name
    whole = rearranged.outputs[0]
    whole.name = f"{name}_whole"
    whole.type = None if split.inputs[0] is None else split.inputs[0].type
    sizes = add_integers(model, f"{name}_sizes", widths)
    new = ir.node("Split", [whole, sizes], {"axis": axis}, num_outputs=len(readers))
    inherit([rearranged], readers[0])
    inherit([new], split)
    if graph is None:
        raise ValueError(f"node {split.name!r} is in no graph")
    graph.insert_before(split, [rearranged, new])
    for reader, output in zip(readers, new.outputs, strict=True):
        take_over(reader.outputs[0], output)
    graph.remove([*readers, split], safe=True)
