"""ATen operators that order elements, or look up where they belong."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.export.operators.indexing import flat, gather_elements, with_axis
from samba_onnx.export.operators.registry import Context, Result, translates
from samba_onnx.export.translation.builder import (
    GraphBuilder,
    Scalar,
    count,
    element,
    is_floating,
    sizes,
)

INT64 = ir.DataType.INT64


def ordered(
    build: GraphBuilder, value: ir.Value, axis: int, length: int, *, largest: bool
) -> tuple[ir.Value, ir.Value]:
    """Return the first elements of an order and where they were; equal ones stay in order.

    Args:
        build: The graph.
        value: A value of any type, with at least one axis.
        axis: The axis to order along; a negative one counts from the end.
        length: How many elements to return.
        largest: Whether the largest element is first.
    """
    shape = list(sizes(value))
    axis %= len(shape)
    shape[axis] = length
    if 0 in shape:
        return build.full(shape, 0, element(value)), build.full(shape, 0, INT64)
    plain = _sortable(build, value)
    values, places = build.emit_several(
        "TopK",
        [plain, build.integers([length])],
        [(element(plain), shape), (INT64, shape)],
        axis=axis,
        largest=None if largest else 0,
    )
    return build.cast(values, element(value)), places


def _sortable(build: GraphBuilder, value: ir.Value) -> ir.Value:
    return build.cast(value, ir.DataType.INT32) if element(value) == ir.DataType.BOOL else value


def _shaped(context: Context, *values: ir.Value) -> list[ir.Value | None]:
    """Return values in the shapes that torch states."""
    results = zip(values, context.results, strict=True)
    return [r and context.build.reshape(value, r.shape) for value, r in results]


@translates("sort")
def sort(context: Context, value: ir.Value, *arguments: bool | int | None) -> Result:
    """Order along an axis; every sort here is stable."""
    # sort.stable has its flag in front.
    dim, descending = arguments[-2:]
    data = with_axis(context.build, value)
    axis = int(dim or 0) % len(sizes(data))
    length = sizes(data)[axis]
    ranking = ordered(context.build, data, axis, length, largest=bool(descending))
    return _shaped(context, *ranking)


@translates("argsort")
def argsort(context: Context, value: ir.Value, *arguments: bool | int | None) -> Result:
    """Return where the elements of an ordered axis were."""
    dim, descending = arguments[-2:]
    data = with_axis(context.build, value)
    axis = int(dim or 0) % len(sizes(data))
    places = ordered(context.build, data, axis, sizes(data)[axis], largest=bool(descending))[1]
    return context.build.reshape(places, context.result.shape)


@translates("topk")
def topk(
    context: Context,
    value: ir.Value,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> Result:
    """Return the first elements of an order."""
    data = with_axis(context.build, value)
    return _shaped(context, *ordered(context.build, data, dim, k, largest=largest))


@translates("kthvalue")
def kthvalue(
    context: Context, value: ir.Value, k: int, dim: int = -1, keepdim: bool = False
) -> Result:
    """Return the k-th smallest element along an axis."""
    build, data = context.build, with_axis(context.build, value)
    if 0 in sizes(data):
        return [r and build.full(r.shape, 0, r.dtype) for r in context.results]
    ranking = ordered(build, data, dim, k, largest=False)
    return _shaped(context, *(build.slice(part, dim, k - 1, k) for part in ranking))


@translates("median.dim")
def median_along(context: Context, value: ir.Value, dim: int, keepdim: bool = False) -> Result:
    """Return the middle element along an axis, the lower of two; the first that is no number."""
    build, data = context.build, with_axis(context.build, value)
    if 0 in sizes(data):
        return [r and build.full(r.shape, 0, r.dtype) for r in context.results]
    half = (sizes(data)[dim] + 1) // 2
    ranking = ordered(build, data, dim, half, largest=False)
    middle, place = (build.slice(part, dim, half - 1, half) for part in ranking)
    if is_floating(data):
        strange = build.cast(build.emit("IsNaN", [data], ir.DataType.BOOL, sizes(data)), INT64)
        worst = build.reduce("ReduceMax", strange, [dim], keep=True)
        has_nan = build.cast(worst, ir.DataType.BOOL)
        first = _arg_max(build, strange, dim)
        middle = build.where(has_nan, float("nan"), middle)
        place = build.where(has_nan, first, place)
    return _shaped(context, middle, place)


@translates("median")
def median(context: Context, value: ir.Value) -> Result:
    """Return the middle element, the lower of two."""
    build, data = context.build, flat(context.build, value)
    if count(data) == 0:
        return build.full([], float("nan"), context.result.dtype)
    inner = Context(build, (context.result, None), context.operator)
    results = median_along(inner, data, 0)
    assert isinstance(results, list)
    return results[0]


@translates("nanmedian.dim")
def nanmedian_along(context: Context, value: ir.Value, dim: int, keepdim: bool = False) -> Result:
    """Return the middle one of the numbers along an axis, the lower of two."""
    build, data = context.build, with_axis(context.build, value)
    if 0 in sizes(data) or not is_floating(data):
        return median_along(context, value, dim, keepdim)
    strange = build.emit("IsNaN", [data], ir.DataType.BOOL, sizes(data))
    numbers = build.where(strange, float("inf"), data)
    places = ordered(build, numbers, dim, sizes(data)[dim], largest=False)[1]
    known = build.reduce(
        "ReduceSum", build.cast(build.logical_not(strange), INT64), [dim], keep=True
    )
    half = build.divide(build.binary("Max", build.subtract(known, 1), 0), 2)
    place = gather_elements(build, places, half, dim % len(sizes(data)))
    return _shaped(context, gather_elements(build, data, place, dim % len(sizes(data))), place)


@translates("nanmedian")
def nanmedian(context: Context, value: ir.Value) -> Result:
    """Return the middle one of the numbers, the lower of two."""
    build, data = context.build, flat(context.build, value)
    if count(data) == 0:
        return build.full([], float("nan"), context.result.dtype)
    inner = Context(build, (context.result, None), context.operator)
    results = nanmedian_along(inner, data, 0)
    assert isinstance(results, list)
    return results[0]


@translates("mode")
def mode(context: Context, value: ir.Value, dim: int = -1, keepdim: bool = False) -> Result:
    """Return the element that is there most often along an axis, the least of several."""
    build, data = context.build, with_axis(context.build, value)
    if 0 in sizes(data):
        return [r and build.full(r.shape, 0, r.dtype) for r in context.results]
    axis, length = dim % len(sizes(data)), sizes(data)[dim]
    values, places = ordered(build, data, axis, length, largest=False)
    last = _move_last(build, values, axis)
    shape = sizes(last)
    equal = build.compare(
        "Equal", build.reshape(last, [*shape, 1]), build.reshape(last, [*shape[:-1], 1, length])
    )
    counts = build.reduce("ReduceSum", build.cast(equal, INT64), [-1])
    first = _arg_max(build, counts, -1)
    # The last one of a run of equal elements.
    often = build.reduce("ReduceMax", counts, [-1], keep=True)
    at = build.subtract(build.add(first, often), 1)
    chosen = [
        gather_elements(build, v, at, len(shape) - 1)
        for v in (last, _move_last(build, places, axis))
    ]
    return _shaped(context, *chosen)


@translates("searchsorted")
def searchsorted(
    context: Context,
    sequence: ir.Value,
    value: ir.Value | Scalar,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: ir.Value | None = None,
) -> ir.Value:
    """Return where values belong in ordered sequences."""
    build = context.build
    if sorter is not None:
        sequence = gather_elements(build, sequence, sorter, len(sizes(sequence)) - 1)
    return _positions(context, sequence, value, right or side == "right")


@translates("bucketize")
def bucketize(
    context: Context,
    value: ir.Value | Scalar,
    boundaries: ir.Value,
    out_int32: bool = False,
    right: bool = False,
) -> ir.Value:
    """Return between which boundaries values lie."""
    return _positions(context, boundaries, value, right)


def _positions(
    context: Context, sequence: ir.Value, value: ir.Value | Scalar, right: bool
) -> ir.Value:
    """Count the elements of a sequence that lie before a value: all of them if it is no number."""
    build, outcome = context.build, context.result
    if isinstance(value, ir.Value):
        dtype = _common(sequence, value)
        keys = build.cast(value, dtype)
    else:
        dtype = ir.DataType.FLOAT if isinstance(value, float) else element(sequence)
        dtype = element(sequence) if is_floating(sequence) else dtype
        keys = build.constant(value, dtype)
    known = build.cast(sequence, dtype)
    length = sizes(known)[-1]
    if 0 in outcome.shape or length == 0:
        return build.full(outcome.shape, 0, outcome.dtype)
    if len(sizes(known)) > 1:
        known = build.reshape(known, [*sizes(known)[:-1], 1, length])
    keys = build.reshape(keys, [*outcome.shape, 1])
    behind = build.compare("Greater" if right else "GreaterOrEqual", known, keys)
    before = build.cast(build.logical_not(behind), outcome.dtype)
    return build.reshape(build.reduce("ReduceSum", before, [-1]), outcome.shape)


def _common(left: ir.Value, right: ir.Value) -> ir.DataType:
    """Return a type in which two values can be compared."""
    if element(left) == element(right):
        return element(left) if element(left) != ir.DataType.BOOL else ir.DataType.INT32
    return next((element(v) for v in (left, right) if is_floating(v)), INT64)


def _arg_max(build: GraphBuilder, value: ir.Value, dim: int) -> ir.Value:
    """Return the place of the first largest element, the axis staying with size one."""
    shape = list(sizes(value))
    axis = dim % len(shape)
    shape[axis] = 1
    plain = build.cast(value, ir.DataType.FLOAT) if element(value) == INT64 else value
    return build.emit("ArgMax", [plain], INT64, shape, axis=axis)


def _move_last(build: GraphBuilder, value: ir.Value, axis: int) -> ir.Value:
    rest = [i for i in range(len(sizes(value))) if i != axis]
    return build.transpose(value, [*rest, axis])
