"""ATen operators that write elements by index."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
import onnx_ir as ir

from samba_onnx.export.operators.indexing import (
    Indices,
    advanced,
    flat,
    is_mask,
    ranks_in_mask,
    with_axis,
)
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import (
    GraphBuilder,
    Scalar,
    count,
    element,
    is_floating,
    sizes,
)
from samba_onnx.tensor.dtypes import FLOATING

Put: TypeAlias = Callable[[ir.Value, ir.Value, str | None], ir.Value]
"""Writes (updates) into (data) with a reduction, at places that are settled already."""

_REDUCTIONS: Final = MappingProxyType(
    {
        "add": "add",
        "sum": "add",
        "mean": "add",
        "multiply": "mul",
        "prod": "mul",
        "amax": "max",
        "amin": "min",
    }
)
"""ONNX's names of torch's reductions; a mean is divided afterwards."""


def _cut(build: GraphBuilder, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Return the front of a value along every axis."""
    for axis, size in enumerate(shape):
        value = build.slice(value, axis, 0, size)
    return value


def _numbers(build: GraphBuilder, value: ir.Value, reduction: str | None) -> ir.Value:
    """Return a value in a type that ONNX can combine: truth values as numbers."""
    if reduction is not None and element(value) == ir.DataType.BOOL:
        return build.cast(value, ir.DataType.INT32)
    return value


def scatter_nd(
    build: GraphBuilder,
    value: ir.Value,
    tuples: ir.Value,
    updates: ir.Value,
    reduction: str | None = None,
) -> ir.Value:
    """Return ``value`` with the slices that tuples of leading indices name overwritten.

    Args:
        build: The graph.
        value: A value of any type, with at least one axis.
        tuples: Indices, int64 of shape (..., number of leading axes).
        updates: New elements of the value's type, (..., remaining axes).
        reduction: ``add``, ``mul``, ``max`` or ``min`` combines with what was there.
    """
    data, news = (_numbers(build, v, reduction) for v in (value, updates))
    operands = [data, tuples, news]
    result = build.emit("ScatterND", operands, element(data), sizes(data), reduction=reduction)
    return build.cast(result, element(value))


def scatter_elements(
    build: GraphBuilder,
    value: ir.Value,
    axis: int,
    places: ir.Value,
    updates: ir.Value,
    reduction: str | None = None,
) -> ir.Value:
    """Return ``value`` with elements overwritten at the places along an axis.

    Args:
        build: The graph.
        value: A value of any type, with at least one axis.
        axis: The axis that the places count along, not negative.
        places: Integers, of as many axes as the value.
        updates: New elements of the value's type; their shape is cut to that of the places.
        reduction: ``add``, ``mul``, ``max`` or ``min`` combines with what was there.
    """
    if count(places) == 0:
        return value
    updates = _cut(build, updates, sizes(places))
    data, news = (_numbers(build, v, reduction) for v in (value, updates))
    result = build.emit(
        "ScatterElements",
        [data, build.cast(places, ir.DataType.INT64), news],
        element(data),
        sizes(data),
        axis=axis,
        reduction=reduction,
    )
    return build.cast(result, element(value))


def put_slices(
    build: GraphBuilder,
    value: ir.Value,
    axis: int,
    places: ir.Value,
    updates: ir.Value,
    reduction: str | None = None,
) -> ir.Value:
    """Return ``value`` with whole slices along an axis overwritten.

    Args:
        build: The graph.
        value: A value of any type, with at least one axis.
        axis: The axis to write slices of; a negative one counts from the end.
        places: Integers, one per slice.
        updates: The value's shape but for the axis, which is as long as the places.
        reduction: ``add``, ``mul``, ``max`` or ``min`` combines with what was there.
    """
    rank = len(sizes(value))
    axis %= rank
    if count(places) == 0 or count(value) == 0:
        return value
    order = [axis, *(i for i in range(rank) if i != axis)]
    tuples = build.reshape(build.cast(places, ir.DataType.INT64), [count(places), 1])
    data, news = build.transpose(value, order), build.transpose(updates, order)
    result = scatter_nd(build, data, tuples, news, reduction)
    return build.transpose(result, [int(i) for i in np.argsort(order)])


