"""The backward operator of convolutions, as convolutions again.

The gradient of the input spreads the output's gradient through the kernel: a transposed convolution.
The gradient of the weight slides one picture over another. With ``a`` the tensor under the window and
``b`` the one that has an element per window position (input and output of a convolution, output and
input of a transposed one)::

    weight gradient[cb, ca, k] = sum over n, l of a[n, ca, l * stride + k * dilation - padding] *
                                                  b[n, cb, l]

which is a convolution of ``a`` by ``b`` with batch and channels, stride and dilation exchanged. Either
has the arithmetic that the gradient needs and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from samba_onnx.export.operators.convolution import (
    ConvolutionGeometry,
    emit_convolution,
    emit_transposed,
    geometry_of,
)
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import box, per_axis
from samba_onnx.export.translation.builder import GraphBuilder, sizes

_PICTURE = 2
"""Spatial axes of the transposed convolutions that the RDU has."""


@translates("convolution_backward")
def convolution_backward(
    context: Context,
    gradient: ir.Value,
    data: ir.Value,
    weight: ir.Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> list[ir.Value | None]:
    """Write the gradients of input, weight and bias, those that ``mask`` asks for."""
    build = context.build
    rank = len(sizes(weight)) - 2
    geometry = geometry_of(rank, stride, padding, dilation, groups)
    results: list[ir.Value | None] = [None, None, None]
    if mask[0] and transposed:
        turned = replace(geometry, output_padding=per_axis(output_padding, rank))
        results[0] = _spread_gradient(build, gradient, weight, turned, sizes(data))
    elif mask[0]:
        results[0] = _input_gradient(build, gradient, weight, geometry, sizes(data))
    if mask[1]:
        under, over = (gradient, data) if transposed else (data, gradient)
        results[1] = _weight_gradient(build, under, over, geometry, sizes(weight))
    if mask[2]:
        results[2] = build.reduce("ReduceSum", gradient, [0, *range(2, rank + 2)])
    return results


def _spread_gradient(
    build: GraphBuilder,
    gradient: ir.Value,
    weight: ir.Value,
    geometry: ConvolutionGeometry,
    shape: Sequence[int],
) -> ir.Value:
    """Write the gradient of a transposed convolution's input: a convolution of the output's gradient."""
    # Output padding as wide as the stride would be a position more of the window; one that is less is reached by none.
    behind = [
        pad - extra if extra >= step else pad
        for pad, extra, step in zip(
            geometry.padding, geometry.output_padding, geometry.stride, strict=True
        )
    ]
    plane = sizes(gradient)[2:]
    reached = [size + min(pad, 0) for size, pad in zip(plane, behind, strict=True)]
    gradient = box(build, gradient, 2, [0] * len(plane), reached, [1] * len(plane))
    padded = replace(geometry, padding_after=tuple(max(pad, 0) for pad in behind))
    return emit_convolution(build, gradient, weight, None, padded, shape)


def _input_gradient(
    build: GraphBuilder,
    gradient: ir.Value,
    weight: ir.Value,
    geometry: ConvolutionGeometry,
    shape: Sequence[int],
) -> ir.Value:
    """Write the gradient of a convolution's input.

    The RDU has transposed convolutions of pictures. One axis is a picture of height one; for three
    the gradient is spread first, and then convolved with the kernel turned round.

    Args:
        build: The graph.
        gradient: Gradient of the output: batch, channels, spatial axes.
        weight: Weight of the convolution.
        geometry: How its window moves.
        shape: Shape of the input, batch and channels first.
    """
    rank = len(geometry.stride)
    if rank > _PICTURE:
        return _convolved_input_gradient(build, gradient, weight, geometry, shape)
    # What strides leave over at the end of each axis, which a transposed convolution is told of.
    missing = [
        size - ((out - 1) * step - 2 * pad + hole * (kernel - 1) + 1)
        for size, out, step, pad, hole, kernel in zip(
            shape[2:],
            sizes(gradient)[2:],
            geometry.stride,
            geometry.padding,
            geometry.dilation,
            sizes(weight)[2:],
            strict=True,
        )
    ]
    turned = replace(geometry, output_padding=tuple(missing))
    if rank == _PICTURE:
        return emit_transposed(build, gradient, weight, None, turned, shape)
    flat = ConvolutionGeometry(
        (1, *turned.stride),
        (0, *turned.padding),
        (1, *turned.dilation),
        turned.groups,
        (0, *turned.output_padding),
    )
    data, kernel = (
        build.reshape(value, _of_height_one(sizes(value))) for value in (gradient, weight)
    )
    result = emit_transposed(build, data, kernel, None, flat, _of_height_one(shape))
    return build.reshape(result, shape)


def _of_height_one(shape: Sequence[int]) -> list[int]:
    return [*shape[:2], 1, *shape[2:]]


def _convolved_input_gradient(
    build: GraphBuilder,
    gradient: ir.Value,
    weight: ir.Value,
    geometry: ConvolutionGeometry,
    shape: Sequence[int],
) -> ir.Value:
    """Write the gradient of a convolution's input as a convolution of stride one."""
    reach = [
        hole * (size - 1) for hole, size in zip(geometry.dilation, sizes(weight)[2:], strict=True)
    ]
    front = [span - pad for span, pad in zip(reach, geometry.padding, strict=True)]
    # Padding beyond the kernel's reach lets the outermost elements of the gradient reach nothing.
    starts = [max(-size, 0) for size in front]
    before = [max(size, 0) for size in front]
    spread = _interleaved(build, gradient, geometry.stride)
    lengths = [size + span - pad for size, span, pad in zip(shape[2:], reach, before, strict=True)]
    taken = [
        min(size - start, most)
        for size, start, most in zip(sizes(spread)[2:], starts, lengths, strict=True)
    ]
    behind = [most - size for most, size in zip(lengths, taken, strict=True)]
    spread = box(build, spread, 2, starts, taken, [1] * len(taken))
    ones = (1,) * len(taken)
    plain = ConvolutionGeometry(
        ones, tuple(before), geometry.dilation, geometry.groups, padding_after=tuple(behind)
    )
    return emit_convolution(
        build, spread, _turned_round(build, weight, geometry), None, plain, shape
    )


