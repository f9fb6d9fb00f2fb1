"""Operators that move elements, or only say how they are arranged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.errors import ModelError
from samba_onnx.export.operators.registry import Context, Result, translates
from samba_onnx.export.translation.builder import count, element, sizes
from samba_onnx.tensor.dtypes import FLOATING

_TRILU = FLOATING | {ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL}
"""Types of which the RDU has triangles; others are selected."""


@translates(
    "alias", "alias_copy", "clone", "conj", "contiguous", "detach", "detach_copy", "lift",
    "lift_fresh", "lift_fresh_copy", "resolve_conj", "resolve_neg", "_conj", "real", "pin_memory",
)  # fmt: skip
def same(context: Context, value: ir.Value, *_: object) -> ir.Value:
    """Write nothing."""
    return value


@translates("to", "_to_copy", "type_as", "_cast_Float", "_autocast_to_full_precision")
def convert(context: Context, value: ir.Value | float, *_: object) -> ir.Value:
    """Write a Cast to the type of the result."""
    if not isinstance(value, ir.Value):  # torch.vmap makes tensors of numbers so
        return context.build.constant(value, context.result.dtype)
    return context.build.cast(value, context.result.dtype)


@translates("copy")
def copy(context: Context, _old: object, value: ir.Value, *_: object) -> ir.Value:
    """Write a value in the type and shape of what it overwrites."""
    content = context.build.cast(value, context.result.dtype)
    return context.build.expand(content, context.result.shape)


@translates(
    "view", "view_copy", "_unsafe_view", "reshape", "_reshape_alias", "_reshape_copy", "flatten",
    "unflatten", "squeeze", "squeeze_copy", "unsqueeze", "unsqueeze_copy", "view_as", "reshape_as",
    "ravel", "atleast_1d.default", "atleast_2d.default",
)  # fmt: skip
def reshape(context: Context, value: ir.Value, *_: object) -> ir.Value:
    """Write a Reshape."""
    return context.build.reshape(value, context.result.shape)


@translates("view.dtype", "view_copy.dtype")
def reinterpret(context: Context, value: ir.Value, _dtype: object) -> ir.Value:
    """Write nothing if the type stays."""
    if element(value) != context.result.dtype:
        raise ModelError(
            f"a view of {element(value).name} as {context.result.dtype.name} cannot be written in "
            "ONNX: convert with to(dtype), or compute it outside of the module"
        )
    return value


@translates("permute", "permute_copy")
def permute(context: Context, value: ir.Value, order: Sequence[int]) -> ir.Value:
    """Write a Transpose."""
    return context.build.transpose(value, order)


@translates("transpose", "transpose_copy", "swapaxes", "swapdims")
def transpose(context: Context, value: ir.Value, one: int, other: int) -> ir.Value:
    """Write an exchange of two axes."""
    rank = len(sizes(value))
    if not rank:
        return value
    order = list(range(rank))
    order[one], order[other] = order[other], order[one]
    return context.build.transpose(value, order)


@translates("t", "t_copy", "numpy_T", "mT", "adjoint")
def reverse_axes(context: Context, value: ir.Value) -> ir.Value:
    """Write an exchange of the last two axes, of all for ``numpy_T``."""
    rank = len(sizes(value))
    if rank < 2:
        return value
    order = list(range(rank))
    if "numpy_T" in context.operator:
        order.reverse()
    else:
        order[-2:] = reversed(order[-2:])
    return context.build.transpose(value, order)


@translates("expand", "expand_copy", "expand_as", "broadcast_to")
def expand(context: Context, value: ir.Value, *_: object) -> ir.Value:
    """Write an Expand."""
    return context.build.expand(value, context.result.shape)


@translates("repeat", "tile")
def repeat(context: Context, value: ir.Value, times: Sequence[int]) -> ir.Value:
    """Write a Tile."""
    build = context.build
    rank = max(len(times), len(sizes(value)))
    times = [1] * (rank - len(times)) + list(times)
    operand = build.reshape(value, [1] * (rank - len(sizes(value))) + list(sizes(value)))
    if all(n == 1 for n in times):
        return operand
    return build.emit(
        "Tile", [operand, build.integers(times)], element(value), context.result.shape
    )


@translates("repeat_interleave.self_int")
def repeat_interleave(
    context: Context, value: ir.Value, times: int, axis: int | None = None, *_: object
) -> ir.Value:
    """Write every element several times in a row."""
    build = context.build
    if axis is None:
        value, axis = build.reshape(value, [count(value)]), 0
    shape = sizes(value)
    axis %= max(len(shape), 1)
    wide = (*shape[: axis + 1], times, *shape[axis + 1 :])
    slices = build.reshape(value, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    return build.reshape(build.expand(slices, wide), context.result.shape)


@translates("cat", "concat", "concatenate")
def cat(context: Context, values: Sequence[ir.Value], axis: int = 0) -> ir.Value:
    """Write a Concat; empty vectors count for nothing, as in torch."""
    build, dtype = context.build, context.result.dtype
    full = [build.cast(value, dtype) for value in values if sizes(value) != (0,)]
    if not full:
        return build.cast(values[0], dtype)
    return build.concat(full, axis)


@translates("stack")
def stack(context: Context, values: Sequence[ir.Value], axis: int = 0) -> ir.Value:
    """Write a Concat along a new axis."""
    build, dtype = context.build, context.result.dtype
    axis %= len(context.result.shape)
    shape = list(context.result.shape)
    shape[axis] = 1
    return build.concat([build.reshape(build.cast(v, dtype), shape) for v in values], axis)


@translates("split", "split_with_sizes", "split_with_sizes_copy", "split_copy", "unsafe_split",
            "chunk", "unsafe_chunk", "tensor_split", "unsafe_split_with_sizes")  # fmt: skip
def split(context: Context, value: ir.Value, _parts: object, axis: int = 0) -> Result:
    """Write a Split into the parts that torch says."""
    parts = [outcome.shape[axis] for outcome in context.results if outcome is not None]
    return list(context.build.split(value, parts, axis))


@translates("unbind", "unbind_copy")
def unbind(context: Context, value: ir.Value, axis: int = 0) -> Result:
    """Write a Split into slices without the axis."""
    build = context.build
    shape = list(sizes(value))
    axis %= len(shape)
    left = [*shape[:axis], *shape[axis + 1 :]]
    return [build.reshape(part, left) for part in build.split(value, [1] * shape[axis], axis)]


@translates("slice", "slice_copy")
def slice_tensor(
    context: Context,
    value: ir.Value,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> ir.Value:
    """Write a Slice."""
    first, last, step = _bounds(sizes(value)[axis], start, end, step)
    return context.build.slice(value, axis, first, last, step)


@translates("narrow", "narrow_copy")
def narrow(context: Context, value: ir.Value, axis: int, start: int, length: int) -> ir.Value:
    """Write a Slice of a length."""
    first = start % max(sizes(value)[axis], 1) if start < 0 else start
    return context.build.slice(value, axis, first, first + length)


def _bounds(size: int, start: int | None, end: int | None, step: int) -> tuple[int, int, int]:
    taken = range(*slice(start, end, step).indices(size))
    return taken.start, max(taken.stop, taken.start), step


@translates("select", "select_copy")
def select(context: Context, value: ir.Value, axis: int, index: int) -> ir.Value:
    """Write a Gather of one index."""
    build = context.build
    place = build.constant(index % sizes(value)[axis], ir.DataType.INT64)
    return build.gather(value, place, axis)


@translates("slice_scatter")
def slice_scatter(
    context: Context,
    value: ir.Value,
    source: ir.Value,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> ir.Value:
    """Write a value with a slice of it replaced."""
    build = context.build
    shape = sizes(value)
    axis %= len(shape)
    first, last, step = _bounds(shape[axis], start, end, step)
    places = np.arange(first, last, step)
    source = build.cast(source, element(value))
    if not places.size:
        return value
    if step == 1:
        parts = [
            build.slice(value, axis, 0, first),
            source,
            build.slice(value, axis, last, shape[axis]),
        ]
        return build.concat([part for part in parts if sizes(part)[axis]], axis)
    wide = places.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    indices = build.constant(np.broadcast_to(wide, sizes(source)), ir.DataType.INT64)
    return build.emit("ScatterElements", [value, indices, source], element(value), shape, axis=axis)


@translates("select_scatter")
def select_scatter(
    context: Context, value: ir.Value, source: ir.Value, axis: int, index: int
) -> ir.Value:
    """Write a value with one index of an axis replaced."""
    shape = list(sizes(value))
    axis %= len(shape)
    index %= shape[axis]
    shape[axis] = 1
    update = context.build.reshape(source, shape)
    return slice_scatter(context, value, update, axis, index, index + 1)


@translates("roll")
def roll(
    context: Context, value: ir.Value, shifts: Sequence[int] | int, axes: Sequence[int] | int = ()
) -> ir.Value:
    """Write two slices of each axis in the other order."""
    build = context.build
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [axes] if isinstance(axes, int) else list(axes)
    if not axes:
        flat = build.reshape(value, [count(value)])
        return build.reshape(_rolled(context, flat, shifts[0], 0), sizes(value))
    for shift, axis in zip(shifts, axes, strict=True):
        value = _rolled(context, value, shift, axis)
    return value


def _rolled(context: Context, value: ir.Value, shift: int, axis: int) -> ir.Value:
    build = context.build
    size = sizes(value)[axis]
    cut = -shift % size if size else 0
    if not cut:
        return value
    left, right = build.split(value, [cut, size - cut], axis)
    return build.concat([right, left], axis)


def picked(context: Context, value: ir.Value, places: NDArray[np.int64]) -> ir.Value:
    """Return elements of a value, in the shape of the positions.

    Args:
        context: The graph, and what torch says that the operator returns.
        value: In memory order.
        places: Positions in it.
    """
    build = context.build
    flat = build.reshape(value, [count(value)])
    return build.gather(flat, build.constant(places, ir.DataType.INT64), 0)


def _positions(value: ir.Value) -> NDArray[np.int64]:
    return np.arange(count(value)).reshape(sizes(value))


@translates("diagonal", "diagonal_copy")
def diagonal(
    context: Context, value: ir.Value, offset: int = 0, first: int = 0, second: int = 1
) -> ir.Value:
    """Write a Gather of the elements on a diagonal."""
    return picked(context, value, np.diagonal(_positions(value), offset, first, second))


@translates("unfold", "unfold_copy")
def unfold(context: Context, value: ir.Value, axis: int, size: int, step: int) -> ir.Value:
    """Write a Gather of windows along an axis, which go last."""
    build = context.build
    if not sizes(value):
        return build.expand(value, context.result.shape)
    axis %= len(sizes(value))
    starts = np.arange(0, sizes(value)[axis] - size + 1, step)
    windows = build.constant(starts[:, None] + np.arange(size), ir.DataType.INT64)
    taken = build.gather(value, windows, axis)
    rank = len(sizes(taken))
    order = [i for i in range(rank) if i != axis + 1]
    return build.transpose(taken, [*order, axis + 1])


def replaced(
    context: Context, value: ir.Value, places: NDArray[np.int64], source: ir.Value
) -> ir.Value:
    """Return a value with elements replaced.

    Args:
        context: The graph, and what torch says that the operator returns.
        value: In memory order.
        places: Positions in it.
        source: What goes there.
    """
    build, dtype = context.build, element(value)
    if not places.size:
        return value
    flat = build.reshape(value, [count(value)])
    new = build.reshape(build.cast(source, dtype), [places.size])
    indices = build.integers(places.reshape(-1).tolist())
    mixed = build.emit("ScatterElements", [flat, indices, new], dtype, [count(value)], axis=0)
    return build.reshape(mixed, sizes(value))


@translates("diagonal_scatter")
def diagonal_scatter(
    context: Context,
    value: ir.Value,
    source: ir.Value,
    offset: int = 0,
    first: int = 0,
    second: int = 1,
) -> ir.Value:
    """Write a value with a diagonal replaced."""
    places = np.diagonal(_positions(value), offset, first, second)
    return replaced(context, value, places, source)


@translates("tril")
def tril(context: Context, value: ir.Value, offset: int = 0) -> ir.Value:
    """Write a value with zeros above a diagonal."""
    return _triangle(context, value, offset, upper=0)


@translates("triu")
def triu(context: Context, value: ir.Value, offset: int = 0) -> ir.Value:
    """Write a value with zeros below a diagonal."""
    return _triangle(context, value, offset, upper=1)


def _triangle(context: Context, value: ir.Value, offset: int, upper: int) -> ir.Value:
    build = context.build
    if element(value) in _TRILU and count(value):
        place = build.constant(offset, ir.DataType.INT64)
        return build.emit("Trilu", [value, place], element(value), sizes(value), upper=upper)
    triangle = (np.triu if upper else np.tril)(np.ones(sizes(value)[-2:], bool), offset)
    return build.where(build.constant(triangle, ir.DataType.BOOL), value, 0)