@translates("index_put", "_unsafe_index_put")
def index_put(
    context: Context,
    value: ir.Value,
    indices: Indices,
    updates: ir.Value,
    accumulate: bool = False,
) -> ir.Value:
    """Write with one or several index tensors that are broadcast against each other."""
    build, shape = context.build, sizes(value)
    tensors = [index for index in indices if index is not None]
    if 0 in shape or any(count(tensor) == 0 for tensor in tensors):
        return value
    if len(tensors) == 1 and is_mask(tensors[0]):
        return _put_masked(build, value, indices, updates, accumulate)
    plan = advanced(build, len(shape), indices, context.operator)
    rest = [shape[axis] for axis in plan.rest]
    stacked = [*plan.shape, *rest]
    target = [stacked[i] for i in plan.placement]
    back = [int(i) for i in np.argsort(plan.placement)]
    news = build.transpose(build.expand(updates, target), back)
    data = build.transpose(value, plan.order)
    result = scatter_nd(build, data, plan.tuples, news, "add" if accumulate else None)
    return build.transpose(result, [int(i) for i in np.argsort(plan.order)])


def _put_masked(
    build: GraphBuilder, value: ir.Value, indices: Indices, updates: ir.Value, accumulate: bool
) -> ir.Value:
    """Write where a mask over neighbouring axes is true, one row of the updates after the other."""
    shape = sizes(value)
    first = next(i for i, one in enumerate(indices) if one is not None)
    mask = build.cast(indices[first], ir.DataType.BOOL)  # type: ignore[arg-type]
    covered = len(sizes(mask))
    behind = shape[first + covered :]
    places = math.prod(sizes(mask))
    chosen = build.reshape(mask, [places, *[1] * len(behind)])
    data = build.reshape(value, [*shape[:first], places, *behind])
    rank = 1 + len(behind)
    lengths = sizes(updates)
    if len(lengths) >= rank and lengths[-rank] != 1:
        order = build.binary("Min", ranks_in_mask(build, flat(build, mask)), lengths[-rank] - 1)
        updates = build.gather(updates, order, len(lengths) - rank)
    news = build.value(updates, element(value))
    if accumulate:
        news = build.binary("Or" if element(data) == ir.DataType.BOOL else "Add", data, news)
    result = build.where(chosen, news, data)
    return build.reshape(result, shape)


@translates("index_add")
def index_add(
    context: Context,
    value: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value,
    alpha: Scalar = 1,
) -> ir.Value:
    """Add slices at places along an axis."""
    build = context.build
    data, news = with_axis(build, value), with_axis(build, source)
    if element(news) == ir.DataType.BOOL and not alpha:
        return value
    if alpha != 1 and element(news) != ir.DataType.BOOL:
        news = build.multiply(news, alpha)
    return build.reshape(put_slices(build, data, dim, index, news, "add"), sizes(value))


@translates("index_copy")
def index_copy(
    context: Context, value: ir.Value, dim: int, index: ir.Value, source: ir.Value
) -> ir.Value:
    """Overwrite slices at places along an axis."""
    build = context.build
    data, news = with_axis(build, value), with_axis(build, source)
    return build.reshape(put_slices(build, data, dim, index, news), sizes(value))


@translates("index_fill")
def index_fill(
    context: Context, value: ir.Value, dim: int, index: ir.Value, content: ir.Value | Scalar
) -> ir.Value:
    """Put a number into slices at places along an axis."""
    build = context.build
    data = with_axis(build, value)
    shape = list(sizes(data))
    shape[dim] = count(index)
    news = build.expand(build.value(content, element(value)), shape)
    return build.reshape(put_slices(build, data, dim, index, news), sizes(value))


@translates("index_reduce")
def index_reduce(
    context: Context,
    value: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value,
    reduce: str,
    include_self: bool = True,
) -> ir.Value:
    """Combine slices at places along an axis with what is there."""
    build = context.build
    data, news = with_axis(build, value), with_axis(build, source)
    if count(index) == 0 or count(data) == 0:
        return value

    def put(into: ir.Value, what: ir.Value, reduction: str | None) -> ir.Value:
        return put_slices(build, into, dim, index, what, reduction)

    return build.reshape(_reduced(build, data, news, reduce, include_self, put), sizes(value))