def _interleaved(build: GraphBuilder, value: ir.Value, stride: Sequence[int]) -> ir.Value:
    """Put ``stride - 1`` zeros behind each element of each spatial axis."""
    if all(step == 1 for step in stride):
        return value
    *leading, first, second, third = sizes(value)
    # Each element gets an axis of its own, which is padded to the stride and joined with the next.
    spaced = build.reshape(value, [*leading, first, 1, second, 1, third, 1])
    behind = [n for step in stride for n in (0, step - 1)]
    spaced = build.pad(spaced, [0] * len(sizes(spaced)), [*(0 for _ in leading), *behind])
    wide = [n * step for n, step in zip((first, second, third), stride, strict=True)]
    return build.reshape(spaced, [*leading, *wide])


def _turned_round(build: GraphBuilder, weight: ir.Value, geometry: ConvolutionGeometry) -> ir.Value:
    """Return a weight with its kernel back to front, and its channels exchanged in every group."""
    outer, inner, *kernel = sizes(weight)
    groups = geometry.groups
    axes = range(len(kernel))
    split = build.reshape(weight, [groups, outer // groups, inner, *kernel])
    split = build.transpose(split, [0, 2, 1, *(axis + 3 for axis in axes)])
    value = build.reshape(split, [groups * inner, outer // groups, *kernel])
    for axis in axes:
        if kernel[axis] > 1:
            value = build.gather(value, build.integers(range(kernel[axis])[::-1]), axis + 2)
    return value


def _weight_gradient(
    build: GraphBuilder,
    under: ir.Value,
    over: ir.Value,
    geometry: ConvolutionGeometry,
    shape: Sequence[int],
) -> ir.Value:
    """Write the gradient of a weight: a convolution with batch and channels exchanged.

    Args:
        build: The graph.
        under: What lies under the window: batch, channels, spatial axes.
        over: What has an element per window position, likewise.
        geometry: How the window moves.
        shape: Shape of the weight.
    """
    plane, positions = sizes(under)[2:], sizes(over)[2:]
    axes = range(2, len(shape))
    spans = [
        hole * (size - 1) + step * (count - 1) + 1
        for hole, size, step, count in zip(
            geometry.dilation, shape[2:], geometry.stride, positions, strict=True
        )
    ]
    # What lies behind the last window is cut off and not padded: nothing is computed in vain.
    used = [
        min(span - pad, size)
        for span, pad, size in zip(spans, geometry.padding, plane, strict=True)
    ]
    behind = [
        span - pad - size for span, pad, size in zip(spans, geometry.padding, used, strict=True)
    ]
    turned = ConvolutionGeometry(
        geometry.dilation,
        geometry.padding,
        geometry.stride,
        geometry.groups,
        padding_after=tuple(behind),
    )
    under = box(build, under, 2, [0] * len(used), used, [1] * len(used))
    data = _groups_in_batch(build, under, geometry.groups)
    window = build.transpose(over, [1, 0, *axes])
    full = [sizes(data)[0], sizes(window)[0], *shape[2:]]
    result = emit_convolution(build, data, window, None, turned, full)
    return build.transpose(result, [1, 0, *axes])


def _groups_in_batch(build: GraphBuilder, value: ir.Value, groups: int) -> ir.Value:
    """Exchange batch and channels: ``[channels of a group, groups * batch, ...]``."""
    batch, channels, *plane = sizes(value)
    inner = channels // groups
    spatial = range(len(plane))
    # With one group, or one channel in each, a plain exchange has the same order.
    if inner == 1 or groups == 1:
        turned = build.transpose(value, [1, 0, *(axis + 2 for axis in spatial)])
    else:
        split = build.reshape(value, [batch, groups, inner, *plane])
        turned = build.transpose(split, [2, 1, 0, *(axis + 3 for axis in spatial)])
    return build.reshape(turned, [inner, groups * batch, *plane])
