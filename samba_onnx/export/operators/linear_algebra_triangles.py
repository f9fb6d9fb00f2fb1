"""Triangular systems, Cholesky's and Householder's factors, unrolled; exponentials of matrices."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from samba_onnx.export.operators.linear_algebra import check_size, entry, swapped, turned
from samba_onnx.export.operators.registry import Context, Result, translates
from samba_onnx.export.translation.builder import GraphBuilder, broadcast, element, sizes


def _reversed(build: GraphBuilder, value: ir.Value, *axes: int) -> ir.Value:
    rank = len(sizes(value))
    for axis in axes:
        size = sizes(value)[axis]
        order = build.integers(range(size - 1, -1, -1))
        value = build.gather(value, order, axis % rank)
    return value


def solved_triangle(
    build: GraphBuilder, value: ir.Value, right: ir.Value, *, upper: bool, ones: bool = False
) -> ir.Value:
    """Return ``X`` of ``value @ X = right``, row by row.

    Args:
        build: The graph.
        value: Matrices of shape (..., n, n), of which only one triangle is read.
        right: Right-hand sides of shape (..., n, k).
        upper: Whether the upper triangle is read, rather than the lower one.
        ones: Whether the diagonal is taken for ones.
    """
    if upper:
        flipped = _reversed(build, value, -2, -1)
        solution = solved_triangle(
            build, flipped, _reversed(build, right, -2), upper=False, ones=ones
        )
        return _reversed(build, solution, -2)
    size = sizes(value)[-1]
    batch = broadcast(sizes(value)[:-2], sizes(right)[:-2])
    done: ir.Value | None = None
    for row in range(size):
        rest = build.slice(right, -2, row, row + 1)
        if done is not None:
            factors = build.slice(build.slice(value, -2, row, row + 1), -1, 0, row)
            rest = build.subtract(rest, build.matmul(factors, done))
        if not ones:
            rest = build.divide(rest, entry(build, value, row, row))
        rest = build.expand(rest, [*batch, 1, sizes(right)[-1]])
        done = rest if done is None else build.concat([done, rest], -2)
    return build.expand(right, [*batch, *sizes(right)[-2:]]) if done is None else done


@translates("linalg_solve_triangular")
def solve_triangular(
    context: Context,
    value: ir.Value,
    right: ir.Value,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> ir.Value:
    """Solve triangular systems of equations."""
    build, shape = context.build, context.result.shape
    if 0 in shape:
        return build.full(shape, 0, element(right))
    check_size(context, value)
    if left:
        return solved_triangle(build, value, right, upper=upper, ones=unitriangular)
    one, other = turned(build, value), turned(build, right)
    solution = solved_triangle(build, one, other, upper=not upper, ones=unitriangular)
    return turned(build, solution)


@translates("triangular_solve")
def triangular_solve(
    context: Context,
    right: ir.Value,
    value: ir.Value,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Result:
    """Solve triangular systems of equations, as torch did earlier."""
    build, outcomes = context.build, context.results
    if any(outcome and 0 in outcome.shape for outcome in outcomes):
        return [r and build.full(r.shape, 0, r.dtype) for r in outcomes]
    check_size(context, value)
    used = turned(build, value) if transpose else value
    side = upper != transpose
    solution = solved_triangle(build, used, right, upper=side, ones=unitriangular)
    second = outcomes[1]
    return [solution, second and build.expand(value, second.shape)]


@translates("linalg_lu_solve")
def lu_solve(
    context: Context,
    packed: ir.Value,
    pivots: ir.Value,
    right: ir.Value,
    left: bool = True,
    adjoint: bool = False,
) -> ir.Value:
    """Solve systems of equations whose triangular factors are known."""
    build, shape = context.build, context.result.shape
    if 0 in shape:
        return build.full(shape, 0, element(right))
    check_size(context, packed)
    target = right if left else turned(build, right)
    if left != adjoint:
        target = _exchanged(build, target, pivots, sizes(packed))
        solution = solved_triangle(build, packed, target, upper=False, ones=True)
        solution = solved_triangle(build, packed, solution, upper=True)
    else:
        other = turned(build, packed)
        solution = solved_triangle(build, other, target, upper=False)
        solution = solved_triangle(build, other, solution, upper=True, ones=True)
        solution = _exchanged(build, solution, pivots, sizes(packed), backwards=True)
    return solution if left else turned(build, solution)


def _exchanged(
    build: GraphBuilder,
    value: ir.Value,
    pivots: ir.Value,
    shape: tuple[int, ...],
    *,
    backwards: bool = False,
) -> ir.Value:
    """Exchange rows as pivots, from one, say."""
    batch = broadcast(sizes(value)[:-2], shape[:-2])
    value = build.expand(value, [*batch, *sizes(value)[-2:]])
    places = build.subtract(build.cast(pivots, ir.DataType.INT64), 1)
    numbers = range(sizes(pivots)[-1])
    for k in reversed(numbers) if backwards else numbers:
        place = build.slice(places, -1, k, k + 1)
        value = swapped(build, value, k, build.reshape(place, [*sizes(place), 1]))
    return value


def _cholesky(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return the lower triangle whose product with itself turned is the value."""
    size = sizes(value)[-1]
    columns = []
    for k in range(size):
        root = build.unary("Sqrt", entry(build, value, 0, 0))
        column = build.divide(build.slice(value, -1, 0, 1), root)
        before = [0] * len(sizes(column))
        before[-2] = k
        columns.append(build.pad(column, before, [0] * len(before)))
        rest = build.slice(column, -2, 1, size - k)
        value = build.slice(build.slice(value, -2, 1, size - k), -1, 1, size - k)
        if k < size - 1:
            value = build.subtract(value, build.multiply(rest, turned(build, rest)))
    return build.concat(columns, -1)