@translates("scatter.src", "scatter.reduce")
def scatter(
    context: Context,
    value: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value,
    reduce: str | None = None,
) -> ir.Value:
    """Overwrite one element per index, or combine it."""
    build = context.build
    data, places, news = (with_axis(build, v) for v in (value, index, source))
    reduction = None if reduce is None else _REDUCTIONS[reduce]
    axis = dim % len(sizes(data))
    result = scatter_elements(build, data, axis, places, news, reduction)
    return build.reshape(result, sizes(value))


@translates("scatter.value", "scatter.value_reduce")
def scatter_value(
    context: Context,
    value: ir.Value,
    dim: int,
    index: ir.Value,
    content: Scalar,
    reduce: str | None = None,
) -> ir.Value:
    """Put a number at one element per index, or combine it."""
    news = context.build.full(sizes(index), content, element(value))
    return scatter(context, value, dim, index, news, reduce)


@translates("scatter_add")
def scatter_add(
    context: Context, value: ir.Value, dim: int, index: ir.Value, source: ir.Value
) -> ir.Value:
    """Add to one element per index."""
    return scatter(context, value, dim, index, source, "add")


@translates("scatter_reduce")
def scatter_reduce(
    context: Context,
    value: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value,
    reduce: str,
    include_self: bool = True,
) -> ir.Value:
    """Combine one element per index with what is there."""
    build = context.build
    data, places, news = (with_axis(build, v) for v in (value, index, source))
    if count(places) == 0 or count(data) == 0:
        return value
    axis = dim % len(sizes(data))
    news = _cut(build, news, sizes(places))

    def put(into: ir.Value, what: ir.Value, reduction: str | None) -> ir.Value:
        return scatter_elements(build, into, axis, places, what, reduction)

    return build.reshape(_reduced(build, data, news, reduce, include_self, put), sizes(value))


def _reduced(
    build: GraphBuilder,
    data: ir.Value,
    news: ir.Value,
    reduce: str,
    include_self: bool,
    put: Put,
) -> ir.Value:
    """Combine updates with the data where they go, or only with each other."""
    dtype, reduction = element(data), _REDUCTIONS[reduce]
    start = data
    if not include_self:
        neutral = build.full(sizes(news), _neutral(dtype, reduction), dtype)
        start = put(data, neutral, None)
    totals = put(start, news, reduction)
    if reduce != "mean":
        return totals
    counts = build.full(sizes(data), 1, dtype)
    ones = build.full(sizes(news), 1, dtype)
    if not include_self:
        counts = put(counts, build.full(sizes(news), 0, dtype), None)
    counts = build.binary("Max", put(counts, ones, "add"), 1)
    return (
        floor_divide(build, totals, counts)
        if not is_floating(totals)
        else build.divide(totals, counts)
    )


def floor_divide(build: GraphBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    """Divide integers by positive ones and round down, where ONNX rounds towards zero."""
    truncated = build.divide(left, right)
    above = build.compare("Greater", build.multiply(truncated, right), left)
    return build.subtract(truncated, build.cast(above, element(left)))


def _neutral(dtype: ir.DataType, reduction: str) -> Scalar:
    """Return what a reduction leaves everything else as it is with."""
    if reduction in ("add", "mul"):
        return int(reduction == "mul")
    if dtype in FLOATING:
        return float("-inf" if reduction == "max" else "inf")
    limits: tuple[int, int] = (False, True)
    if dtype != ir.DataType.BOOL:
        bounds = np.iinfo(dtype.numpy())
        limits = (int(bounds.min), int(bounds.max))
    return limits[0] if reduction == "max" else limits[1]


@translates("put")
def put(
    context: Context, value: ir.Value, index: ir.Value, source: ir.Value, accumulate: bool = False
) -> ir.Value:
    """Write into a tensor as if it were flat."""
    build = context.build
    if count(index) == 0:
        return value
    places, news = flat(build, index), flat(build, source)
    result = put_slices(build, flat(build, value), 0, places, news, "add" if accumulate else None)
    return build.reshape(result, sizes(value))
