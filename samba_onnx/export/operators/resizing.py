"""Interpolation, forward and backward, and the shuffling of channels into pixels.

Interpolation is a linear map of each axis, so that it is written as products by constant matrices,
and its gradient by the transposed ones: the matrices are what torch's own kernel returns for the
unit vectors. The nearest element is picked, not multiplied, which keeps infinities apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import (
    HALVES,
    map_axes,
    map_axes_back,
    repeat_elements,
)
from samba_onnx.export.translation.builder import element, sizes
from samba_onnx.export.translation.element_types import torch_type

aten = torch.ops.aten

Matrix: TypeAlias = NDArray[Any]


def _name(context: Context) -> str:
    """Return the operator's name without namespace and overload."""
    return context.operator.removeprefix("aten.").split(".")[0]


def _mix_rows(
    name: str, rows: torch.Tensor, size: int, inputs: int, align: bool, scale: float | None
) -> torch.Tensor:
    """Run torch's interpolation, or its backward operator, along the last axis of rows.

    Args:
        name: The operator, of any rank; bilinear and trilinear are linear along each axis.
        rows: Rows of shape (n, 1, inputs), or (n, 1, size) for a backward operator.
        size: Elements after interpolation.
        inputs: Elements before.
        align: Whether corners are aligned.
        scale: The scale factor, if one is given.
    """
    backward = name.endswith("_backward")
    count = len(rows)
    result: torch.Tensor
    if "linear" in name and "_aa" not in name:
        if backward:
            shape = [count, 1, inputs]
            result = aten.upsample_linear1d_backward(rows, [size], shape, align, scale)
        else:
            result = aten.upsample_linear1d(rows, [size], align, scale)
        return result
    # Two equal rows that become four: torch's kernels with anti-aliasing are wrong for an axis of
    # one element, and others copy what keeps its size.
    if backward:
        plane = rows.new_zeros(count, 1, 4, size)
        plane[:, :, 0] = rows
        result = getattr(aten, name)(plane, [4, size], [count, 1, 2, inputs], align, None, scale)
        return result.sum(-2)
    plane = rows.unsqueeze(-2).expand(-1, -1, 2, -1).contiguous()
    result = getattr(aten, name)(plane, [4, size], align, None, scale)
    return result[..., 0, :]


@translates(
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
)
def nearest(
    context: Context, value: ir.Value, output_size: Sequence[int], *scales: float | None
) -> ir.Value:
    """Write the picking of the nearest element."""
    return _pick(context, value, scales)


@translates(
    "upsample_nearest1d.vec",
    "upsample_nearest2d.vec",
    "upsample_nearest3d.vec",
    "_upsample_nearest_exact1d.vec",
    "_upsample_nearest_exact2d.vec",
    "_upsample_nearest_exact3d.vec",
)
def nearest_whole(
    context: Context,
    value: ir.Value,
    output_size: Sequence[int] | None,
    factors: Sequence[float] | None,
) -> ir.Value:
    """Write the picking of the nearest element, with scale factors."""
    return _pick(context, value, factors or ())