def _lower_of(build: GraphBuilder, value: ir.Value, upper: bool) -> ir.Value:
    """Return the lower triangle of a symmetric matrix of which only one triangle is right."""
    return turned(build, value) if upper else value


@translates("cholesky")
def cholesky(context: Context, value: ir.Value, upper: bool = False) -> ir.Value:
    """Return Cholesky's factor."""
    if 0 in sizes(value):
        return value
    check_size(context, value)
    factor = _cholesky(context.build, _lower_of(context.build, value, upper))
    return turned(context.build, factor) if upper else factor


@translates("linalg_cholesky_ex")
def cholesky_ex(
    context: Context, value: ir.Value, upper: bool = False, check_errors: bool = False
) -> Result:
    """Return Cholesky's factor, not a number for a matrix that has none."""
    second = context.results[1]
    info = second and context.build.full(second.shape, 0, second.dtype)
    return [cholesky(context, value, upper), info]


@translates("cholesky_inverse")
def cholesky_inverse(context: Context, value: ir.Value, upper: bool = False) -> ir.Value:
    """Return the inverse of a matrix whose factor is known."""
    if 0 in sizes(value):
        return value
    check_size(context, value)
    build = context.build
    eye = build.constant(np.eye(sizes(value)[-1]), element(value))
    lower = turned(build, value) if upper else value
    half = solved_triangle(build, lower, eye, upper=False)
    return solved_triangle(build, turned(build, lower), half, upper=True)


@translates("cholesky_solve", "_cholesky_solve_helper")
def cholesky_solve(
    context: Context, right: ir.Value, value: ir.Value, upper: bool = False
) -> ir.Value:
    """Solve systems of equations whose factor is known."""
    build, shape = context.build, context.result.shape
    if 0 in shape:
        return build.full(shape, 0, element(right))
    check_size(context, value)
    lower = turned(build, value) if upper else value
    half = solved_triangle(build, lower, right, upper=False)
    return solved_triangle(build, turned(build, lower), half, upper=True)


def _reflect(build: GraphBuilder, value: ir.Value, mirror: ir.Value, factor: ir.Value) -> ir.Value:
    """Return ``value - factor * mirror @ mirror.T @ value``."""
    onto = build.matmul(turned(build, mirror), value)
    return build.subtract(value, build.multiply(build.multiply(mirror, factor), onto))


def _mirror(build: GraphBuilder, value: ir.Value, column: int) -> tuple[ir.Value, ir.Value]:
    """Return what reflects a column onto the diagonal, as LAPACK chooses it, and its factor."""
    rows = sizes(value)[-2]
    below = build.constant(np.arange(rows)[:, None] > column, ir.DataType.BOOL)
    here = build.constant(np.arange(rows)[:, None] == column, ir.DataType.BOOL)
    whole = build.slice(value, -1, column, column + 1)
    tail = build.where(below, whole, 0)
    first = entry(build, value, column, column)
    squares = build.reduce("ReduceSumSquare", tail, [-2], keep=True)
    length = build.unary("Sqrt", build.add(squares, build.multiply(first, first)))
    negative = build.compare("Less", first, 0)
    onto = build.where(negative, length, build.unary("Neg", length))
    nothing = build.compare("Equal", squares, 0)
    gap = build.where(nothing, 1, build.subtract(first, onto))
    mirror = build.where(here, 1, build.divide(tail, gap))
    factor = build.divide(build.subtract(onto, first), build.where(nothing, 1, onto))
    return mirror, build.where(nothing, 0, factor)


