"""Pooling by windows that cover each axis in as many parts as are wanted, forward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.export.operators.pooling import Windows, batched, emit_max_pool, windows_of
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import map_axes, spatial_rank
from samba_onnx.export.translation.builder import element, sizes


@translates(
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
)
def adaptive_average_pool(
    context: Context, value: ir.Value, output_size: Sequence[int]
) -> ir.Value:
    """Write the mean per window."""
    build, rank = context.build, spatial_rank(context)
    outputs = context.result.shape[-rank:]
    data = batched(build, value, rank)
    shape = [*sizes(data)[:2], *outputs]
    tiles = tiling(sizes(data)[2:], outputs)
    if all(size == 1 for size in outputs):
        mean = build.emit("GlobalAveragePool", [data], element(data), shape)
    elif tiles is not None:
        mean = build.emit(
            "AveragePool",
            [data],
            element(data),
            shape,
            kernel_shape=list(tiles.kernel),
            strides=list(tiles.stride),
        )
    else:
        mean = map_axes(build, data, averages(sizes(data)[2:], outputs))
    return build.reshape(mean, context.result.shape)


@translates("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(
    context: Context, value: ir.Value, output_size: Sequence[int]
) -> list[ir.Value | None]:
    """Write the largest element per window and where it lies in its plane.

    Windows of uneven sizes are laid out side by side first, short ones with their last element
    repeated: it comes after its original, so that it is never the one that is found.
    """
    build, rank = context.build, spatial_rank(context)
    outputs = context.result.shape[-rank:]
    data = batched(build, value, rank)
    inputs = sizes(data)[2:]
    tiles = tiling(inputs, outputs)
    if tiles is not None:
        maxima, indices = emit_max_pool(build, data, tiles, indices=True)
    else:
        picks = [window_elements(size, count) for size, count in zip(inputs, outputs, strict=True)]
        for axis, pick in enumerate(picks):
            data = build.gather(data, build.integers(pick.reshape(-1)), axis + 2)
        widths = [pick.shape[1] for pick in picks]
        spread = windows_of(widths, [], [0], [1], sizes(data)[2:], outputs)
        maxima, indices = emit_max_pool(build, data, spread, indices=True)
        origins = build.integers(_flat_origins(picks, inputs))
        indices = build.gather(origins, indices, 0)
    shape = context.result.shape
    return [build.reshape(maxima, shape), build.reshape(indices, shape)]


def tiling(inputs: Sequence[int], outputs: Sequence[int]) -> Windows | None:
    """Return the windows when all are equal and cover every element once, else None."""
    if any(count == 0 or size % count for size, count in zip(inputs, outputs, strict=True)):
        return None
    widths = [size // count for size, count in zip(inputs, outputs, strict=True)]
    return windows_of(widths, [], [0], [1], inputs, outputs)


def averages(inputs: Sequence[int], outputs: Sequence[int]) -> list[NDArray[Any] | None]:
    """Return per axis the matrix that takes the mean of each window."""
    matrices: list[NDArray[Any] | None] = []
    for size, count in zip(inputs, outputs, strict=True):
        matrix = np.zeros((count, size))
        for row, (start, end) in enumerate(_bounds(size, count)):
            matrix[row, start:end] = 1 / (end - start)
        matrices.append(None if size == count else matrix)
    return matrices


def window_elements(size: int, count: int) -> NDArray[np.int64]:
    """Return the elements of each window, all as wide as the widest; see adaptive_max_pool."""
    bounds = _bounds(size, count)
    width = max(end - start for start, end in bounds)
    rows = [np.minimum(np.arange(start, start + width), end - 1) for start, end in bounds]
    return np.array(rows, np.int64)


def _bounds(size: int, count: int) -> list[tuple[int, int]]:
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _flat_origins(picks: Sequence[NDArray[np.int64]], inputs: Sequence[int]) -> NDArray[np.int64]:
    """Return where each element of the spread plane lies in the plane that it comes from."""
    flat = np.zeros((), np.int64)
    for axis, pick in enumerate(picks):
        stride = math.prod(inputs[axis + 1 :])
        flat = flat[..., None] + pick.reshape(-1) * stride
    return flat.reshape(-1)
