"""Pooling by windows that move, forward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import per_axis, spatial_rank
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes


@dataclass(frozen=True)
class Windows:
    """Where the windows of a pooling lie; one number per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def behind(self) -> tuple[int, ...]:
        """Elements that the last windows reach beyond the end of each axis; negative: none."""
        return tuple(
            (self.outputs[i] - 1) * self.stride[i]
            + self.dilation[i] * (self.kernel[i] - 1)
            + 1
            - self.inputs[i]
            - self.padding[i]
            for i in range(len(self.kernel))
        )

    @property
    def pads(self) -> list[int]:
        """Padding in ONNX's order with which every window lies inside, without ``ceil_mode``."""
        pairs = zip(self.padding, self.behind, strict=True)
        return [*self.padding, *(max(pad, reach) for pad, reach in pairs)]

    @property
    def overlap(self) -> bool:
        """Whether two windows may share an element."""
        pairs = zip(self.kernel, self.stride, strict=True)
        holes = any(hole > 1 for hole in self.dilation)
        return holes or any(kernel > stride for kernel, stride in pairs)

    @property
    def tile(self) -> bool:
        """Whether every element lies in exactly one window."""
        return (
            self.kernel == self.stride
            and not any(self.padding)
            and all(
                size == count * width
                for size, count, width in zip(self.inputs, self.outputs, self.kernel, strict=True)
            )
        )


def windows_of(
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> Windows:
    """Return the windows that arguments of a pooling state.

    Args:
        kernel: Sizes of the window.
        stride: Its steps; as the kernel when empty.
        padding: Elements before and behind.
        dilation: Distance of the window's elements.
        inputs: Sizes of what is pooled.
        outputs: Sizes of the result.
    """
    rank = len(inputs)
    sides = per_axis(kernel, rank)
    return Windows(
        sides,
        # torch steps by the kernel's width unless it is told otherwise.
        per_axis(stride, rank) if stride else sides,
        per_axis(padding, rank),
        per_axis(dilation, rank),
        tuple(inputs),
        tuple(outputs),
    )


def batched(build: GraphBuilder, value: ir.Value, rank: int) -> ir.Value:
    """Return a value with exactly two axes before its ``rank`` spatial ones."""
    shape = sizes(value)
    lead = shape[: len(shape) - rank]
    if len(lead) == 2:
        return value
    return build.reshape(value, [1, math.prod(lead), *shape[len(lead) :]])


def plane_offsets(build: GraphBuilder, batch: int, channels: int, plane: Sequence[int]) -> ir.Value:
    """Return where each plane starts in a flat tensor, to be broadcast against its elements."""
    starts = np.arange(batch * channels, dtype=np.int64) * math.prod(plane)
    shape = [batch, channels, *(1 for _ in plane)]
    return build.constant(starts.reshape(shape), ir.DataType.INT64)


@translates("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    context: Context,
    value: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> ir.Value:
    """Write the largest element per window."""
    rank = spatial_rank(context)
    inputs, outputs = sizes(value)[-rank:], context.result.shape[-rank:]
    windows = windows_of(kernel, stride, padding, dilation, inputs, outputs)
    data = batched(context.build, value, rank)
    maxima, _ = emit_max_pool(context.build, data, windows, indices=False)
    return context.build.reshape(maxima, context.result.shape)


@translates("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    context: Context,
    value: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[ir.Value | None]:
    """Write the largest element per window and where it lies in its plane."""
    build, rank = context.build, spatial_rank(context)
    inputs, outputs = sizes(value)[-rank:], context.result.shape[-rank:]
    windows = windows_of(kernel, stride, padding, dilation, inputs, outputs)
    data = batched(build, value, rank)
    maxima, indices = emit_max_pool(build, data, windows, indices=True)
    shape = context.result.shape
    return [build.reshape(maxima, shape), build.reshape(indices, shape)]


def emit_max_pool(
    build: GraphBuilder, data: ir.Value, windows: Windows, *, indices: bool
) -> tuple[ir.Value, ir.Value]:
    """Append a MaxPool of a batch.

    Args:
        build: The graph.
        data: The batch, of shape (batch, channels, spatial...).
        windows: The windows in each plane, and how many there are along each axis.
        indices: Whether the second result is needed.

    Returns:
        The largest elements, and their indices in their planes; or the former twice.
    """
    batch, channels, *plane = sizes(data)
    shape = [batch, channels, *windows.outputs]
    reach = zip(windows.behind, windows.kernel, strict=True)
    # A pooling is not padded by as much as its kernel's width, which only dilation can call for:
    # it says in its own words that a last window may reach beyond.
    wide = any(beyond >= width for beyond, width in reach)
    results = build.emit_several(
        "MaxPool",
        [data],
        [(element(data), shape), *([(ir.DataType.INT64, shape)] if indices else [])],
        kernel_shape=list(windows.kernel),
        strides=list(windows.stride),
        pads=[*windows.padding, *windows.padding] if wide else windows.pads,
        dilations=list(windows.dilation) if any(n > 1 for n in windows.dilation) else None,
        ceil_mode=1 if wide else None,
    )
    if not indices:
        return results[0], results[0]
    # ONNX counts over the whole tensor, torch over each plane.
    starts = plane_offsets(build, batch, channels, plane)
    return results[0], build.subtract(results[1], starts)


@translates("avg_pool1d", "avg_pool2d", "avg_pool3d")
def average_pool(
    context: Context,
    value: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None = None,
) -> ir.Value:
    """Write the mean per window."""
    build, rank = context.build, spatial_rank(context)
    inputs, outputs = sizes(value)[-rank:], context.result.shape[-rank:]
    windows = windows_of(kernel, stride, padding, [1], inputs, outputs)
    data = batched(build, value, rank)
    shape = [*sizes(data)[:2], *outputs]
    # With ceil_mode, windows may reach beyond the padding, and are divided by fewer elements there.
    inside = all(beyond <= pad for beyond, pad in zip(windows.behind, windows.padding, strict=True))
    plain = inside and divisor is None
    mean = build.emit(
        "AveragePool",
        [data],
        element(data),
        shape,
        kernel_shape=list(windows.kernel),
        strides=list(windows.stride),
        pads=windows.pads,
        count_include_pad=int(count_include_pad) if plain else 1,
    )
    if not plain:
        # The mean over whole kernels is taken back, and the sums are divided by what torch counts.
        counts = divisor or _outer(window_counts(windows, count_include_pad))
        mean = build.multiply(
            mean, build.constant(math.prod(windows.kernel) / counts, element(mean))
        )
    return build.reshape(mean, context.result.shape)


def window_counts(windows: Windows, count_include_pad: bool) -> list[NDArray[Any]]:
    """Return per axis by how many elements each window's sum is divided."""
    counts = []
    for axis, size in enumerate(windows.inputs):
        first = np.arange(windows.outputs[axis]) * windows.stride[axis] - windows.padding[axis]
        border = windows.padding[axis] if count_include_pad else 0
        last = np.minimum(first + windows.kernel[axis], size + border)
        counts.append(last - np.maximum(first, -border))
    return counts


def _outer(counts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    product = np.ones((), np.float64)
    for count in counts:
        product = product[..., None] * count
    return product
