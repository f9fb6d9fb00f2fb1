"""Distances between the rows of matrices."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes

_MANY = 25
"""Rows above which torch prefers a matrix product to differences."""


def norm(build: GraphBuilder, value: ir.Value, p: float) -> ir.Value:
    """Return the p-norm along the last axis."""
    if p == 0:
        different = build.logical_not(build.compare("Equal", value, 0))
        return build.reduce("ReduceSum", build.cast(different, element(value)), [-1])
    if p == 1:
        return build.reduce("ReduceL1", value, [-1])
    if p == 2:
        return build.reduce("ReduceL2", value, [-1])
    size = build.unary("Abs", value)
    if math.isinf(p):
        return build.reduce("ReduceMax", size, [-1])
    total = build.reduce("ReduceSum", build.binary("Pow", size, p), [-1])
    return build.binary("Pow", total, 1 / p)


def _euclidean(build: GraphBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    """Return distances by a matrix product, so that no difference is kept."""
    ones, others = (
        build.reduce("ReduceSumSquare", value, [-1], keep=True) for value in (left, right)
    )
    last = len(sizes(right)) - 1
    order = [*range(last - 1), last, last - 1]
    products = build.matmul(build.multiply(left, -2.0), build.transpose(right, order))
    squares = build.add(build.add(products, ones), build.transpose(others, order))
    return build.unary("Sqrt", build.binary("Max", squares, 0.0))


@translates("cdist", "_cdist_forward")
def cdist(
    context: Context, left: ir.Value, right: ir.Value, p: float = 2.0, mode: int | None = None
) -> ir.Value:
    """Return the distance of every row to every other one."""
    build, shape = context.build, context.result.shape
    if 0 in shape or sizes(left)[-1] == 0:
        return build.full(shape, 0, context.result.dtype)
    many = sizes(left)[-2] > _MANY or sizes(right)[-2] > _MANY
    if p == 2 and (mode == 1 or (many and mode != 2)):
        return _euclidean(build, left, right)
    one, other = sizes(left), sizes(right)
    tall = build.reshape(left, [*one[:-1], 1, one[-1]])
    wide = build.reshape(right, [*other[:-2], 1, *other[-2:]])
    return norm(build, build.subtract(tall, wide), p)


@translates("_euclidean_dist")
def euclidean_distance(context: Context, left: ir.Value, right: ir.Value) -> ir.Value:
    """Return Euclidean distances, by a matrix product."""
    return _euclidean(context.build, left, right)


@translates("_pdist_forward", "pdist")
def pdist(context: Context, value: ir.Value, p: float = 2.0) -> ir.Value:
    """Return the distance of every row to every later one."""
    build, shape = context.build, context.result.shape
    if 0 in shape or sizes(value)[-1] == 0:
        return build.full(shape, 0, context.result.dtype)
    first, second = np.triu_indices(sizes(value)[0], 1)
    one, other = (
        build.gather(value, build.integers(places.tolist()), 0) for places in (first, second)
    )
    return norm(build, build.subtract(one, other), p)
