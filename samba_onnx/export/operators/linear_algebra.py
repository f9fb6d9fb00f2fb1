"""Systems of linear equations, solved by elimination that is unrolled column by column.

The order of rows depends on the data, but no shape does. Matrices are small: every column is about
twenty nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.export.operators.registry import Context, Result, translates
from samba_onnx.export.translation.builder import GraphBuilder, broadcast, count, element, sizes

INT64 = ir.DataType.INT64
LARGEST = 64
"""Rows that are eliminated at most."""


def check_size(context: Context, value: ir.Value) -> None:
    """Refuse a matrix whose elimination would be too many nodes.

    Raises:
        ModelError: It has too many rows or columns.
    """
    size = min(sizes(value)[-2:])
    if size > LARGEST:
        raise ModelError(
            f"{context.operator} of matrices of size {size} would be too many nodes: up to "
            f"{LARGEST} are written in ONNX; compute larger ones outside of the module"
        )


def turned(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return matrices with rows and columns exchanged."""
    last = len(sizes(value)) - 1
    return build.transpose(value, [*range(last - 1), last, last - 1])


def swapped(build: GraphBuilder, value: ir.Value, row: int, other: ir.Value) -> ir.Value:
    """Exchange a row with another one whose number, (..., 1, 1), the data tell."""
    shape = sizes(value)
    numbers = build.constant(np.arange(shape[-2])[:, None], INT64)
    here = build.constant(np.arange(shape[-2])[:, None] == row, ir.DataType.BOOL)
    order = build.where(build.compare("Equal", numbers, other), row, numbers)
    order = build.expand(build.where(here, other, order), shape)
    axis = len(shape) - 2
    return build.emit("GatherElements", [value, order], element(value), shape, axis=axis)


def entry(build: GraphBuilder, value: ir.Value, row: int, column: int) -> ir.Value:
    """Return one element of each matrix, both axes staying with size one."""
    picked = build.slice(value, -2, row, row + 1)
    return build.slice(picked, -1, column, column + 1)


def _pivot(build: GraphBuilder, value: ir.Value, column: int) -> ir.Value:
    """Return which row, from the diagonal on, has the largest element of a column: (..., 1, 1)."""
    below = build.slice(build.slice(value, -2, column, sizes(value)[-2]), -1, column, column + 1)
    shape = [*sizes(below)[:-2], 1, 1]
    size = build.unary("Abs", below)
    place = build.emit("ArgMax", [size], INT64, shape, axis=len(shape) - 2)
    return build.add(place, column)


@dataclass(frozen=True)
class Factors:
    """A matrix as the product of a permutation with a lower and an upper triangle."""

    packed: ir.Value
    """The upper triangle, and the lower one without its diagonal of ones."""
    pivots: list[ir.Value]
    """Per column, the row that it was exchanged with: (..., 1, 1), from zero."""


def factorised(build: GraphBuilder, value: ir.Value, *, pivoting: bool = True) -> Factors:
    """Return the triangular factors of matrices."""
    rows, columns = sizes(value)[-2:]
    down, right = np.arange(rows)[:, None], np.arange(columns)
    pivots = []
    for k in range(min(rows, columns)):
        if pivoting:
            pivots.append(_pivot(build, value, k))
            value = swapped(build, value, k, pivots[-1])
        if k == rows - 1:
            break
        pivot, column = entry(build, value, k, k), build.slice(value, -1, k, k + 1)
        below = build.constant(down > k, ir.DataType.BOOL)
        nothing = build.compare("Equal", pivot, 0)
        factors = build.divide(column, build.where(nothing, 1, pivot))
        factors = build.where(below, factors, 0)
        row = build.slice(value, -2, k, k + 1)
        row = build.where(build.constant(right > k, ir.DataType.BOOL), row, 0)
        value = build.subtract(value, build.multiply(factors, row))
        lower = build.constant((down > k) & (right == k), ir.DataType.BOOL)
        value = build.where(lower, factors, value)
    return Factors(value, pivots)


