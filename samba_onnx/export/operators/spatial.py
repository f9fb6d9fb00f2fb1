"""What operators over spatial axes share: sizes per axis, slices of several axes, linear maps."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.errors import InternalError
from samba_onnx.export.operators.registry import Context
from samba_onnx.export.translation.builder import GraphBuilder, count, element, sizes

_RANK = re.compile(r"(\d)d")

HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
"""Types in which torch computes with float32 inside of an operator."""


def spatial_rank(context: Context) -> int:
    """Return the number of spatial axes that an operator's name states, as in ``max_pool2d``."""
    match = _RANK.search(context.operator)
    if match is None:
        raise InternalError(f"{context.operator} does not name its axes: please report this")
    return int(match.group(1))


def per_axis(numbers: Sequence[int] | int, rank: int) -> tuple[int, ...]:
    """Return one number per spatial axis of a list in which one number may stand for all."""
    listed = [numbers] if isinstance(numbers, int) else list(numbers)
    return tuple(listed * rank if len(listed) == 1 else listed)


def box(
    build: GraphBuilder,
    value: ir.Value,
    first: int,
    starts: Sequence[int],
    counts: Sequence[int],
    steps: Sequence[int],
) -> ir.Value:
    """Return a slice along several neighbouring axes by one node.

    Args:
        build: The graph.
        value: Any value.
        first: The first axis to slice.
        starts: Index of the first element taken, per axis; not negative.
        counts: Number of elements taken, per axis.
        steps: Distance between them, per axis; positive.
    """
    axes = [first + index for index in range(len(starts))]
    shape = list(sizes(value))
    shape[first : first + len(axes)] = counts
    if tuple(shape) == sizes(value):
        return value
    ends = [
        start + (count - 1) * step + 1
        for start, count, step in zip(starts, counts, steps, strict=True)
    ]
    operands = [value, *(build.integers(numbers) for numbers in (starts, ends, axes))]
    if any(step != 1 for step in steps):
        operands.append(build.integers(steps))
    return build.emit("Slice", operands, element(value), shape)


def as_stated(context: Context, values: Sequence[ir.Value | None]) -> list[ir.Value | None]:
    """Return results in the types that torch states; None where it states no result."""
    return [
        None if one is None or want is None else context.build.cast(one, want.dtype)
        for one, want in zip(values, context.results, strict=True)
    ]


def widen(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return a value of a 16-bit type in float32, any other as it is."""
    return build.cast(value, ir.DataType.FLOAT) if element(value) in HALVES else value


def map_axis(build: GraphBuilder, value: ir.Value, axis: int, matrix: NDArray[Any]) -> ir.Value:
    """Apply a linear map along an axis.

    Args:
        build: The graph.
        value: Any floating-point value.
        axis: The axis.
        matrix: The map; as many rows as the result has elements along the axis.
    """
    shape = sizes(value)
    axis %= len(shape)
    result = [*shape[:axis], matrix.shape[0], *shape[axis + 1 :]]
    if axis == len(shape) - 1:
        flat = build.reshape(value, [math.prod(shape[:-1]), shape[-1]])
        product = build.matmul(flat, build.constant(matrix.T, element(value)))
        return build.reshape(product, result)
    planes = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
    left = build.constant(matrix, element(value))
    return build.reshape(build.matmul(left, build.reshape(value, planes)), result)


def map_axes(
    build: GraphBuilder, value: ir.Value, matrices: Sequence[NDArray[Any] | None]
) -> ir.Value:
    """Apply one linear map to each of the last axes; None leaves an axis as it is.

    Types of 16 bits are computed in float32, as torch does, and rounded once.
    """
    result, dtype = widen(build, value), element(value)
    if count(value) == 0:  # Nothing is left to multiply.
        ends = zip(sizes(value)[-len(matrices) :], matrices, strict=True)
        lengths = [size if matrix is None else matrix.shape[0] for size, matrix in ends]
        return build.full([*sizes(value)[: -len(matrices)], *lengths], 0, dtype)
    for position, matrix in enumerate(matrices):
        if matrix is not None:
            result = map_axis(build, result, position - len(matrices), matrix)
    return build.cast(result, dtype)


def map_axes_back(
    build: GraphBuilder, value: ir.Value, matrices: Sequence[NDArray[Any] | None]
) -> ir.Value:
    """Apply the adjoint of :func:`map_axes`: what carries a gradient back through it."""
    turned = [None if matrix is None else np.ascontiguousarray(matrix.T) for matrix in matrices]
    return map_axes(build, value, turned)


def repeat_elements(build: GraphBuilder, value: ir.Value, counts: Sequence[int]) -> ir.Value:
    """Repeat every element along each of the last axes, as often as is said per axis."""
    for axis in range(-1, -len(counts) - 1, -1):
        times, shape = counts[axis], sizes(value)
        if times == 1:
            continue
        rest = math.prod(shape[axis + 1 :]) if axis < -1 else 1
        rows = math.prod(shape) // rest
        flat = build.expand(build.reshape(value, [rows, 1, rest]), [rows, times, rest])
        wide = list(shape)
        wide[axis] *= times
        value = build.reshape(flat, wide)
    return value
