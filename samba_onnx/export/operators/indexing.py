"""ATen operators that read elements by index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, broadcast, count, element, sizes

Indices = Sequence[ir.Value | None]


def with_axis(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return a value with at least one axis: torch indexes a number as a list of one."""
    return value if sizes(value) else build.reshape(value, [1])


def flat(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return a value with exactly one axis."""
    return build.reshape(value, [count(value)])


def is_mask(value: ir.Value | None) -> bool:
    """Return whether an index is a mask; torch still takes uint8 for one."""
    return value is not None and element(value) in (ir.DataType.BOOL, ir.DataType.UINT8)


@dataclass(frozen=True)
class Advanced:
    """Several index tensors that are read together, as torch and numpy do."""

    axes: tuple[int, ...]
    """The axes that are indexed."""
    rest: tuple[int, ...]
    """The axes that are not."""
    shape: tuple[int, ...]
    """What the index tensors are broadcast to."""
    tuples: ir.Value
    """int64, (*shape, number of axes)."""

    @property
    def first(self) -> int:
        """Position of the broadcast axes in the result: in place if the axes are neighbours."""
        adjacent = self.axes == tuple(range(self.axes[0], self.axes[0] + len(self.axes)))
        return self.axes[0] if adjacent else 0

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of the data, those that are indexed in front."""
        return self.axes + self.rest

    @property
    def placement(self) -> list[int]:
        """The axes of (broadcast axes, rest) in the order of the result."""
        width, first = len(self.shape), self.first
        rest = [width + i for i in range(len(self.rest))]
        return [*rest[:first], *range(width), *rest[first:]]


def advanced(build: GraphBuilder, rank: int, indices: Indices, operator: str) -> Advanced:
    """Prepare index tensors for GatherND and ScatterND.

    Args:
        build: The graph.
        rank: Number of axes of the value that is indexed.
        indices: As torch has them: one per leading axis, None for a whole axis.
        operator: Who asks, for the error.

    Raises:
        ModelError: There is a boolean mask, whose number of elements only the data tell.
    """
    padded = [*indices, *[None] * (rank - len(indices))]
    if any(is_mask(index) for index in padded):
        raise ModelError(
            f"{operator} selects with a boolean mask, so that its shape depends on the data: "
            "use torch.where or masked_fill, which keep the shape"
        )
    pairs = [(axis, index) for axis, index in enumerate(padded) if index is not None]
    shape = broadcast(*(sizes(index) for _, index in pairs))
    columns = [
        build.reshape(build.expand(build.cast(index, ir.DataType.INT64), shape), [*shape, 1])
        for _, index in pairs
    ]
    axes = tuple(axis for axis, _ in pairs)
    rest = tuple(axis for axis in range(rank) if axis not in axes)
    return Advanced(axes, rest, shape, build.concat(columns, len(shape)))


def gather_nd(
    build: GraphBuilder, value: ir.Value, tuples: ir.Value, shape: Sequence[int]
) -> ir.Value:
    """Return the slices that tuples of leading indices name."""
    return build.emit("GatherND", [value, tuples], element(value), shape)


def gather_elements(build: GraphBuilder, value: ir.Value, places: ir.Value, axis: int) -> ir.Value:
    """Return ``value`` at the places along an axis, everything else staying in place."""
    return build.emit("GatherElements", [value, places], element(value), sizes(places), axis=axis)


@translates("gather")
def gather(
    context: Context, value: ir.Value, dim: int, index: ir.Value, sparse_grad: bool = False
) -> ir.Value:
    """Read one element per index."""
    build, outcome = context.build, context.result
    if 0 in outcome.shape:
        return build.full(outcome.shape, 0, outcome.dtype)
    data, places = with_axis(build, value), with_axis(build, index)
    axis = dim % len(sizes(data))
    return build.reshape(gather_elements(build, data, places, axis), outcome.shape)


@translates("index", "_unsafe_index")
def index(context: Context, value: ir.Value, indices: Indices) -> ir.Value:
    """Read with one or several index tensors that are broadcast against each other."""
    build, outcome = context.build, context.result
    if 0 in outcome.shape:
        return build.full(outcome.shape, 0, outcome.dtype)
    if all(one is None for one in indices):
        return value
    pairs = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    if len(pairs) == 1 and not is_mask(pairs[0][1]):
        axis, places = pairs[0]
        return build.gather(value, _long(build, places), axis)
    plan = advanced(build, len(sizes(value)), indices, context.operator)
    data = build.transpose(value, plan.order)
    shape = [*plan.shape, *(sizes(value)[axis] for axis in plan.rest)]
    return build.transpose(gather_nd(build, data, plan.tuples, shape), plan.placement)


@translates("index_select")
def index_select(context: Context, value: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    """Read whole slices along an axis."""
    build, outcome = context.build, context.result
    if 0 in outcome.shape:
        return build.full(outcome.shape, 0, outcome.dtype)
    data, places = with_axis(build, value), with_axis(build, index)
    return build.reshape(build.gather(data, _long(build, places), dim), outcome.shape)


@translates("take")
def take(context: Context, value: ir.Value, index: ir.Value) -> ir.Value:
    """Read from a tensor as if it were flat."""
    if 0 in context.result.shape:
        return context.build.full(context.result.shape, 0, element(value))
    return context.build.gather(flat(context.build, value), _long(context.build, index), 0)


@translates("masked_fill")
def masked_fill(
    context: Context, value: ir.Value, mask: ir.Value, content: ir.Value | float
) -> ir.Value:
    """Put a number where a mask is true."""
    build, outcome = context.build, context.result
    number = build.value(content, outcome.dtype)
    chosen = build.where(build.cast(mask, ir.DataType.BOOL), number, value)
    return build.expand(chosen, outcome.shape)


def ranks_in_mask(build: GraphBuilder, mask: ir.Value) -> ir.Value:
    """Return how many true elements of a flat mask lie before each place; int64."""
    ones = build.cast(mask, ir.DataType.INT64)
    total = build.emit("CumSum", [ones, build.constant(0, ir.DataType.INT64)], *_like(ones))
    return build.subtract(total, ones)


@translates("masked_scatter")
def masked_scatter(context: Context, value: ir.Value, mask: ir.Value, source: ir.Value) -> ir.Value:
    """Put the elements of a source, one after the other, where a mask is true."""
    build, shape = context.build, context.result.shape
    if count(source) == 0 or 0 in shape:
        return build.expand(value, shape)
    chosen = flat(build, build.expand(build.cast(mask, ir.DataType.BOOL), shape))
    # Places behind the last true element may count further than the source reaches.
    order = build.binary("Min", ranks_in_mask(build, chosen), count(source) - 1)
    taken = build.gather(flat(build, source), order, 0)
    old = flat(build, build.expand(value, shape))
    return build.reshape(build.where(chosen, taken, old), shape)


@translates("flip")
def flip(context: Context, value: ir.Value, dims: Sequence[int]) -> ir.Value:
    """Turn axes round."""
    build, shape = context.build, sizes(value)
    axes = sorted({dim % len(shape) for dim in dims}) if shape else []
    if not axes or 0 in shape:
        return value
    starts = [shape[axis] - 1 for axis in axes]
    ends = [-shape[axis] - 1 for axis in axes]
    bounds = [build.integers(part) for part in (starts, ends, axes, [-1] * len(axes))]
    return build.emit("Slice", [value, *bounds], element(value), shape)


@translates("trace")
def trace(context: Context, value: ir.Value) -> ir.Value:
    """Sum the diagonal of a matrix."""
    build, outcome = context.build, context.result
    rows, columns = sizes(value)
    eye = build.constant(np.eye(rows, columns, dtype=bool), ir.DataType.BOOL)
    wide = build.cast(value, outcome.dtype)
    return build.reduce("ReduceSum", build.where(eye, wide, 0))


def _long(build: GraphBuilder, indices: ir.Value) -> ir.Value:
    """Return indices in a type that Gather reads."""
    known = (ir.DataType.INT32, ir.DataType.INT64)
    return indices if element(indices) in known else build.cast(indices, ir.DataType.INT64)


def _like(value: ir.Value) -> tuple[ir.DataType, tuple[int, ...]]:
    return element(value), sizes(value)
