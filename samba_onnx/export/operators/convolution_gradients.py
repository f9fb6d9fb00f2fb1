"""The backward operator of convolutions, in the form that is fastest for each size.

With ``a`` the tensor under the window and ``b`` the one that has an element per window position
(input and output of a convolution, output and input of a transposed one)::

    weight gradient[cb, ca, k] = sum over n, l of a[n, ca, l * stride + k * dilation - padding] *
                                                  b[n, cb, l]

which is a convolution of ``a`` by ``b`` with batch and channels exchanged, or one matrix product
per kernel offset ``k``. Products of channels-last slices are 1.5 to 3 times as fast as the former
where there are at least some channels: slices copy whole rows of channels, and nothing is padded to
a kernel as large as the picture.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from samba_onnx.export.operators.convolution import (
    Geometry,
    emit_convolution,
    emit_transposed,
    geometry_of,
)
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import box
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes

# Found by timing onnxruntime's kernels on layers of LeNet, ResNet and U-Net.
_FEW_CHANNELS = 8
_FEW_OFFSETS = 9
_SMALL_PLANE = 64
_LARGE_PLANE = 2048
_SMALL_BATCH = 256
_MANY_CHANNELS = 32


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
        results[0] = emit_convolution(build, gradient, weight, None, geometry, sizes(data))
    elif mask[0]:
        results[0] = _input_gradient(build, gradient, weight, geometry, sizes(data))
    if mask[1]:
        under, over = (gradient, data) if transposed else (data, gradient)
        results[1] = _weight_gradient(build, under, over, geometry, sizes(weight))
    if mask[2]:
        results[2] = build.reduce("ReduceSum", gradient, [0, *range(2, rank + 2)])
    return results


def _input_gradient(
    build: GraphBuilder,
    gradient: ir.Value,
    weight: ir.Value,
    geometry: Geometry,
    shape: Sequence[int],
) -> ir.Value:
    plane = math.prod(sizes(gradient)[2:])
    wide = min(shape[1], sizes(gradient)[1]) >= _MANY_CHANNELS
    if geometry.groups == 1 and plane <= _SMALL_PLANE and wide:
        return _scattered_input_gradient(build, gradient, weight, geometry, shape)
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
    return emit_transposed(build, gradient, weight, None, turned, shape)


def _scattered_input_gradient(
    build: GraphBuilder,
    gradient: ir.Value,
    weight: ir.Value,
    geometry: Geometry,
    shape: Sequence[int],
) -> ir.Value:
    """One matrix product for all offsets and pictures, whose columns are put in place and added.

    ConvTranspose multiplies per picture, by matrices of as few columns as the picture has elements.
    """
    batch, outer, *plane = sizes(gradient)
    inner, *kernel = sizes(weight)[1:]
    rank = len(plane)
    rows = build.reshape(_channels_last(build, gradient), [batch * math.prod(plane), outer])
    parts = _products_by_offset(build, rows, weight)
    placed = []
    for part, offset in zip(parts, _offsets(kernel, geometry), strict=True):
        spread = _interleave(build, build.reshape(part, [batch, *plane, inner]), geometry.stride)
        before = [start - pad for start, pad in zip(offset, geometry.padding, strict=True)]
        taken = sizes(spread)[1:-1]
        after = [n - b - t for n, b, t in zip(shape[2:], before, taken, strict=True)]
        placed.append(build.pad(spread, [0, *before, 0], [0, *after, 0]))
    total = placed[0]
    if len(placed) > 1:
        total = build.emit("Sum", placed, element(total), sizes(total))
    return build.transpose(total, [0, rank + 1, *range(1, rank + 1)])


def _products_by_offset(build: GraphBuilder, rows: ir.Value, weight: ir.Value) -> list[ir.Value]:
    """Multiply rows of outer channels by a weight; yield rows of inner channels per offset.

    Either the weight or the product is put in order so that offsets are apart: what is smaller.
    """
    outer, inner, *kernel = sizes(weight)
    offsets, positions = math.prod(kernel), sizes(rows)[0]
    if positions < outer:
        product = build.matmul(rows, build.reshape(weight, [outer, inner * offsets]))
        product = build.reshape(product, [positions, inner, offsets])
        return build.split(build.transpose(product, [2, 0, 1]), [1] * offsets, 0)
    by_offset = build.transpose(build.reshape(weight, [outer, inner, offsets]), [0, 2, 1])
    product = build.matmul(rows, build.reshape(by_offset, [outer, offsets * inner]))
    return build.split(product, [inner] * offsets, 1)


def _interleave(build: GraphBuilder, rows: ir.Value, stride: Sequence[int]) -> ir.Value:
    """Put ``stride - 1`` zeros behind each element of each spatial axis of channels-last rows."""
    if all(step == 1 for step in stride):
        return rows
    batch, *plane, channels = sizes(rows)
    spaced = [n for size in plane for n in (size, 1)]
    value = build.reshape(rows, [batch, *spaced, channels])
    after = [n for step in stride for n in (0, step - 1)]
    value = build.pad(value, [0] * len(sizes(value)), [0, *after, 0])
    wide = [size * step for size, step in zip(plane, stride, strict=True)]
    return build.reshape(value, [batch, *wide, channels])


def _weight_gradient(
    build: GraphBuilder,
    under: ir.Value,
    over: ir.Value,
    geometry: Geometry,
    shape: Sequence[int],
) -> ir.Value:
    return _weight_form(under, over, geometry, shape)(build, under, over, geometry, shape)


_Form = Callable[[GraphBuilder, ir.Value, ir.Value, Geometry, Sequence[int]], ir.Value]


def _weight_form(
    under: ir.Value, over: ir.Value, geometry: Geometry, shape: Sequence[int]
) -> _Form:
    """Choose the form of a weight gradient by the sizes."""
    inner, offsets = sizes(under)[1], math.prod(shape[2:])
    plane = math.prod(sizes(over)[2:])
    if geometry.groups > 1:
        depthwise = inner == geometry.groups == sizes(over)[1]
        return _depthwise if depthwise else _exchanged
    if inner < _FEW_CHANNELS:
        return _columns if offsets <= _FEW_OFFSETS else _exchanged
    if plane >= _LARGE_PLANE and offsets > 1:
        return _per_picture
    return _channels_last_products


def _exchanged(
    build: GraphBuilder,
    under: ir.Value,
    over: ir.Value,
    geometry: Geometry,
    shape: Sequence[int],
) -> ir.Value:
    """A convolution with batch and channels exchanged; also for groups."""
    batch, inner, *plane = sizes(under)
    axes = range(len(plane))
    groups = geometry.groups
    split = build.reshape(under, [batch, groups, inner // groups, *plane])
    split = build.transpose(split, [2, 1, 0, *(axis + 3 for axis in axes)])
    left = build.reshape(split, [inner // groups, groups * batch, *plane])
    right = build.transpose(over, [1, 0, *(axis + 2 for axis in axes)])
    turned = Geometry(geometry.dilation, geometry.padding, geometry.stride, groups)
    reach = [
        (size + 2 * pad - step * (out - 1) - 1) // hole + 1
        for size, pad, step, out, hole in zip(
            plane,
            geometry.padding,
            geometry.stride,
            sizes(over)[2:],
            geometry.dilation,
            strict=True,
        )
    ]
    full = [inner // groups, sizes(over)[1], *reach]
    result = emit_convolution(build, left, right, None, turned, full)
    ones = [1] * len(plane)
    result = box(build, result, 2, [0] * len(plane), shape[2:], ones)
    return build.transpose(result, [1, 0, *(axis + 2 for axis in axes)])


def _columns(
    build: GraphBuilder,
    under: ir.Value,
    over: ir.Value,
    geometry: Geometry,
    shape: Sequence[int],
) -> ir.Value:
    """One product with all offsets stacked, channels first: best for few channels."""
    outer, inner, *kernel = shape
    axes = [axis + 2 for axis in range(len(kernel))]
    padded = _padded(build, build.transpose(under, [1, 0, *axes]), geometry, 2)
    positions = sizes(over)[0] * math.prod(sizes(over)[2:])
    rows = [
        build.reshape(part, [inner, positions])
        for part in _windows(build, padded, over, kernel, geometry, 2)
    ]
    left = build.reshape(build.transpose(over, [1, 0, *axes]), [outer, positions])
    product = build.matmul(left, build.transpose(build.concat(rows, 0), [1, 0]))
    return _offsets_last(build, product, shape)


def _channels_last_products(
    build: GraphBuilder,
    under: ir.Value,
    over: ir.Value,
    geometry: Geometry,
    shape: Sequence[int],
) -> ir.Value:
    """One product per offset with channels last; one for all when they are small."""
    outer, inner, *kernel = shape
    axes = [axis + 2 for axis in range(len(kernel))]
    padded = _channels_last(build, _padded(build, under, geometry, 2))
    positions = sizes(over)[0] * math.prod(sizes(over)[2:])
    left = build.reshape(build.transpose(over, [1, 0, *axes]), [outer, positions])
    rows = [
        build.reshape(part, [positions, inner])
        for part in _windows(build, padded, over, kernel, geometry, 1)
    ]
    if positions < outer:
        columns = build.concat(rows, 1)
        offsets = math.prod(kernel)
        columns = build.reshape(columns, [positions, offsets, inner])
        columns = build.reshape(build.transpose(columns, [0, 2, 1]), [positions, offsets * inner])
        return build.reshape(build.matmul(left, columns), shape)
    if positions <= _SMALL_BATCH:
        return _offsets_last(build, build.matmul(left, build.concat(rows, 1)), shape)
    products = [build.reshape(build.matmul(left, part), [outer, inner, 1]) for part in rows]
    return build.reshape(build.concat(products, 2), shape)


def _per_picture(
    build: GraphBuilder,
    under: ir.Value,
    over: ir.Value,
    geometry: Geometry,
    shape: Sequence[int],
) -> ir.Value:
    """One product per offset and picture: best for large pictures, which are not transposed."""
    outer, inner, *kernel = shape
    batch, plane = sizes(over)[0], math.prod(sizes(over)[2:])
    padded = _padded(build, under, geometry, 2)
    left = build.reshape(over, [batch, outer, plane])
    products = []
    for part in _windows(build, padded, over, kernel, geometry, 2):
        right = build.transpose(build.reshape(part, [batch, inner, plane]), [0, 2, 1])
        total = build.reduce("ReduceSum", build.matmul(left, right), [0])
        products.append(build.reshape(total, [outer, inner, 1]))
    return build.reshape(build.concat(products, 2), shape)


def _depthwise(
    build: GraphBuilder,
    under: ir.Value,
    over: ir.Value,
    geometry: Geometry,
    shape: Sequence[int],
) -> ir.Value:
    """One elementwise product and sum per offset, with channels last."""
    channels, _, *kernel = shape
    padded = _channels_last(build, _padded(build, under, geometry, 2))
    factor = _channels_last(build, over)
    sums = []
    for part in _windows(build, padded, over, kernel, geometry, 1):
        product = build.multiply(part, factor)
        total = build.reduce("ReduceSum", product, range(len(kernel) + 1))
        sums.append(build.reshape(total, [channels, 1]))
    return build.reshape(build.concat(sums, 1), shape)


def _padded(build: GraphBuilder, value: ir.Value, geometry: Geometry, first: int) -> ir.Value:
    behind = len(sizes(value)) - first - len(geometry.padding)
    amounts = [0] * first + list(geometry.padding) + [0] * behind
    return build.pad(value, amounts, amounts)


def _channels_last(build: GraphBuilder, value: ir.Value) -> ir.Value:
    return build.transpose(value, [0, *range(2, len(sizes(value))), 1])


def _offsets(kernel: Sequence[int], geometry: Geometry) -> Iterator[list[int]]:
    """Yield where the window's elements lie, first axis slowest."""
    for indices in itertools.product(*map(range, kernel)):
        yield [index * hole for index, hole in zip(indices, geometry.dilation, strict=True)]


def _windows(
    build: GraphBuilder,
    padded: ir.Value,
    over: ir.Value,
    kernel: Sequence[int],
    geometry: Geometry,
    first: int,
) -> Iterator[ir.Value]:
    """Yield, per kernel offset, the elements that lie under it at every window position.

    Args:
        build: The graph.
        padded: The tensor under the window.
        over: The tensor with an element per position, batch and channels first.
        kernel: Sizes of the window.
        geometry: How it moves.
        first: The first spatial axis of ``padded``.
    """
    for offset in _offsets(kernel, geometry):
        yield box(build, padded, first, offset, sizes(over)[2:], geometry.stride)


def _offsets_last(build: GraphBuilder, product: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Bring ``[outer, offsets * inner]`` into the order of a weight."""
    outer, inner, *kernel = shape
    split = build.reshape(product, [outer, math.prod(kernel), inner])
    return build.reshape(build.transpose(split, [0, 2, 1]), shape)
