"""ATen operators that count elements by value, or reduce neighbouring ones."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.export.operators.indexing import flat
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, count, element, sizes


@translates("histc")
def histc(
    context: Context, value: ir.Value, bins: int = 100, min: float = 0, max: float = 0
) -> ir.Value:
    """Count elements in bins of one width; without bounds, between the least and largest."""
    build, dtype = context.build, context.result.dtype
    if count(value) == 0:
        return build.full([bins], 0, dtype)
    data = build.cast(flat(build, value), dtype)
    low, high = build.constant(float(min), dtype), build.constant(float(max), dtype)
    if min == max:
        low, high = build.reduce("ReduceMin", data), build.reduce("ReduceMax", data)
        flat_range = build.compare("Equal", low, high)
        widening = build.cast(flat_range, dtype)
        low, high = build.subtract(low, widening), build.add(high, widening)
    return _counted(build, data, low, high, bins)


def _counted(
    build: GraphBuilder, data: ir.Value, low: ir.Value, high: ir.Value, bins: int
) -> ir.Value:
    """Return how many elements each bin has; the last one includes its upper bound."""
    dtype = element(data)
    share = build.divide(build.subtract(data, low), build.subtract(high, low))
    place = build.unary("Floor", build.multiply(share, float(bins)))
    last = build.compare("Equal", data, high)
    place = build.reshape(build.where(last, float(bins - 1), place), [count(data), 1])
    numbers = build.constant(np.arange(bins), dtype)
    return build.reduce("ReduceSum", build.cast(build.compare("Equal", place, numbers), dtype), [0])


@translates("segment_reduce")
def segment_reduce(
    context: Context,
    value: ir.Value,
    reduce: str,
    lengths: ir.Value | None = None,
    indices: ir.Value | None = None,
    offsets: ir.Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> ir.Value:
    """Reduce the elements of each segment of an axis."""
    build, outcome = context.build, context.result
    lead, length = sizes(value)[:axis], sizes(value)[axis]
    rest = sizes(value)[axis + 1 :]
    starts, ends = _bounds(build, lengths, offsets, axis)
    number = sizes(starts)[-1]
    positions = build.constant(np.arange(length), ir.DataType.INT64)
    after, before = (build.reshape(v, [*lead, number, 1]) for v in (starts, ends))
    inside = build.binary(
        "And",
        build.compare("GreaterOrEqual", positions, after),
        build.compare("Less", positions, before),
        ir.DataType.BOOL,
    )
    inside = build.reshape(inside, [*lead, number, length, *[1] * len(rest)])
    neutral = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}[reduce]
    spread = build.where(inside, build.reshape(value, [*lead, 1, length, *rest]), float(neutral))
    kind = "Sum" if reduce == "mean" else reduce.capitalize()
    reductions = build.reduce(f"Reduce{kind}", spread, [axis + 1])
    return build.reshape(_finished(build, reductions, inside, axis, reduce, initial), outcome.shape)


def _bounds(
    build: GraphBuilder, lengths: ir.Value | None, offsets: ir.Value | None, axis: int
) -> tuple[ir.Value, ir.Value]:
    """Return where segments begin and end."""
    if offsets is not None:
        plain = build.cast(offsets, ir.DataType.INT64)
        number = sizes(plain)[-1]
        return build.slice(plain, axis, 0, number - 1), build.slice(plain, axis, 1, number)
    assert lengths is not None
    plain = build.cast(lengths, ir.DataType.INT64)
    along = build.constant(axis, ir.DataType.INT64)
    ends = build.emit("CumSum", [plain, along], ir.DataType.INT64, sizes(plain))
    return build.subtract(ends, plain), ends


def _finished(
    build: GraphBuilder,
    reductions: ir.Value,
    inside: ir.Value,
    axis: int,
    reduce: str,
    initial: float | None,
) -> ir.Value:
    """Combine reductions with the initial number, and divide sums for a mean."""
    if initial is not None:
        op_types = {"sum": "Add", "mean": "Add", "prod": "Mul", "max": "Max", "min": "Min"}
        reductions = build.binary(op_types[reduce], reductions, float(initial))
    if reduce != "mean":
        return reductions
    filled = build.reduce("ReduceSum", build.cast(inside, element(reductions)), [axis + 1])
    if initial is None:
        return build.divide(reductions, filled)
    empty = build.compare("Equal", filled, 0)
    return build.where(
        empty, reductions, build.divide(reductions, build.binary("Max", filled, 1.0))
    )
