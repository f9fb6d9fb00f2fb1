"""Convolutions of one to three axes: grouped, dilated, strided, transposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import per_axis
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes


@dataclass(frozen=True)
class ConvolutionGeometry:
    """How a convolution's window moves; one number per spatial axis."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    """Before each axis, and behind it too unless ``padding_after`` says otherwise."""
    dilation: tuple[int, ...]
    groups: int
    output_padding: tuple[int, ...] = ()
    padding_after: tuple[int, ...] = field(default=())

    @property
    def pads(self) -> list[int]:
        """The padding in ONNX's order: all axes before, then all axes behind."""
        return [*self.padding, *(self.padding_after or self.padding)]


def geometry_of(
    rank: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_padding: Sequence[int] = (0,),
) -> ConvolutionGeometry:
    """Return the geometry that arguments of an ATen convolution over ``rank`` axes state."""
    return ConvolutionGeometry(
        per_axis(stride, rank),
        per_axis(padding, rank),
        per_axis(dilation, rank),
        groups,
        per_axis(output_padding, rank),
    )


def emit_convolution(
    build: GraphBuilder,
    data: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    geometry: ConvolutionGeometry,
    shape: Sequence[int],
) -> ir.Value:
    """Append a Conv of a batch whose result has the given shape."""
    return build.emit(
        "Conv",
        [data, weight, bias],
        element(data),
        shape,
        strides=list(geometry.stride),
        pads=geometry.pads,
        dilations=list(geometry.dilation),
        group=geometry.groups,
    )


def emit_transposed(
    build: GraphBuilder,
    data: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    geometry: ConvolutionGeometry,
    shape: Sequence[int],
) -> ir.Value:
    """Append a ConvTranspose of a batch whose result has the given shape.

    ONNX's output padding is less than the stride, torch's may be less than the dilation instead. What is more takes the
    place of padding, and where there is none left, of elements that no window reaches.
    """
    extra = geometry.output_padding
    if all(size < step for size, step in zip(extra, geometry.stride, strict=False)):
        return _transposed(build, data, weight, bias, geometry, shape)
    behind = [pad - size for pad, size in zip(geometry.padding, extra, strict=True)]
    unreached = [max(-size, 0) for size in behind]
    near = replace(
        geometry, output_padding=(), padding_after=tuple(max(size, 0) for size in behind)
    )
    if not any(unreached):
        return _transposed(build, data, weight, bias, near, shape)
    reached = [size - out for size, out in zip(shape, [0, 0, *unreached], strict=True)]
    result = _transposed(build, data, weight, None, near, reached)
    result = build.pad(result, [0] * len(shape), [0, 0, *unreached])
    if bias is None:
        return result
    aligned = build.reshape(bias, [*sizes(bias), *(1 for _ in unreached)])
    return build.emit("Add", [result, aligned], element(data), shape)


def _transposed(
    build: GraphBuilder,
    data: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    geometry: ConvolutionGeometry,
    shape: Sequence[int],
) -> ir.Value:
    return build.emit(
        "ConvTranspose",
        [data, weight, bias],
        element(data),
        shape,
        strides=list(geometry.stride),
        pads=geometry.pads,
        dilations=list(geometry.dilation),
        group=geometry.groups,
        output_padding=list(geometry.output_padding) if any(geometry.output_padding) else None,
    )


@translates("convolution", "_convolution")
def convolution(
    context: Context,
    data: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_backend: bool,
) -> ir.Value:
    """Write any convolution."""
    rank = len(sizes(weight)) - 2
    geometry = geometry_of(rank, stride, padding, dilation, groups, output_padding)
    return _convolve(context, data, weight, bias, geometry, transposed=transposed)


@translates("conv1d", "conv2d", "conv3d")
def direct_convolution(
    context: Context,
    data: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> ir.Value:
    """Write a convolution that is not transposed; padding may be called ``valid`` or ``same``."""
    rank = len(sizes(weight)) - 2
    if not isinstance(padding, str):
        geometry = geometry_of(rank, stride, padding, dilation, groups)
        return _convolve(context, data, weight, bias, geometry)
    steps = per_axis(dilation, rank)
    same = padding == "same"
    total = [d * (k - 1) if same else 0 for d, k in zip(steps, sizes(weight)[2:], strict=True)]
    # An odd element of padding lies behind, as torch has it.
    before = tuple(size // 2 for size in total)
    after = tuple(size - size // 2 for size in total)
    moved = per_axis(stride, rank)
    geometry = ConvolutionGeometry(moved, before, steps, groups, padding_after=after)
    return _convolve(context, data, weight, bias, geometry)


@translates("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed_convolution(
    context: Context,
    data: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> ir.Value:
    """Write a transposed convolution."""
    rank = len(sizes(weight)) - 2
    geometry = geometry_of(rank, stride, padding, dilation, groups, output_padding)
    return _convolve(context, data, weight, bias, geometry, transposed=True)


def _convolve(
    context: Context,
    data: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    geometry: ConvolutionGeometry,
    *,
    transposed: bool = False,
) -> ir.Value:
    build, shape = context.build, context.result.shape
    batched = len(sizes(data)) == len(sizes(weight))
    if not batched:
        data = build.reshape(data, (1, *sizes(data)))
    emit = emit_transposed if transposed else emit_convolution
    result = emit(build, data, weight, bias, geometry, shape if batched else (1, *shape))
    return build.reshape(result, shape)
