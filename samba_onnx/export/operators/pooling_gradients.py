"""The backward operators of poolings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.export.operators.adaptive_pooling import averages, tiling
from samba_onnx.export.operators.pooling import Windows, window_counts, windows_of
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import map_axes_back, repeat_elements, spatial_rank
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes


@translates("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: ir.Value,
) -> ir.Value:
    """Write the gradient: each window's goes to the element that was found."""
    rank = spatial_rank(context)
    inputs, outputs = sizes(value)[-rank:], sizes(gradient)[-rank:]
    windows = windows_of(kernel, stride, padding, dilation, inputs, outputs)
    return _to_found(context.build, gradient, value, indices, rank, overlap=windows.overlap)


@translates("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def adaptive_max_pool_backward(
    context: Context, gradient: ir.Value, value: ir.Value, indices: ir.Value
) -> ir.Value:
    """Write the gradient: each window's goes to the element that was found."""
    rank = spatial_rank(context)
    overlap = tiling(sizes(value)[-rank:], sizes(gradient)[-rank:]) is None
    return _to_found(context.build, gradient, value, indices, rank, overlap=overlap)


@translates("avg_pool2d_backward", "avg_pool3d_backward")
def average_pool_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> ir.Value:
    """Write the gradient: each window's is shared out among its elements."""
    build, rank = context.build, spatial_rank(context)
    inputs, outputs = sizes(value)[-rank:], sizes(gradient)[-rank:]
    windows = windows_of(kernel, stride, padding, [1], inputs, outputs)
    if windows.tile:
        return _spread(build, gradient, windows, divisor or math.prod(windows.kernel))
    counts = window_counts(windows, count_include_pad)
    if divisor is not None:
        # On one axis alone, since the counts of all axes are multiplied.
        counts = [np.full(size, divisor if axis == 0 else 1) for axis, size in enumerate(outputs)]
    return map_axes_back(build, gradient, _sharing(windows, counts))


@translates("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_average_pool_backward(
    context: Context, gradient: ir.Value, value: ir.Value
) -> ir.Value:
    """Write the gradient: each window's is shared out among its elements."""
    build, rank = context.build, spatial_rank(context)
    inputs, outputs = sizes(value)[-rank:], sizes(gradient)[-rank:]
    tiles = tiling(inputs, outputs)
    if tiles is not None:
        return _spread(build, gradient, tiles, math.prod(tiles.kernel))
    return map_axes_back(build, gradient, averages(inputs, outputs))


def _to_found(
    build: GraphBuilder,
    gradient: ir.Value,
    value: ir.Value,
    indices: ir.Value,
    rank: int,
    *,
    overlap: bool,
) -> ir.Value:
    shape = sizes(value)
    planes = math.prod(shape[: len(shape) - rank])
    each = [planes, math.prod(sizes(gradient)[-rank:])]
    target = [planes, math.prod(shape[-rank:])]
    operands = [
        build.full(target, 0, element(value)),
        build.reshape(indices, each),
        build.reshape(gradient, each),
    ]
    # Windows that share nothing find no element twice.
    reduction = "add" if overlap else None
    scattered = build.emit(
        "ScatterElements", operands, element(value), target, axis=1, reduction=reduction
    )
    return build.reshape(scattered, shape)


def _spread(build: GraphBuilder, gradient: ir.Value, windows: Windows, divisor: int) -> ir.Value:
    """Repeat each element over its window; the windows tile the plane."""
    scaled = build.multiply(gradient, 1 / divisor)
    if all(count == 1 for count in windows.outputs):
        return build.expand(scaled, [*sizes(gradient)[: -len(windows.kernel)], *windows.inputs])
    return repeat_elements(build, scaled, windows.kernel)


def _sharing(windows: Windows, counts: Sequence[NDArray[Any]]) -> list[NDArray[Any] | None]:
    """Return per axis the matrix that takes each window's sum and divides it by its count."""
    matrices: list[NDArray[Any] | None] = []
    for axis, size in enumerate(windows.inputs):
        matrix = np.zeros((windows.outputs[axis], size))
        for row, count in enumerate(counts[axis]):
            start = row * windows.stride[axis] - windows.padding[axis]
            matrix[row, max(start, 0) : start + windows.kernel[axis]] = 1 / count
        matrices.append(matrix)
    return matrices
