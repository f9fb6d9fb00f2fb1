"""Operators that move elements: an axis that is cut stays cut wherever it goes."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import integer_attribute, integers
from samba_onnx.passes.sharding.layouts import (
    WHOLE,
    Shape,
    Sharding,
    indices,
    length,
    local_shape,
    ranges_of,
    reshaped,
    shifted,
)
from samba_onnx.passes.sharding.rules.sharded_elementwise import fitting
from samba_onnx.passes.sharding.sharder import Sharder
from samba_onnx.pef.sharding import AxisSplit

__all__ = ["concat", "expand", "pad", "reshape", "slice_rule", "split_rule", "transpose"]


def reshape(sharder: Sharder, node: ir.Node) -> None:
    """Cut an operator that gives its operand another shape: Reshape, Flatten, Squeeze, Unsqueeze."""
    value = _first(node)
    before, after = sharder.shape(value), sharder.shape(node.outputs[0])
    if before is None or after is None:
        sharder.whole(node, f"{node.op_type} has sizes that are not known")
        return
    sharding = sharder.sharding(value)
    # Summands have the whole shape: reshaped, they are summands still.
    found = sharding if sharding.partial else reshaped(sharding, before, after)
    if found is None:
        sharder.whole(node, f"{node.op_type} joins elements of several RDUs")
        return
    sharder.operand(node, 0, sharding)
    if node.op_type == "Reshape" and found.axes:
        shape = sharder.constant("shape", local_shape(after, found))
        node.replace_input_with(1, shape)
        # All sizes are stated now, none by a 0.
        node.attributes.pop("allowzero", None)
    sharder.operand(node, 1, WHOLE)
    sharder.results(node, found)


def transpose(sharder: Sharder, node: ir.Node) -> None:
    """Cut a Transpose."""
    value = _first(node)
    shape, sharding = sharder.shape(value), sharder.sharding(value)
    if shape is None:
        sharder.whole(node, "Transpose has sizes that are not known")
        return
    order = list(node.attributes["perm"].as_ints()) if "perm" in node.attributes else []
    order = order or list(reversed(range(len(shape))))
    axes = sorted((order.index(s.axis), s.ranges) for s in sharding.axes)
    sharder.operand(node, 0, sharding)
    sharder.results(node, Sharding(tuple(AxisSplit(*each) for each in axes), sharding.partial))


def expand(sharder: Sharder, node: ir.Node) -> None:
    """Cut an Expand along the axes that are cut before.

    Where fewer parts than RDUs were made, so that several have the same, and an axis is repeated often
    enough, each of these makes its share of the copies: so are heads of keys that several heads of
    queries read divided further.
    """
    value = _first(node)
    before, after = sharder.shape(value), sharder.shape(node.outputs[0])
    sharding = sharder.sharding(value)
    if before is None or after is None or sharding.partial:
        sharder.whole(node, "Expand has sizes that are not known")
        return
    shift = len(after) - len(before)
    axes = [shifted(split, split.axis + shift) for split in sharding.axes]
    if any(before[s.axis] == 1 for s in sharding.axes):
        sharder.whole(node, "Expand repeats an axis that is cut")
        return
    if len(axes) == 1:
        axes += _shares(sharder, axes[0], before, after)
    target = Sharding(tuple(sorted(axes, key=lambda split: split.axis)))
    sharder.operand(node, 0, sharding)
    if target.axes:
        node.replace_input_with(1, sharder.constant("shape", local_shape(after, target)))
    sharder.operand(node, 1, WHOLE)
    sharder.results(node, target)


def _shares(sharder: Sharder, split: AxisSplit, before: Shape, after: Shape) -> list[AxisSplit]:
    """Return the cut of the axis behind one that is in fewer parts than there are RDUs."""
    axis = split.axis + 1
    shift = len(after) - len(before)
    same = split.ranges.count(split.ranges[0])
    # Axes that Expand adds come before all others: the one behind a cut was there before.
    repeated = axis < len(after) and before[axis - shift] == 1
    if same == 1 or not repeated or after[axis] % same:
        return []
    step = after[axis] // same
    seen: dict[tuple[int, ...], int] = {}
    ranges: list[tuple[int, ...]] = []
    for mine in split.ranges:
        place = seen.get(mine, 0)
        seen[mine] = place + 1
        ranges.append((place * step, (place + 1) * step))
    return [AxisSplit(axis, tuple(ranges))] if set(seen.values()) == {same} else []


def concat(sharder: Sharder, node: ir.Node) -> None:
    """Cut a Concat: along another axis all operands alike, along its own each as it is."""
    result = sharder.shape(node.outputs[0])
    operands = [value for value in node.inputs if value is not None]
    shapes = [sharder.shape(value) for value in operands]
    if result is None or any(shape is None for shape in shapes):
        sharder.whole(node, "Concat has sizes that are not known")
        return
    axis = integer_attribute(node, "axis", 0) % len(result)
    found = [sharder.sharding(value) for value in operands]
    target = next((each for each in found if each.axes), WHOLE)
    if any(split.axis == axis for split in target.axes):
        # Each RDU joins what it has: the order of the whole is in the ranges, and nothing is exchanged.
        joined = _joined(axis, found, [(shape or ())[axis] for shape in shapes])
        if joined is None:
            sharder.whole(node, "Concat joins pieces that RDUs have in part and in whole")
            return
        for place in range(len(operands)):
            sharder.operand(node, place, found[place])
        sharder.results(node, joined)
        return
    for place, value in enumerate(operands):
        sharder.operand(node, place, fitting(target, result, sharder.shape(value) or ()))
    sharder.results(node, target)


def _joined(axis: int, found: list[Sharding], sizes: list[int]) -> Sharding | None:
    """Return how pieces lie behind each other, each cut along the axis that they are joined along."""
    splits = [each.axes[0] if len(each.axes) == 1 else None for each in found]
    ranges: list[tuple[int, ...]] = []
    for rdu in range(len(next(s for s in splits if s is not None).ranges)):
        mine: list[int] = []
        start = 0
        for split, size in zip(splits, sizes, strict=True):
            if split is None or split.axis != axis:
                return None
            mine += [place + start for place in split.ranges[rdu]]
            start += size
        ranges.append(tuple(mine))
    return Sharding((AxisSplit(axis, tuple(ranges)),))


def split_rule(sharder: Sharder, node: ir.Node) -> None:
    """Cut a Split: along its own axis each piece must be on all RDUs in equal parts."""
    value = _first(node)
    shape, sharding = sharder.shape(value), sharder.sharding(value)
    outputs = [sharder.shape(each) for each in node.outputs]
    if shape is None or sharding.partial or any(each is None for each in outputs):
        sharder.whole(node, "Split has sizes that are not known")
        return
    axis = integer_attribute(node, "axis", 0) % len(shape)
    own = sharding.of(axis)
    if own is None:
        sharder.operand(node, 0, sharding)
        sharder.operand(node, 1, WHOLE)
        sharder.results(node, sharding)
        return
    start, found = 0, []
    for each in outputs:
        size = (each or shape)[axis]
        found.append(_part(own, start, start + size))
        start += size
    if any(part is None for part, _ in found):
        sharder.whole(node, "Split takes pieces that RDUs have in unequal parts")
        return
    sharder.operand(node, 0, sharding)
    others = tuple(split for split in sharding.axes if split.axis != axis)
    sizes = []
    for output, (part, _) in zip(node.outputs, found, strict=True):
        assert part is not None
        axes = sorted((*others, part), key=lambda split: split.axis)
        sizes.append(length(part))
        sharder.result(output, Sharding(tuple(axes)))
    # ONNX lets a Split state sizes or their number, not both.
    node.attributes.pop("num_outputs", None)
    node.resize_inputs(2)
    node.replace_input_with(1, sharder.constant("sizes", sizes))


def slice_rule(sharder: Sharder, node: ir.Node) -> None:
    """Cut a Slice: along an axis that is cut it must take equally much of each RDU."""
    value = _first(node)
    shape, sharding = sharder.shape(value), sharder.sharding(value)
    if sharding == WHOLE:
        sharder.whole(node)
        return
    starts, ends = integers(node.inputs[1]), integers(node.inputs[2])
    axes = integers(node.inputs[3]) if len(node.inputs) > 3 else None
    steps = integers(node.inputs[4]) if len(node.inputs) > 4 else None
    if shape is None or sharding.partial or starts is None or ends is None:
        sharder.whole(node, "Slice takes what is known when it runs only")
        return
    axes = [axis % len(shape) for axis in axes] if axes else list(range(len(starts)))
    steps = steps or [1] * len(starts)
    result = {split.axis: split for split in sharding.axes}
    for place, axis in enumerate(axes):
        own = sharding.of(axis)
        start, stop, step = slice(starts[place], ends[place], steps[place]).indices(shape[axis])
        if own is None or (start, stop, step) == (0, shape[axis], 1):
            # An end that means all of the axis is the end of each shard.
            ends[place] = ends[place] if own is None else length(own)
            continue
        part, first = _part(own, start, stop)
        # With a step, what an RDU takes depends on where its places begin.
        if part is None or step != 1:
            sharder.whole(node, "Slice takes unequal parts of what RDUs have")
            return
        starts[place], ends[place] = first, first + length(part)
        result[axis] = part
    sharder.operand(node, 0, sharding)
    node.replace_input_with(1, sharder.constant("starts", starts))
    node.replace_input_with(2, sharder.constant("ends", ends))
    for place in (3, 4):
        sharder.operand(node, place, WHOLE)
    sharder.results(node, Sharding(tuple(result[axis] for axis in sorted(result))))


def _part(split: AxisSplit, start: int, stop: int) -> tuple[AxisSplit | None, int]:
    """Return what every RDU has of a piece of an axis, and where it begins among what it has.

    The cut is None where they do not have equally much at one place.
    """
    ranges: list[tuple[int, ...]] = []
    spans: set[tuple[int, int]] = set()
    for rdu in range(len(split.ranges)):
        places = indices(split, rdu)
        inside = (places >= start) & (places < stop)
        mine = inside.nonzero()[0]
        # A Slice takes one run of places.
        if not len(mine) or mine[-1] - mine[0] + 1 != len(mine):
            return None, 0
        spans.add((int(mine[0]), len(mine)))
        ranges.append(ranges_of(places[inside] - start))
    # One program runs on all: it takes the same places of what each RDU has.
    if len(spans) > 1:
        return None, 0
    return AxisSplit(split.axis, tuple(ranges)), spans.pop()[0]


def pad(sharder: Sharder, node: ir.Node) -> None:
    """Cut a Pad along axes that it adds nothing to."""
    value = _first(node)
    shape, sharding = sharder.shape(value), sharder.sharding(value)
    amounts = integers(node.inputs[1])
    axes = integers(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else None
    if shape is None or sharding.partial or amounts is None:
        sharder.whole(node, "Pad adds what is known when it runs only")
        return
    places = [axis % len(shape) for axis in axes] if axes else list(range(len(shape)))
    added = {
        axis for place, axis in enumerate(places) if amounts[place] or amounts[place + len(places)]
    }
    # Only the first and the last RDU would have to add anything.
    if any(split.axis in added for split in sharding.axes):
        sharder.whole(node, "Pad adds to an axis that is cut")
        return
    sharder.operand(node, 0, sharding)
    for place in range(1, len(node.inputs)):
        sharder.operand(node, place, WHOLE)
    sharder.results(node, sharding)


def _first(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value