@translates("linalg_qr")
def qr(context: Context, value: ir.Value, mode: str = "reduced") -> Result:
    """Return an orthogonal factor and an upper triangle."""
    build, (first, second) = context.build, context.results
    rows, columns = sizes(value)[-2:]
    size = min(rows, columns)
    if 0 in sizes(value):
        return _empty_qr(context, mode)
    check_size(context, value)
    mirrors = []
    triangle = value
    for k in range(size):
        mirrors.append(_mirror(build, triangle, k))
        triangle = _reflect(build, triangle, *mirrors[-1])
    above = build.constant(~np.tri(rows, columns, -1, dtype=bool), ir.DataType.BOOL)
    triangle = build.where(above, triangle, 0)
    if second is not None:
        triangle = build.slice(triangle, -2, 0, second.shape[-2])
    if mode == "r":
        return [first and build.full(first.shape, 0, first.dtype), triangle]
    width = rows if mode == "complete" else size
    return [_product(build, mirrors, rows, width, element(value)), triangle]


def _empty_qr(context: Context, mode: str) -> Result:
    build = context.build
    results: list[ir.Value | None] = [
        r and build.full(r.shape, 0, r.dtype) for r in context.results
    ]
    first = context.results[0]
    if first is not None and mode == "complete" and 0 not in first.shape:
        results[0] = build.expand(build.constant(np.eye(first.shape[-1]), first.dtype), first.shape)
    return results


def _product(
    build: GraphBuilder,
    mirrors: list[tuple[ir.Value, ir.Value]],
    rows: int,
    columns: int,
    dtype: ir.DataType,
) -> ir.Value:
    """Return the first columns of a product of reflections."""
    product = build.constant(np.eye(rows, columns), dtype)
    for mirror, factor in reversed(mirrors):
        product = _reflect(build, product, mirror, factor)
    return product


@translates("linalg_householder_product")
def householder_product(context: Context, value: ir.Value, factors: ir.Value) -> ir.Value:
    """Return the first columns of the product of reflections in the form of LAPACK."""
    build = context.build
    rows, columns = sizes(value)[-2:]
    if 0 in sizes(value):
        return value
    check_size(context, value)
    mirrors = []
    for k in range(sizes(factors)[-1]):
        below = build.constant(np.arange(rows)[:, None] > k, ir.DataType.BOOL)
        here = build.constant(np.arange(rows)[:, None] == k, ir.DataType.BOOL)
        column = build.where(below, build.slice(value, -1, k, k + 1), 0)
        factor = build.slice(factors, -1, k, k + 1)
        mirrors.append((build.where(here, 1, column), build.reshape(factor, [*sizes(factor), 1])))
    product = _product(build, mirrors, rows, columns, element(value))
    return build.expand(product, sizes(value))


_SQUARINGS = 16
"""Matrices of a 1-norm up to 2 ** 16 have an exponential that is finite in float32, if at all."""
_TERMS = 10


@translates("linalg_matrix_exp", "matrix_exp")
def matrix_exp(context: Context, value: ir.Value) -> ir.Value:
    """Return exponentials: the series of a small part, squared as often as needed."""
    build, dtype = context.build, element(value)
    if 0 in sizes(value):
        return value
    eye = build.constant(np.eye(sizes(value)[-1]), dtype)
    norm = build.reduce("ReduceSum", build.unary("Abs", value), [-2], keep=True)
    norm = build.reduce("ReduceMax", norm, [-1], keep=True)
    doublings = build.unary("Ceil", build.multiply(build.unary("Log", norm), 1 / math.log(2)))
    doublings = build.binary("Max", build.add(doublings, 1.0), 0.0)
    small = build.divide(value, build.binary("Pow", build.constant(2.0, dtype), doublings))
    exponential = build.add(build.multiply(small, 1 / _TERMS), eye)
    for term in range(_TERMS - 1, 0, -1):
        exponential = build.add(build.multiply(build.matmul(small, exponential), 1 / term), eye)
    for k in range(_SQUARINGS):
        more = build.compare("Greater", doublings, float(k))
        exponential = build.where(more, build.matmul(exponential, exponential), exponential)
    return exponential