def solved(build: GraphBuilder, value: ir.Value, right: ir.Value) -> ir.Value:
    """Return ``X`` of ``value @ X = right``, by Gauss and Jordan's elimination."""
    size = sizes(value)[-1]
    batch = broadcast(sizes(value)[:-2], sizes(right)[:-2])
    value = build.expand(value, [*batch, size, size])
    right = build.expand(right, [*batch, *sizes(right)[-2:]])
    whole = build.concat([value, right], -1)
    down = np.arange(size)[:, None]
    for k in range(size):
        # Columns that are done are left out: k is the first of what is left.
        if k < size - 1:
            padded = build.slice(whole, -2, k, size)
            place = build.add(_pivot(build, padded, 0), k)
            whole = swapped(build, whole, k, place)
        row = build.slice(whole, -2, k, k + 1)
        row = build.divide(row, build.slice(row, -1, 0, 1))
        here = build.constant(down == k, ir.DataType.BOOL)
        column = build.where(here, 0, build.slice(whole, -1, 0, 1))
        whole = build.where(here, row, build.subtract(whole, build.multiply(column, row)))
        whole = build.slice(whole, -1, 1, sizes(whole)[-1])
    return whole


def _diagonal(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return the diagonal of square matrices, (..., n)."""
    size = sizes(value)[-1]
    eye = build.constant(np.eye(size, dtype=bool), ir.DataType.BOOL)
    return build.reduce("ReduceSum", build.where(eye, value, 0), [-1])


def _sign_of_order(build: GraphBuilder, factors: Factors, dtype: ir.DataType) -> ir.Value | None:
    """Return -1 for an odd number of exchanges, (...)."""
    moved = [
        build.logical_not(build.compare("Equal", pivot, k))
        for k, pivot in enumerate(factors.pivots)
    ]
    if not moved:
        return None
    signs = [build.where(one, build.constant(-1, dtype), 1) for one in moved]
    product = signs[0]
    for sign in signs[1:]:
        product = build.multiply(product, sign)
    return build.reshape(product, sizes(product)[:-2])


@translates("_linalg_det")
def determinant(context: Context, value: ir.Value) -> Result:
    """Return determinants; their factors are for torch's own gradient only."""
    check_size(context, value)
    build, dtype = context.build, element(value)
    factors = factorised(build, value)
    sign = _sign_of_order(build, factors, dtype)
    product = build.reduce("ReduceProd", _diagonal(build, factors.packed), [-1])
    return [product if sign is None else build.multiply(product, sign), None, None]


@translates("_linalg_slogdet")
def log_determinant(context: Context, value: ir.Value) -> Result:
    """Return signs and logarithms of determinants."""
    check_size(context, value)
    build, dtype = context.build, element(value)
    factors = factorised(build, value)
    order = _sign_of_order(build, factors, dtype)
    diagonal = _diagonal(build, factors.packed)
    sign = build.reduce("ReduceProd", build.unary("Sign", diagonal), [-1])
    total = build.reduce("ReduceSum", build.unary("Log", build.unary("Abs", diagonal)), [-1])
    return [sign if order is None else build.multiply(sign, order), total, None, None]


def _no_failure(context: Context, position: int) -> ir.Value | None:
    """Return that all went well; a matrix that cannot be inverted gives infinities."""
    outcome = context.results[position]
    return outcome and context.build.full(outcome.shape, 0, outcome.dtype)


@translates("linalg_inv_ex")
def inverse(context: Context, value: ir.Value, check_errors: bool = False) -> Result:
    """Return inverses."""
    check_size(context, value)
    build, size = context.build, sizes(value)[-1]
    if count(value) == 0:
        return [value, _no_failure(context, 1)]
    eye = build.constant(np.eye(size), element(value))
    return [solved(build, value, eye), _no_failure(context, 1)]


@translates("_linalg_solve_ex")
def solve(
    context: Context,
    value: ir.Value,
    right: ir.Value,
    left: bool = True,
    check_errors: bool = False,
) -> Result:
    """Solve systems of equations; their factors are for torch's own gradient only."""
    check_size(context, value)
    build, shape = context.build, context.result.shape
    if 0 in shape:
        return [build.full(shape, 0, element(value)), None, None, _no_failure(context, 3)]
    lengths = sizes(right)
    vectors = len(lengths) == 1 or (
        len(lengths) == len(sizes(value)) - 1 and lengths == sizes(value)[:-1]
    )
    if vectors:
        right = build.reshape(right, [*lengths, 1])
    if left:
        solution = solved(build, value, right)
    else:
        solution = turned(build, solved(build, turned(build, value), turned(build, right)))
    return [build.reshape(solution, shape), None, None, _no_failure(context, 3)]


@translates("linalg_lu_factor_ex")
def lu_factor(
    context: Context, value: ir.Value, pivot: bool = True, check_errors: bool = False
) -> Result:
    """Return triangular factors in one matrix, and the rows that were exchanged."""
    check_size(context, value)
    build = context.build
    factors = factorised(build, value, pivoting=pivot)
    second = context.results[1]
    pivots = None
    if second is not None:
        numbers = [build.reshape(p, [*sizes(p)[:-2], 1]) for p in factors.pivots]
        if numbers:
            pivots = build.cast(build.add(build.concat(numbers, -1), 1), second.dtype)
        else:
            line = build.constant(np.arange(1, (second.shape or (1,))[-1] + 1), second.dtype)
            pivots = build.expand(line, second.shape)
    return [factors.packed, pivots, _no_failure(context, 2)]


def _permutation(build: GraphBuilder, pivots: ir.Value, size: int, dtype: ir.DataType) -> ir.Value:
    """Return the matrix that pivots, from one, stand for."""
    eye = build.constant(np.eye(size), dtype)
    rows = build.expand(eye, [*sizes(pivots)[:-1], size, size])
    places = build.subtract(build.cast(pivots, INT64), 1)
    for k in range(sizes(pivots)[-1]):
        place = build.slice(places, -1, k, k + 1)
        rows = swapped(build, rows, k, build.reshape(place, [*sizes(place), 1]))
    return turned(build, rows)


def _unpacked(build: GraphBuilder, packed: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the lower triangle with ones on its diagonal, and the upper one."""
    rows, columns = sizes(packed)[-2:]
    size = min(rows, columns)
    narrow, low = build.slice(packed, -1, 0, size), build.slice(packed, -2, 0, size)
    below = build.constant(np.tri(rows, size, -1, dtype=bool), ir.DataType.BOOL)
    ones = build.constant(np.eye(rows, size), element(packed))
    above = build.constant(~np.tri(size, columns, -1, dtype=bool), ir.DataType.BOOL)
    return build.where(below, narrow, ones), build.where(above, low, 0)


@translates("lu_unpack")
def lu_unpack(
    context: Context,
    packed: ir.Value,
    pivots: ir.Value,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> Result:
    """Return permutation, lower and upper triangle from what lu_factor returns."""
    build, rows = context.build, sizes(packed)[-2]
    lower, upper = _unpacked(build, packed)
    factors: list[ir.Value | None] = [
        _permutation(build, pivots, rows, element(packed)) if unpack_pivots else None,
        lower if unpack_data else None,
        upper if unpack_data else None,
    ]
    return _or_empty(context, factors)


@translates("linalg_lu")
def lu(context: Context, value: ir.Value, pivot: bool = True) -> Result:
    """Return permutation, lower and upper triangle of matrices."""
    check_size(context, value)
    build, rows = context.build, sizes(value)[-2]
    factors = factorised(build, value, pivoting=pivot)
    lower, upper = _unpacked(build, factors.packed)
    permutation = None
    if pivot and factors.pivots:
        ones = [build.reshape(p, [*sizes(p)[:-2], 1]) for p in factors.pivots]
        numbers = build.add(build.concat(ones, -1), 1)
        permutation = _permutation(build, numbers, rows, element(value))
    return _or_empty(context, [permutation, lower, upper])


def _or_empty(context: Context, values: list[ir.Value | None]) -> Result:
    """Return values, empty ones where torch states an empty one."""
    build = context.build
    return [
        build.full(outcome.shape, 0, outcome.dtype)
        if outcome is not None and (value is None or 0 in outcome.shape)
        else value
        for value, outcome in zip(values, context.results, strict=True)
    ]
