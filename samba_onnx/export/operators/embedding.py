"""ATen operators that look up rows of a table, alone or in bags, and their gradients."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.export.operators.indexing import flat
from samba_onnx.export.operators.linear_algebra_distances import norm
from samba_onnx.export.operators.registry import Context, Result, ResultSpec, translates
from samba_onnx.export.operators.scattering import put_slices
from samba_onnx.export.translation.builder import GraphBuilder, count, element, sizes

INT64 = ir.DataType.INT64
SUM, MEAN, MAX = range(3)
"""What torch calls the modes of a bag."""


@translates("embedding")
def embedding(
    context: Context,
    weight: ir.Value,
    indices: ir.Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> ir.Value:
    """Look up rows."""
    build, outcome = context.build, context.result
    if 0 in outcome.shape:
        return build.full(outcome.shape, 0, outcome.dtype)
    return build.gather(weight, indices, 0)


@translates("embedding_renorm")
def embedding_renorm(
    context: Context, weight: ir.Value, indices: ir.Value, max_norm: float, norm_type: float
) -> ir.Value:
    """Shorten the rows that are looked up to a norm; one that is looked up twice is written twice."""
    build = context.build
    places = flat(build, indices)
    rows = build.gather(weight, places, 0)
    length = norm(build, rows, norm_type)
    # torch's own margin against rounding
    scale = build.divide(max_norm, build.add(length, 1e-7))
    scale = build.where(build.compare("Greater", length, max_norm), scale, 1)
    return put_slices(build, weight, 0, places, build.multiply(rows, _column(build, scale)))


@translates("embedding_dense_backward")
def embedding_dense_backward(
    context: Context,
    gradient: ir.Value,
    indices: ir.Value,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> ir.Value:
    """Add up the gradients of each row."""
    build = context.build
    places = build.cast(flat(build, indices), INT64)
    width = sizes(gradient)[-1]
    rows = build.reshape(gradient, [count(places), width])
    if scale_grad_by_freq:
        rows = build.divide(rows, _column(build, _frequencies(build, places, num_weights, rows)))
    rows = _without_padding(build, rows, places, padding_idx)
    return _summed(build, rows, places, num_weights)


def _column(build: GraphBuilder, value: ir.Value) -> ir.Value:
    return build.reshape(value, [*sizes(value), 1])


def _summed(build: GraphBuilder, rows: ir.Value, places: ir.Value, length: int) -> ir.Value:
    """Add rows to zeros at the given places."""
    zeros = build.full([length, *sizes(rows)[1:]], 0, element(rows))
    return put_slices(build, zeros, 0, places, rows, "add")


def _frequencies(build: GraphBuilder, places: ir.Value, length: int, like: ir.Value) -> ir.Value:
    """Return per index how often it is there."""
    ones = build.full(sizes(places), 1, element(like))
    return build.gather(_summed(build, ones, places, length), places, 0)


def _without_padding(
    build: GraphBuilder, rows: ir.Value, indices: ir.Value, padding_idx: int
) -> ir.Value:
    """Return rows, zero where the index is the one for padding."""
    if padding_idx < 0:
        return rows
    padding = build.compare("Equal", indices, padding_idx)
    return build.where(_column(build, padding), 0, rows)


@translates("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    context: Context,
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Result:
    """Reduce the rows of each bag; also which bag each row is in, sizes of bags, largest rows."""
    build = context.build
    places = build.cast(indices, INT64)
    bags = sizes(offsets)[0] - int(include_last_offset)
    member = _bags_of(build, places, build.slice(offsets, 0, 0, bags))
    rows = build.gather(weight, places, 0)
    if per_sample_weights is not None:
        rows = build.multiply(rows, _column(build, per_sample_weights))
    known = build.full(sizes(places), 1, INT64)
    if padding_idx >= 0:
        known = build.cast(build.logical_not(build.compare("Equal", places, padding_idx)), INT64)
    filled = _summed(build, known, member, bags)
    largest = None
    if mode == MAX:
        result, largest = _largest(build, rows, member, known, filled, places)
    else:
        contributions = (
            rows
            if padding_idx < 0
            else build.multiply(rows, _column(build, build.cast(known, element(rows))))
        )
        result = _summed(build, contributions, member, bags)
        if mode == MEAN:
            # An empty bag stays zero.
            sizes_ = build.binary("Max", build.cast(filled, element(rows)), 1)
            result = build.divide(result, _column(build, sizes_))
    return [
        result,
        _as_stated(build, member, context.results[1]),
        _as_stated(build, filled, context.results[2]),
        _as_stated(build, filled if largest is None else largest, context.results[3]),
    ]


def _bags_of(build: GraphBuilder, indices: ir.Value, offsets: ir.Value) -> ir.Value:
    """Return which bag each index lies in, the last that starts at or before it."""
    positions = build.constant([[i] for i in range(count(indices))], INT64)
    started = build.compare("GreaterOrEqual", positions, build.cast(offsets, INT64))
    return build.subtract(build.reduce("ReduceSum", build.cast(started, INT64), [1]), 1)


def _largest(
    build: GraphBuilder,
    rows: ir.Value,
    member: ir.Value,
    known: ir.Value,
    filled: ir.Value,
    indices: ir.Value,
) -> tuple[ir.Value, ir.Value]:
    """Return the largest elements of each bag, and in which row of the table they are."""
    length, width = sizes(rows)
    bags = sizes(filled)[0]
    low = float("-inf")
    # Padding must not be the largest, and an empty bag is recognised below.
    considered = build.where(_column(build, build.cast(known, ir.DataType.BOOL)), rows, low)
    start = build.full([bags, width], low, element(rows))
    best = put_slices(build, start, 0, member, considered, "max")
    reached = build.compare("Equal", considered, build.gather(best, member, 0))
    order = build.constant([[i] for i in range(length)], INT64)
    candidates = build.where(reached, order, length - 1)
    last = build.full([bags, width], length - 1, INT64)
    # Of equal ones the first, as in torch.
    first = put_slices(build, last, 0, member, candidates, "min")
    used = _column(build, build.compare("Greater", filled, 0))
    places = build.gather(indices, first, 0)
    return build.where(used, best, 0), build.where(used, places, 0)


def _as_stated(build: GraphBuilder, value: ir.Value, outcome: ResultSpec | None) -> ir.Value | None:
    """Return a value of the type and shape that torch states, zeros where it computes none."""
    if outcome is None:
        return None
    if sizes(value) == outcome.shape:
        return build.cast(value, outcome.dtype)
    return build.full(outcome.shape, 0, outcome.dtype)


@translates("_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    context: Context,
    gradient: ir.Value,
    indices: ir.Value,
    offset2bag: ir.Value,
    bag_size: ir.Value,
    maximum_indices: ir.Value,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: ir.Value | None,
    padding_idx: int = -1,
) -> ir.Value:
    """Hand the gradient of each bag to its rows."""
    build = context.build
    if mode == MAX:
        return _to_largest(build, gradient, maximum_indices, bag_size, num_weights)
    places = build.cast(indices, INT64)
    if mode == MEAN:
        # An empty bag has no rows to hand anything to.
        filled = build.binary("Max", build.cast(bag_size, element(gradient)), 1)
        gradient = build.divide(gradient, _column(build, filled))
    rows = build.gather(gradient, build.cast(offset2bag, INT64), 0)
    if per_sample_weights is not None:
        rows = build.multiply(rows, _column(build, per_sample_weights))
    if scale_grad_by_freq:
        rows = build.divide(rows, _column(build, _frequencies(build, places, num_weights, rows)))
    rows = _without_padding(build, rows, places, padding_idx)
    return _summed(build, rows, places, num_weights)


def _to_largest(
    build: GraphBuilder,
    gradient: ir.Value,
    maximum_indices: ir.Value,
    bag_size: ir.Value,
    num_weights: int,
) -> ir.Value:
    """Hand the gradient of each element of a bag to the row that it was taken from."""
    places = build.cast(maximum_indices, INT64)
    # An empty bag took nothing from any row.
    rows = build.where(_column(build, build.compare("Equal", bag_size, 0)), 0, gradient)
    zeros = build.full([num_weights, sizes(gradient)[1]], 0, element(gradient))
    return build.emit(
        "ScatterElements",
        [zeros, places, rows],
        element(zeros),
        sizes(zeros),
        axis=0,
        reduction="add",
    )


@translates("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    context: Context,
    gradient: ir.Value,
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    offset2bag: ir.Value,
    mode: int,
    padding_idx: int = -1,
) -> ir.Value:
    """Return the product of each row with the gradient of its bag."""
    build = context.build
    places = build.cast(indices, INT64)
    rows = build.gather(weight, places, 0)
    products = build.multiply(rows, build.gather(gradient, build.cast(offset2bag, INT64), 0))
    total = build.reduce("ReduceSum", products, [1])
    if padding_idx < 0:
        return total
    return build.where(build.compare("Equal", places, padding_idx), 0, total)


@translates("one_hot")
def one_hot(context: Context, value: ir.Value, num_classes: int = -1) -> ir.Value:
    """Return a one at each index, among zeros."""
    build, outcome = context.build, context.result
    classes = build.integers(range(outcome.shape[-1]))
    return build.cast(
        build.compare("Equal", _column(build, build.cast(value, INT64)), classes), INT64
    )
