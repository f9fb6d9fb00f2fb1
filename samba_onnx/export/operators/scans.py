"""ATen operators whose every result depends on all elements before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from samba_onnx.export.operators.indexing import with_axis
from samba_onnx.export.operators.promotion import rounds_once, wider
from samba_onnx.export.operators.registry import Context, Result, translates
from samba_onnx.export.translation.builder import (
    GraphBuilder,
    Scalar,
    count,
    element,
    is_floating,
    sizes,
)

Combination: TypeAlias = Callable[[list[ir.Value], list[ir.Value]], list[ir.Value]]
"""``(earlier, later) -> combined``, which must be associative."""


def running(
    build: GraphBuilder,
    values: list[ir.Value],
    axis: int,
    neutral: list[Scalar],
    combine: Combination,
) -> list[ir.Value]:
    """Combine every element with all before it, in as many steps as the length has bits.

    Args:
        build: The graph.
        values: The values to scan together, all of one shape.
        axis: The axis to scan along, counted from the first one, so not negative.
        neutral: Per value, the number that leaves everything it is combined with as it is.
        combine: Combines elements with those in front of them, value by value.
    """
    shape = sizes(values[0])
    distance = 1
    while distance < shape[axis]:
        before = [0] * len(shape)
        before[axis] = distance
        remainder = shape[axis] - distance
        earlier = [
            build.pad(build.slice(value, axis, 0, remainder), before, [0] * len(shape), content)
            for value, content in zip(values, neutral, strict=True)
        ]
        values = combine(earlier, values)
        distance *= 2
    return values


@translates("cumsum")
def cumsum(context: Context, value: ir.Value, dim: int, dtype: object = None) -> ir.Value:
    """Add up along an axis."""
    build, outcome = context.build, context.result
    if 0 in outcome.shape:
        return build.full(outcome.shape, 0, outcome.dtype)
    data = with_axis(build, value)
    wide = build.cast(data, wider(outcome.dtype, "CumSum"))
    axis = build.constant(dim % len(sizes(data)), ir.DataType.INT64)
    total = build.emit("CumSum", [wide, axis], element(wide), sizes(wide))
    return build.reshape(build.cast(total, outcome.dtype), outcome.shape)


@translates("cumprod")
@rounds_once
def cumprod(context: Context, value: ir.Value, dim: int, dtype: object = None) -> ir.Value:
    """Multiply along an axis."""
    build, outcome = context.build, context.result
    data = with_axis(build, build.cast(value, outcome.dtype))
    axis = dim % len(sizes(data))
    products = running(
        build, [data], axis, [1], lambda one, other: [build.multiply(one[0], other[0])]
    )
    return build.reshape(products[0], outcome.shape)


@translates("logcumsumexp")
@rounds_once
def logcumsumexp(context: Context, value: ir.Value, dim: int) -> ir.Value:
    """Add up exponentials along an axis, in logarithms."""
    build = context.build
    data = with_axis(build, value)
    axis = dim % len(sizes(data))
    sums = running(
        build,
        [data],
        axis,
        [float("-inf")],
        lambda one, other: [log_add_exp(build, one[0], other[0])],
    )
    return build.reshape(sums[0], sizes(value))


def log_add_exp(build: GraphBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    """Return the logarithm of a sum of exponentials, also of infinite ones."""
    dtype = element(left)
    largest = build.binary("Max", left, right)
    apart = build.unary("Abs", build.subtract(left, right))
    # Equal infinities are no number apart.
    apart = build.where(build.compare("Equal", left, right), 0, apart)
    return build.binary("Add", largest, build.unary("Softplus", build.unary("Neg", apart)), dtype)


@translates("cummax")
def cummax(context: Context, value: ir.Value, dim: int) -> Result:
    """Return the largest element so far, and the last place that it was at."""
    return _extremes(context, value, dim, "GreaterOrEqual", low=True)


@translates("cummin")
def cummin(context: Context, value: ir.Value, dim: int) -> Result:
    """Return the least element so far, and the last place that it was at."""
    return _extremes(context, value, dim, "LessOrEqual", low=False)


def _extremes(context: Context, value: ir.Value, dim: int, replaces: str, *, low: bool) -> Result:
    build = context.build
    data = with_axis(build, value)
    if element(data) == ir.DataType.BOOL:
        data = build.cast(data, ir.DataType.INT32)
    shape, axis = sizes(data), dim % len(sizes(data))
    if count(data) == 0:
        return [r and build.full(r.shape, 0, r.dtype) for r in context.results]
    along = np.arange(shape[axis]).reshape([-1, *[1] * (len(shape) - axis - 1)])
    places = build.expand(build.constant(along, ir.DataType.INT64), shape)

    def combine(earlier: list[ir.Value], later: list[ir.Value]) -> list[ir.Value]:
        taken = build.compare(replaces, later[0], earlier[0])
        if is_floating(data):
            strange = build.emit("IsNaN", [later[0]], ir.DataType.BOOL, shape)
            taken = build.emit("Or", [taken, strange], ir.DataType.BOOL, shape)
        pairs = zip(later, earlier, strict=True)
        return [build.where(taken, new, old) for new, old in pairs]

    extremes = running(build, [data, places], axis, [_bound(element(data), low), 0], combine)
    extremes[0] = build.cast(extremes[0], element(value))
    pairs = zip(extremes, context.results, strict=True)
    return [result and build.reshape(one, result.shape) for one, result in pairs]


def _bound(dtype: ir.DataType, low: bool) -> Scalar:
    """Return a number that no other is below, or above."""
    if dtype.is_floating_point():
        return float("-inf" if low else "inf")
    limits = np.iinfo(dtype.numpy())
    return int(limits.min if low else limits.max)