@translates(
    "upsample_nearest1d_backward",
    "upsample_nearest2d_backward",
    "upsample_nearest3d_backward",
    "_upsample_nearest_exact1d_backward",
    "_upsample_nearest_exact2d_backward",
    "_upsample_nearest_exact3d_backward",
)
def nearest_backward(
    context: Context,
    gradient: ir.Value,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> ir.Value:
    """Write the gradient: that of an element is the sum over the places it was put."""
    build = context.build
    origins = _backward_origins(context, sizes(gradient)[2:], input_size[2:], scales)
    counts = _repetitions(origins, input_size[2:])
    # A mean of equal windows, times their size, needs no matrix.
    if counts is not None and element(gradient) == ir.DataType.FLOAT:
        mean = build.emit(
            "AveragePool",
            [gradient],
            element(gradient),
            input_size,
            kernel_shape=counts,
            strides=counts,
        )
        return build.multiply(mean, int(np.prod(counts)))
    matrices = [
        np.asarray(origin[:, None] == np.arange(size), np.float64)
        for origin, size in zip(origins, input_size[2:], strict=True)
    ]
    return map_axes_back(build, gradient, matrices)


_MIXED = (
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "_upsample_lanczos2d_aa",
)


@translates(*_MIXED)
def interpolation(
    context: Context,
    value: ir.Value,
    output_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> ir.Value:
    """Write a weighted mean of neighbouring elements."""
    outputs = context.result.shape[2:]
    matrices = _matrices(context, value, sizes(value)[2:], outputs, scales, align_corners)
    return map_axes(context.build, value, matrices)


@translates(*(f"{name}.vec" for name in _MIXED))
def interpolation_whole(
    context: Context,
    value: ir.Value,
    output_size: Sequence[int] | None,
    align_corners: bool,
    factors: Sequence[float] | None,
) -> ir.Value:
    """Write a weighted mean of neighbouring elements, with scale factors."""
    return interpolation(context, value, context.result.shape[2:], align_corners, *(factors or ()))


@translates(*(f"{name}_backward" for name in _MIXED))
def interpolation_backward(
    context: Context,
    gradient: ir.Value,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> ir.Value:
    """Write the gradient of a weighted mean."""
    if sizes(gradient) == tuple(input_size) and _name(context).startswith("upsample_bicubic2d"):
        return gradient  # torch copies it, whatever the scale factors are
    outputs = sizes(gradient)[2:]
    matrices = _matrices(context, gradient, input_size[2:], outputs, scales, align_corners)
    return map_axes_back(context.build, gradient, matrices)


@translates("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    context: Context,
    value: ir.Value,
    grid: ir.Value,
    mode: int,
    padding: int,
    align_corners: bool,
) -> ir.Value:
    """Write interpolation at positions that are computed."""
    return context.build.emit(
        "GridSample",
        [value, grid],
        element(value),
        context.result.shape,
        mode=("linear", "nearest", "cubic")[mode],
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=int(align_corners),
    )


@translates("pixel_shuffle")
def pixel_shuffle(context: Context, value: ir.Value, factor: int) -> ir.Value:
    """Write the moving of channels into the plane."""
    build, shape = context.build, context.result.shape
    *lead, channels, height, width = sizes(value)
    inner = channels // factor**2
    # DepthToSpace takes a batch and nothing else in front of the channels.
    if len(lead) == 1:
        return build.emit(
            "DepthToSpace", [value], element(value), shape, blocksize=factor, mode="CRD"
        )
    split = build.reshape(value, [*lead, inner, factor, factor, height, width])
    first = len(lead)
    order = [*range(first + 1), *(first + axis for axis in (3, 1, 4, 2))]
    return build.reshape(build.transpose(split, order), shape)


@translates("pixel_unshuffle")
def pixel_unshuffle(context: Context, value: ir.Value, factor: int) -> ir.Value:
    """Write the moving of the plane into channels."""
    build = context.build
    *lead, channels, height, width = sizes(value)
    split = build.reshape(
        value, [*lead, channels, height // factor, factor, width // factor, factor]
    )
    first = len(lead)
    order = [*range(first + 1), *(first + axis for axis in (2, 4, 1, 3))]
    return build.reshape(build.transpose(split, order), context.result.shape)


@translates("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(context: Context, value: ir.Value, groups: int) -> ir.Value:
    """Write the interleaving of groups of channels."""
    build = context.build
    batch, channels, *plane = sizes(value)
    split = build.reshape(value, [batch, groups, channels // groups, *plane])
    order = [0, 2, 1, *range(3, len(plane) + 3)]
    return build.reshape(build.transpose(split, order), context.result.shape)


def _pick(context: Context, value: ir.Value, scales: Sequence[float | None]) -> ir.Value:
    build = context.build
    inputs = sizes(value)[2:]
    origins = _origins(context, context.result.shape[2:], inputs, scales)
    counts = _repetitions(origins, inputs)
    # Where all elements are repeated equally often, no list of places is needed.
    if counts is not None:
        return repeat_elements(build, value, counts)
    for axis, origin in reversed(list(enumerate(origins, 2))):
        value = build.gather(value, build.integers(origin), axis)
    return value


def _origins(
    context: Context,
    outputs: Sequence[int],
    inputs: Sequence[int],
    scales: Sequence[float | None],
) -> list[NDArray[np.int64]]:
    """Return per spatial axis which element each place takes, by torch's own rounding."""
    operator = getattr(aten, _name(context))
    origins = []
    for axis, size in enumerate(inputs):
        shape = [-1 if other == axis else 1 for other in range(len(inputs))]
        # Each element holds its own place, so that torch's operator says which of them it takes.
        numbers = torch.arange(size, dtype=torch.float32).reshape(shape).expand(*inputs)
        picked = operator(numbers[None, None].contiguous(), list(outputs), *scales)[0, 0]
        line = picked.movedim(axis, 0).reshape(outputs[axis], -1)[:, 0]
        origins.append(line.to(torch.int64).numpy())
    return origins


def _backward_origins(
    context: Context,
    outputs: Sequence[int],
    inputs: Sequence[int],
    scales: Sequence[float | None],
) -> list[NDArray[np.int64]]:
    """Return the same for a backward operator, which rounds in another way.

    The elements are taken in order, so that it is enough to know how often each is.
    """
    exact = "_exact" in context.operator
    packet = "_upsample_nearest_exact1d_backward" if exact else "upsample_nearest1d_backward"
    operator = getattr(aten, packet)
    origins = []
    for size, count, scale in _axes(inputs, outputs, scales):
        # The gradient of ones counts how often each element was taken.
        taken = operator(torch.ones(1, 1, count), [count], [1, 1, size], scale).reshape(-1)
        origins.append(np.repeat(np.arange(size), taken.to(torch.int64).numpy()))
    return origins


def _repetitions(origins: Sequence[NDArray[np.int64]], inputs: Sequence[int]) -> list[int] | None:
    """Return how often each axis repeats each of its elements; None if any does so unevenly."""
    counts = []
    for origin, size in zip(origins, inputs, strict=True):
        count = len(origin) // size
        if not count or not np.array_equal(origin, np.repeat(np.arange(size), count)):
            return None
        counts.append(count)
    return counts


def _matrices(
    context: Context,
    value: ir.Value,
    inputs: Sequence[int],
    outputs: Sequence[int],
    scales: Sequence[float | None],
    align_corners: bool,
) -> list[Matrix | None]:
    """Return per spatial axis the matrix of the interpolation, in torch's own precision."""
    name = _name(context)
    backward = name.endswith("_backward")
    # torch computes narrow types in float32.
    dtype = torch.float32 if element(value) in HALVES else torch_type(element(value))
    matrices: list[Matrix | None] = []
    for size, count, scale in _axes(inputs, outputs, scales):
        units = torch.eye(count if backward else size, dtype=dtype)
        result = _mix_rows(name, units.unsqueeze(1), count, size, align_corners, scale).squeeze(1)
        matrix = result if backward else result.T
        matrices.append(
            # An identity, which need not be multiplied by.
            None if torch.equal(matrix, torch.eye(size, dtype=dtype)) else matrix.numpy()
        )
    return matrices


def _axes(
    inputs: Sequence[int], outputs: Sequence[int], scales: Sequence[float | None]
) -> list[tuple[int, int, float | None]]:
    factors = [*scales, *[None] * (len(inputs) - len(scales))]
    return list(zip(inputs, outputs, factors, strict=True))
