"""Operators that rearrange, cut, join and fill."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes, integers
from samba_onnx.importing.values import Array, tensor_of, torch_dtype


@computes("Shape")
def shape(node: Node, value: Tensor) -> Array:
    """Return sizes, which are known whatever the content is."""
    sizes = list(value.shape)
    end = node.attributes.get("end")
    # An array, not a tensor: whatever is computed from it stays known.
    return np.array(sizes[node.integer("start") : None if end is None else int(end)], np.int64)


@computes("Size")
def size(node: Node, value: Tensor) -> Array:
    """Return the number of elements."""
    del node
    return np.array(value.numel(), np.int64)


@computes("Reshape", known=(1,))
def reshape(node: Node, value: Tensor, shape: Array) -> Tensor:
    """Give another shape; 0 copies a size unless ``allowzero`` is set."""
    sizes = [int(item) for item in shape.reshape(-1)]
    if not node.integer("allowzero"):
        # 0 copies the size at the same place, which `reshape` of torch would take for an empty
        # axis.
        sizes = [value.shape[axis] if item == 0 else item for axis, item in enumerate(sizes)]
    return value.reshape(sizes)


@computes("Flatten")
def flatten(node: Node, value: Tensor) -> Tensor:
    """Make a matrix whose rows are the axes before ``axis``."""
    axis = node.integer("axis", 1)
    axis += value.dim() if axis < 0 else 0
    # Both sizes are computed, since torch refuses -1 for a tensor without elements.
    return value.reshape(math.prod(value.shape[:axis]), math.prod(value.shape[axis:]))


@computes("Transpose")
def transpose(node: Node, value: Tensor) -> Tensor:
    """Permute axes; all of them backwards by default."""
    return value.permute(node.integers("perm", list(range(value.dim()))[::-1]))


@computes("Squeeze", known=(1,))
def squeeze(node: Node, value: Tensor, axes: Array | None = None) -> Tensor:
    """Remove axes of size one."""
    del node
    positions = integers(axes)
    if positions is None:
        positions = [axis for axis, length in enumerate(value.shape) if length == 1]
    gone = {axis % value.dim() for axis in positions}
    # torch's squeeze would keep an axis that is not of size one and say nothing; reshape refuses
    # it.
    return value.reshape([n for axis, n in enumerate(value.shape) if axis not in gone])


@computes("Unsqueeze", known=(1,))
def unsqueeze(node: Node, value: Tensor, axes: Array) -> Tensor:
    """Insert axes of size one."""
    del node
    rank = value.dim() + axes.size
    new = {int(axis) % rank for axis in axes.reshape(-1)}
    sizes = iter(value.shape)
    return value.reshape([1 if axis in new else next(sizes) for axis in range(rank)])


@computes("Expand", known=(1,))
def expand(node: Node, value: Tensor, shape: Array) -> Tensor:
    """Broadcast in both directions."""
    del node
    sizes = tuple(int(item) for item in shape.reshape(-1))
    # expand of torch broadcasts towards the given shape only.
    return value.expand(np.broadcast_shapes(tuple(value.shape), sizes))


@computes("Tile", known=(1,))
def tile(node: Node, value: Tensor, repeats: Array) -> Tensor:
    """Repeat along each axis."""
    del node
    return value.repeat([int(item) for item in repeats.reshape(-1)])


@computes("Concat")
def concat(node: Node, *operands: Tensor) -> Tensor:
    """Join along an axis."""
    return torch.cat(operands, node.integer("axis"))


@computes("Slice", known=(1, 2, 3, 4))
def cut(
    node: Node,
    value: Tensor,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Tensor:
    """Cut out a range per axis; a negative step reads it backwards."""
    del node
    along = integers(axes) or list(range(starts.size))
    strides = integers(steps) or [1] * starts.size
    for start, end, axis, step in zip(
        starts.reshape(-1).tolist(), ends.reshape(-1).tolist(), along, strides, strict=True
    ):
        value = _cut_axis(value, axis, start, end, step)
    return value


def _cut_axis(value: Tensor, axis: int, start: int, end: int, step: int) -> Tensor:
    length = value.shape[axis]
    if step > 0:
        begin, stop, _ = slice(start, end, step).indices(length)
        # Python's own rules for slices agree with ONNX's for positive steps.
        return value[(slice(None),) * (axis % value.dim()) + (slice(begin, stop, step),)]
    # Not slice.indices: a stop of -1 counts from the end for Python, and stands before the first
    # element here once negative numbers are resolved.
    begin = min(start + length if start < 0 else start, length - 1)
    stop = max(end + length if end < 0 else end, -1)
    places = list(range(begin, stop, step))
    if not places:
        return value.narrow(axis, 0, 0)
    # torch knows no negative steps: the same elements are cut out forward and turned around.
    first, last = places[-1], places[0]
    forward = (slice(None),) * (axis % value.dim()) + (slice(first, last + 1, -step),)
    return value[forward].flip(axis)


@computes("Split", known=(1,))
def split(node: Node, value: Tensor, sizes: Array | None = None) -> tuple[Tensor, ...]:
    """Cut into parts along an axis: of given sizes, or equal but for the last."""
    axis = node.integer("axis")
    parts = integers(sizes)
    if parts is None:
        length, count = value.shape[axis], node.integer("num_outputs", len(node.wanted))
        part = -(-length // count)
        # The specification lets the last part be smaller, also empty.
        parts = [max(0, min(part, length - part * index)) for index in range(count)]
    return torch.split(value, parts, axis)


_EXTENSIONS = ("edge", "reflect", "wrap")
"""Modes that pad with elements of the axis itself; numpy calls them as ONNX does."""


@computes("Pad", known=(1, 3), flexible=(2,))
def pad(
    node: Node,
    value: Tensor,
    pads: Array,
    filling: Tensor | Array | None = None,
    axes: Array | None = None,
) -> Tensor:
    """Add elements at the ends of axes, or cut them off where the number is negative."""
    numbers = [int(item) for item in pads.reshape(-1)]
    along = integers(axes)
    along = list(range(value.dim())) if along is None else [a % value.dim() for a in along]
    ends = dict(zip(along, zip(numbers, numbers[len(along) :], strict=False), strict=True))
    mode = node.text("mode", "constant")
    # torch pads any axis by constants, but repeats and reflects only the last few.
    if mode != "constant":
        for axis, (before, after) in ends.items():
            value = _extend(node, value, axis, before, after, mode)
        return value
    full = [n for axis in reversed(range(value.dim())) for n in ends.get(axis, (0, 0))]
    if filling is None or isinstance(filling, np.ndarray):
        return F.pad(value, full, value=0 if filling is None else filling.item())
    # F.pad takes a number; a filling that is computed is put where nothing of the value is.
    inside = F.pad(torch.ones_like(value, dtype=torch.bool), full, value=False)
    return torch.where(inside, F.pad(value, full), filling.reshape(()))


def _extend(node: Node, value: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """Pad one axis with elements of its own."""
    if not before and not after:
        return value
    length = value.shape[axis]
    if mode not in _EXTENSIONS:
        raise node.refuse(
            f"padding mode {mode!r} is unknown; there are constant, {', '.join(_EXTENSIONS)}"
        )
    # F.pad refuses reflections over ranks and lengths that ONNX allows: places are padded by numpy,
    # and the value is read at them.
    places = np.pad(
        np.arange(length),
        (max(before, 0), max(after, 0)),
        mode=mode,  # type: ignore[call-overload]  # its stubs list literals
    )
    places = places[max(-before, 0) : len(places) - max(-after, 0)]
    return value.index_select(axis, tensor_of(places))


@computes("ConstantOfShape", known=(0,))
def constant_of_shape(node: Node, sizes: Array) -> Tensor:
    """Fill a tensor with one value."""
    value = node.tensor("value")
    filling = np.zeros(1, np.float32) if value is None else value
    # broadcast_to needs no memory for the elements, which `tensor_of` writes as one operator.
    return tensor_of(np.broadcast_to(filling.reshape(()), [int(n) for n in sizes.reshape(-1)]))


@computes("Range", known=(0, 1, 2))
def progression(node: Node, start: Array, limit: Array, step: Array) -> Tensor:
    """Return numbers at equal distances."""
    del node
    # numpy's arange counts as ONNX does and keeps the type.
    numbers = np.arange(start.item(), limit.item(), step.item(), dtype=start.dtype)
    return tensor_of(numbers)


@computes("EyeLike")
def eye_like(node: Node, value: Tensor) -> Tensor:
    """Return ones on a diagonal in the shape of a matrix."""
    rows, columns = value.shape
    dtype = torch_dtype(node.integer("dtype")) if "dtype" in node.attributes else value.dtype
    # torch.eye has no diagonal to choose.
    return tensor_of(np.eye(rows, columns, node.integer("k"))).to(dtype)


@computes("Trilu", known=(1,))
def triangle(node: Node, value: Tensor, diagonal: Array | None = None) -> Tensor:
    """Keep the upper or lower triangle of matrices."""
    offset = 0 if diagonal is None else int(diagonal.item())
    return torch.triu(value, offset) if node.integer("upper", 1) else torch.tril(value, offset)


@computes("DepthToSpace")
def depth_to_space(node: Node, value: Tensor) -> Tensor:
    """Move blocks of channels into the plane."""
    block = node.integer("blocksize")
    batch, channels, height, width = value.shape
    if node.text("mode", "DCR") == "CRD":
        # torch has this order only (CRD); the default one is written out.
        return F.pixel_shuffle(value, block)
    blocks = value.reshape(batch, block, block, channels // block**2, height, width)
    moved = blocks.permute(0, 3, 4, 1, 5, 2)
    return moved.reshape(batch, channels // block**2, height * block, width * block)


@computes("SpaceToDepth")
def space_to_depth(node: Node, value: Tensor) -> Tensor:
    """Move blocks of the plane into channels."""
    block = node.integer("blocksize")
    batch, channels, height, width = value.shape
    blocks = value.reshape(batch, channels, height // block, block, width // block, block)
    moved = blocks.permute(0, 3, 5, 1, 2, 4)
    return moved.reshape(batch, channels * block**2, height // block, width // block)


@computes("CenterCropPad", known=(1,))
def center_crop_pad(node: Node, value: Tensor, shape: Array) -> Tensor:
    """Cut or fill axes equally at both ends until they have the sizes that are wanted."""
    axes = node.integers("axes", list(range(value.dim())))
    for axis, target in zip(axes, shape.reshape(-1).tolist(), strict=True):
        axis %= value.dim()
        length = value.shape[axis]
        if target <= length:
            # The odd element is cut or added at the end.
            value = value.narrow(axis, (length - target) // 2, target)
        else:
            before = (target - length) // 2
            ends = [before, target - length - before]
            value = F.pad(value, [0, 0] * (value.dim() - 1 - axis) + ends)
    return value


@computes("Col2Im", known=(1, 2))
def col2im(node: Node, value: Tensor, image: Array, block: Array) -> Tensor:
    """Add up the columns of overlapping blocks."""
    rank = image.size
    # F.fold knows planes only.
    if rank != 2:
        raise node.refuse(f"images of {rank} dimensions cannot be assembled; only of 2")
    pads = node.integers("pads", [0] * 4)
    full = F.fold(
        value,
        tuple(int(n) + pads[axis] + pads[axis + 2] for axis, n in enumerate(image.reshape(-1))),
        tuple(int(n) for n in block.reshape(-1)),
        tuple(node.integers("dilations", [1, 1])),
        0,
        tuple(node.integers("strides", [1, 1])),
    )
    # F.fold cuts equal pads at both ends; with none, and the cut here, they may differ.
    return F.pad(full, [-pads[1], -pads[3], -pads[0], -pads[2]])


@computes("ReverseSequence")
def reverse_sequence(node: Node, value: Tensor, lengths: Tensor) -> Tensor:
    """Turn the first elements of each sequence around."""
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    moved = value.movedim((time, batch), (0, 1))
    return reversed_steps(moved, lengths).movedim((0, 1), (time, batch))


def reversed_steps(value: Tensor, lengths: Tensor) -> Tensor:
    """Turn the first ``lengths`` steps around.

    Args:
        value: [time, batch, ...].
        lengths: [batch], integers.

    Returns:
        As ``value``; steps from ``lengths`` on stay.
    """
    steps = torch.arange(value.shape[0]).unsqueeze(1)
    # Places behind a sequence's length read themselves.
    places = torch.where(steps < lengths, lengths - 1 - steps, steps)
    places = places.reshape(*places.shape, *[1] * (value.dim() - 2))
    return torch.gather(value, 0, places.expand(value.shape))
