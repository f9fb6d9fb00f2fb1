"""Gradients of ATen operators that read a part of a tensor: the part put back among zeros."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.scattering import put_slices
from samba_onnx.export.translation.builder import GraphBuilder, count, element, sizes


def spread(
    build: GraphBuilder, value: ir.Value, axis: int, start: int, step: int, size: int
) -> ir.Value:
    """Return a value placed at every ``step``-th position of an axis of zeros.

    Args:
        build: The graph.
        value: A value of any type, with at least one axis.
        axis: The axis to spread along, counted from the first one, so not negative.
        start: Where the first element of the value goes.
        step: Positions from one element to the next.
        size: Length of the axis afterwards.
    """
    shape = list(sizes(value))
    length = shape[axis]
    if length == 0:
        return build.full([*shape[:axis], size, *shape[axis + 1 :]], 0, element(value))
    if step > 1 and length > 1:
        apart = build.reshape(value, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
        behind = [0] * (len(shape) + 1)
        behind[axis + 1] = step - 1
        wide = build.pad(apart, [0] * (len(shape) + 1), behind)
        shape[axis] = length * step
        # Zeros behind the last element may reach over the end of the axis.
        value = build.slice(build.reshape(wide, shape), axis, 0, (length - 1) * step + 1)
    before, after = [0] * len(shape), [0] * len(shape)
    before[axis] = start
    after[axis] = size - start - sizes(value)[axis]
    return build.pad(value, before, after)


@translates("slice_backward")
def slice_backward(
    context: Context,
    gradient: ir.Value,
    input_sizes: Sequence[int],
    dim: int,
    start: int,
    end: int,
    step: int,
) -> ir.Value:
    """Put back what a slice had taken."""
    axis = dim % len(input_sizes)
    first = slice(start, end).indices(input_sizes[axis])[0]
    return spread(context.build, gradient, axis, first, step, input_sizes[axis])


@translates("select_backward")
def select_backward(
    context: Context, gradient: ir.Value, input_sizes: Sequence[int], dim: int, index: int
) -> ir.Value:
    """Put back what one index had taken."""
    build, axis = context.build, dim % len(input_sizes)
    shape = sizes(gradient)
    row = build.reshape(gradient, [*shape[:axis], 1, *shape[axis:]])
    return spread(build, row, axis, index % input_sizes[axis], 1, input_sizes[axis])


@translates("diagonal_backward")
def diagonal_backward(
    context: Context,
    gradient: ir.Value,
    input_sizes: Sequence[int],
    offset: int,
    dim1: int,
    dim2: int,
) -> ir.Value:
    """Put back what a diagonal had taken."""
    build, rank = context.build, len(input_sizes)
    one, other = dim1 % rank, dim2 % rank
    rows, columns = input_sizes[one], input_sizes[other]
    shape = sizes(gradient)
    tall = spread(build, gradient, rank - 2, max(0, -offset), 1, rows)
    tall = build.reshape(tall, [*shape[:-1], rows, 1])
    on = build.constant(np.eye(rows, columns, offset, dtype=bool), ir.DataType.BOOL)
    matrices = build.where(on, tall, 0)
    order = [axis for axis in range(rank) if axis not in (one, other)] + [one, other]
    return build.transpose(matrices, [int(i) for i in np.argsort(order)])


@translates("unfold_backward")
def unfold_backward(
    context: Context,
    gradient: ir.Value,
    input_sizes: Sequence[int],
    dim: int,
    size: int,
    step: int,
) -> ir.Value:
    """Add up windows where they had been cut out."""
    build = context.build
    if not input_sizes:
        return build.reshape(gradient, [])
    axis, rank = dim % len(input_sizes), len(input_sizes)
    windows = sizes(gradient)[axis]
    order = [*range(axis + 1), rank, *range(axis + 1, rank)]
    shape = [*input_sizes[:axis], windows, size, *input_sizes[axis + 1 :]]
    parts = build.transpose(gradient, order)
    if step >= size:
        behind = [0] * (rank + 1)
        behind[axis + 1] = step - size
        padded = build.pad(parts, [0] * (rank + 1), behind)
        shape[axis : axis + 2] = [windows * step]
        row = build.reshape(padded, shape)
        row = build.slice(row, axis, 0, input_sizes[axis])
        return spread(build, row, axis, 0, 1, input_sizes[axis])
    shape[axis : axis + 2] = [windows * size]
    places = np.arange(windows)[:, None] * step + np.arange(size)
    zeros = build.full(input_sizes, 0, element(gradient))
    if count(gradient) == 0:
        return zeros
    index = build.integers(places.reshape(-1).tolist())
    return put_slices(build, zeros, axis, index, build.reshape(parts, shape), "add")
