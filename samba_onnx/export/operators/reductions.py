"""Sums, means, extrema and norms over axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import onnx_ir as ir

from samba_onnx.export.operators.promotion import wider
from samba_onnx.export.operators.registry import Context, Result, Translation, translates
from samba_onnx.export.translation.builder import (
    GraphBuilder,
    Scalar,
    count,
    element,
    is_floating,
    sizes,
)

Axes: TypeAlias = Sequence[int] | int | None
_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


def _chosen(value: ir.Value, axes: Axes, *, none_is_all: bool = True) -> list[int]:
    """Return the axes that are reduced: all if none are named."""
    rank = len(sizes(value))
    if axes is None or (none_is_all and not isinstance(axes, int) and not axes):
        return list(range(rank))
    listed = [axes] if isinstance(axes, int) else list(axes)
    return [axis % rank for axis in listed] if rank else []


def _reduced(context: Context, op_type: str, value: ir.Value, axes: Axes, keep: bool) -> ir.Value:
    """Reduce a value in the type of the result."""
    build, dtype = context.build, context.result.dtype
    if op_type == "ReduceMean" and not count(value):
        # ONNX does not say what the mean of nothing is.
        return build.full(context.result.shape, math.nan, dtype)
    operand = build.cast(value, wider(dtype, op_type))
    return build.cast(build.reduce(op_type, operand, _chosen(operand, axes), keep=keep), dtype)


def _reduction(op_type: str) -> Translation:
    def reduce_axes(
        context: Context, value: ir.Value, axes: Axes = None, keep: bool = False, *_: object
    ) -> ir.Value:
        return _reduced(context, op_type, value, axes, keep)

    return reduce_axes


def _total(op_type: str) -> Translation:
    def reduce_all(context: Context, value: ir.Value, *_: object) -> ir.Value:
        return _reduced(context, op_type, value, None, False)

    return reduce_all


for _name, _op_type in (("sum", "ReduceSum"), ("mean", "ReduceMean"), ("prod", "ReduceProd")):
    translates(f"{_name}.default")(_total(_op_type))
    translates(_name)(_reduction(_op_type))
translates("logsumexp", "special_logsumexp")(_reduction("ReduceLogSumExp"))


def _extremum(
    build: GraphBuilder, op_type: str, value: ir.Value, axes: Axes, keep: bool
) -> ir.Value:
    dtype = element(value)
    operand = build.cast(value, wider(dtype, op_type))
    return build.cast(build.reduce(op_type, operand, _chosen(operand, axes), keep=keep), dtype)


@translates("amax")
def amax(context: Context, value: ir.Value, axes: Axes = (), keep: bool = False) -> ir.Value:
    """Write the largest elements."""
    return _extremum(context.build, "ReduceMax", value, axes, keep)


@translates("amin")
def amin(context: Context, value: ir.Value, axes: Axes = (), keep: bool = False) -> ir.Value:
    """Write the smallest elements."""
    return _extremum(context.build, "ReduceMin", value, axes, keep)


@translates("max.default", "max")
def maximum(context: Context, value: ir.Value) -> ir.Value:
    """Write the largest element."""
    return _extremum(context.build, "ReduceMax", value, None, False)


@translates("min.default", "min")
def minimum(context: Context, value: ir.Value) -> ir.Value:
    """Write the smallest element."""
    return _extremum(context.build, "ReduceMin", value, None, False)


@translates("aminmax")
def aminmax(
    context: Context, value: ir.Value, axis: int | None = None, keep: bool = False
) -> Result:
    """Write the smallest and the largest elements."""
    low = _extremum(context.build, "ReduceMin", value, axis, keep)
    return [low, _extremum(context.build, "ReduceMax", value, axis, keep)]


@translates("max.dim")
def max_along(context: Context, value: ir.Value, axis: int, keep: bool = False) -> Result:
    """Write the largest elements along an axis, and where they are."""
    maxima = _extremum(context.build, "ReduceMax", value, axis, keep)
    return [maxima, _place(context.build, "ArgMax", value, axis, keep)]


@translates("min.dim")
def min_along(context: Context, value: ir.Value, axis: int, keep: bool = False) -> Result:
    """Write the smallest elements along an axis, and where they are."""
    minima = _extremum(context.build, "ReduceMin", value, axis, keep)
    return [minima, _place(context.build, "ArgMin", value, axis, keep)]


@translates("argmax")
def argmax(
    context: Context, value: ir.Value, axis: int | None = None, keep: bool = False
) -> ir.Value:
    """Write where the largest elements are."""
    return _anywhere(context, "ArgMax", value, axis, keep)


@translates("argmin")
def argmin(
    context: Context, value: ir.Value, axis: int | None = None, keep: bool = False
) -> ir.Value:
    """Write where the smallest elements are."""
    return _anywhere(context, "ArgMin", value, axis, keep)


def _anywhere(
    context: Context, op_type: str, value: ir.Value, axis: int | None, keep: bool
) -> ir.Value:
    build = context.build
    if axis is not None:
        return _place(build, op_type, value, axis, keep)
    flat = build.reshape(value, [math.prod(sizes(value))])
    return build.reshape(_place(build, op_type, flat, 0, False), context.result.shape)


def _place(build: GraphBuilder, op_type: str, value: ir.Value, axis: int, keep: bool) -> ir.Value:
    shape = list(sizes(value))
    if not shape:
        return build.constant(0, _INT64)
    axis %= len(shape)
    left = [*shape[:axis], *[1] * keep, *shape[axis + 1 :]]
    operand = build.cast(value, wider(element(value), op_type))
    return build.emit(op_type, [operand], _INT64, left, axis=axis, keepdims=int(keep))


def _truth(op_type: str) -> Translation:
    def reduce_truth(
        context: Context, value: ir.Value, axes: Axes = None, keep: bool = False
    ) -> ir.Value:
        build = context.build
        truths = build.cast(build.cast(value, _BOOL), ir.DataType.INT32)
        all_axes = not isinstance(axes, list | tuple) or bool(axes)
        chosen = _chosen(truths, axes, none_is_all=all_axes)
        answer = build.reduce(op_type, truths, chosen, keep=keep)
        return build.cast(build.cast(answer, _BOOL), context.result.dtype)

    return reduce_truth


translates("any")(_truth("ReduceMax"))
translates("all")(_truth("ReduceMin"))


@translates("count_nonzero")
def count_nonzero(context: Context, value: ir.Value, axes: Axes = None) -> ir.Value:
    """Write how many elements are not zero."""
    build = context.build
    truths = build.cast(build.cast(value, _BOOL), _INT64)
    return build.reduce("ReduceSum", truths, _chosen(truths, axes))


def variance(
    build: GraphBuilder, value: ir.Value, axes: Axes, correction: Scalar, keep: bool
) -> tuple[ir.Value, ir.Value]:
    """Return variance and mean over axes.

    Args:
        build: The graph.
        value: Any floating-point value.
        axes: All if there are none.
        correction: What the number of elements is lessened by.
        keep: Whether reduced axes stay, with size one.
    """
    chosen = _chosen(value, axes)
    number = math.prod(sizes(value)[axis] for axis in chosen)
    if not count(value):
        shape = sizes(build.reduce("ReduceSum", value, chosen, keep=keep))
        return (build.full(shape, math.nan, element(value)),) * 2
    mean = build.reduce("ReduceMean", value, chosen, keep=True)
    centred = build.subtract(value, mean)
    total = build.reduce("ReduceSum", build.multiply(centred, centred), chosen, keep=keep)
    left = max(number - correction, 0)
    divided = build.divide(total, float(left))
    return divided, mean if keep else build.reshape(mean, sizes(divided))


def _variance_options(options: Sequence[object], overload: str) -> tuple[Axes, Scalar, bool]:
    """Return axes, correction and whether axes stay, which overloads order differently."""
    if overload == "default":
        return None, int(bool(options[0])) if options else 1, False
    axes, second, keep = (*options, None, None, False)[:3] if len(options) < 3 else options[:3]
    if overload == "dim":
        return axes, int(bool(second)), bool(keep)  # type: ignore[return-value]
    return axes, 1 if second is None else second, bool(keep)  # type: ignore[return-value]


def _spread(root: bool, with_mean: bool) -> Translation:
    def spread(context: Context, value: ir.Value, *options: object) -> Result:
        build = context.build
        overload = context.operator.rpartition(".")[2]
        axes, correction, keep = _variance_options(options, overload)
        dispersion, mean = variance(build, value, axes, correction, keep)
        dispersion = build.unary("Sqrt", dispersion) if root else dispersion
        return [dispersion, mean] if with_mean else dispersion

    return spread


translates("var")(_spread(False, False))
translates("std")(_spread(True, False))
translates("var_mean")(_spread(False, True))
translates("std_mean")(_spread(True, True))


def _norm(context: Context, value: ir.Value, order: float, axes: Axes, keep: bool) -> ir.Value:
    build = context.build
    operand = build.cast(value, context.result.dtype)
    chosen = _chosen(operand, axes)
    if not chosen:
        size = build.unary("Abs", operand)
        return size if order else build.cast(build.cast(size, _BOOL), element(operand))
    if order in (1, 2):
        return build.reduce(f"ReduceL{int(order)}", operand, chosen, keep=keep)
    if order == 0:
        operand = build.cast(build.cast(operand, _BOOL), element(operand))
        return build.reduce("ReduceSum", operand, chosen, keep=keep)
    size = build.unary("Abs", operand)
    if math.isinf(order):
        return build.reduce("ReduceMax" if order > 0 else "ReduceMin", size, chosen, keep=keep)
    powers = build.binary("Pow", size, float(order))
    return build.binary("Pow", build.reduce("ReduceSum", powers, chosen, keep=keep), 1 / order)


@translates("linalg_vector_norm")
def vector_norm(
    context: Context,
    value: ir.Value,
    order: float = 2,
    axes: Axes = None,
    keep: bool = False,
    *_: object,
) -> ir.Value:
    """Write the norm of vectors."""
    return _norm(context, value, order, axes, keep)


@translates("norm.Scalar", "norm.ScalarOpt_dtype")
def norm(context: Context, value: ir.Value, order: float | None = 2, *_: object) -> ir.Value:
    """Write the norm of all elements."""
    return _norm(context, value, 2 if order is None else order, None, False)


@translates("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")
def norm_along(
    context: Context,
    value: ir.Value,
    order: float | None,
    axes: Axes,
    keep: bool = False,
    *_: object,
) -> ir.Value:
    """Write the norm over axes."""
    return _norm(context, value, 2 if order is None else order, axes, keep)


@translates("nansum")
def nansum(
    context: Context, value: ir.Value, axes: Axes = None, keep: bool = False, *_: object
) -> ir.Value:
    """Write the sum of what is a number."""
    build = context.build
    if is_floating(value):
        unknown = build.emit("IsNaN", [value], _BOOL, sizes(value))
        value = build.where(unknown, 0.0, value)
    return _reduced(context, "ReduceSum", value, axes, keep)
