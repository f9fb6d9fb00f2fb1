"""ATen operators that read, write or look for elements where a mask is true."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from samba_onnx.export.operators.indexing import Indices, flat, index, ranks_in_mask
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.scattering import index_put, put_slices
from samba_onnx.export.translation.builder import GraphBuilder, Scalar, count, element, sizes

INT64 = ir.DataType.INT64


def _inside(build: GraphBuilder, value: ir.Value, indices: Indices) -> list[ir.Value | None]:
    """Return indices brought into the range of their axes."""
    return [
        places and _clamped(build, build.cast(places, INT64), sizes(value)[axis] - 1)
        for axis, places in enumerate(indices)
    ]


def _clamped(build: GraphBuilder, value: ir.Value, highest: int) -> ir.Value:
    return build.binary("Min", build.binary("Max", value, 0), highest)


@translates("_unsafe_masked_index")
def masked_index(
    context: Context, value: ir.Value, mask: ir.Value, indices: Indices, content: Scalar
) -> ir.Value:
    """Read where a mask is true; a number elsewhere."""
    build, shape = context.build, context.result.shape
    if 0 in sizes(value) or 0 in shape:
        return build.full(shape, content, element(value))
    elements = index(context, value, _inside(build, value, indices))
    extra = len(shape) - len(sizes(mask))
    open_ = build.reshape(mask, [*sizes(mask), *[1] * extra])
    return build.expand(build.where(open_, elements, content), shape)


@translates("_unsafe_masked_index_put_accumulate")
def masked_index_put(
    context: Context, value: ir.Value, mask: ir.Value, indices: Indices, updates: ir.Value
) -> ir.Value:
    """Add where a mask is true."""
    build = context.build
    if 0 in sizes(value):
        return value
    extra = max(0, len(sizes(updates)) - len(sizes(mask)))
    open_ = build.reshape(mask, [*sizes(mask), *[1] * extra])
    additions = build.where(open_, updates, 0)
    return index_put(context, value, _inside(build, value, indices), additions, True)


@translates("masked_scatter_backward")
def masked_scatter_backward(
    context: Context, gradient: ir.Value, mask: ir.Value, _sizes: object
) -> ir.Value:
    """Collect what lies where a mask is true, one element after the other, and then zeros."""
    build, outcome = context.build, context.result
    size = math.prod(outcome.shape)
    if size == 0 or count(gradient) == 0:
        return build.full(outcome.shape, 0, outcome.dtype)
    chosen = flat(build, build.expand(build.cast(mask, ir.DataType.BOOL), sizes(gradient)))
    # All others go to one more element, which is cut off.
    row = build.where(chosen, ranks_in_mask(build, chosen), size)
    start = build.full([size + 1], 0, outcome.dtype)
    sequence = put_slices(build, start, 0, build.binary("Min", row, size), flat(build, gradient))
    return build.reshape(build.slice(sequence, 0, 0, size), outcome.shape)


@translates("nonzero_static")
def nonzero_static(context: Context, value: ir.Value, size: int, fill_value: int = -1) -> ir.Value:
    """Return the places of the first elements that are not zero, as many as are asked for."""
    build, shape = context.build, sizes(value)
    outcome = context.result
    if 0 in outcome.shape or 0 in shape:
        return build.full(outcome.shape, fill_value, outcome.dtype)
    chosen = flat(build, build.cast(value, ir.DataType.BOOL))
    ones = build.cast(chosen, ir.DataType.INT64)
    zero = build.constant(0, ir.DataType.INT64)
    number = build.emit("CumSum", [ones, zero], ir.DataType.INT64, sizes(ones))
    # All others go to one more row, which is cut off.
    row = build.where(chosen, build.subtract(number, 1), size)
    row = build.binary("Min", row, size)
    places = np.stack([axis.reshape(-1) for axis in np.indices(shape)], -1)
    start = build.full([size + 1, len(shape)], fill_value, ir.DataType.INT64)
    table = put_slices(build, start, 0, row, build.constant(places, ir.DataType.INT64))
    return build.slice(table, 0, 0, size)
