"""Sampling at places that are computed at run time, by the formulas of onnxruntime in float32."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft

NEIGHBOURS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Elements of an axis that are mixed, by mode."""
# The number of torch and of onnxruntime; no attribute states another.
CUBIC = np.float32(-0.75)
"""The free parameter of cubic interpolation."""


@dataclass(frozen=True)
class Sampling:
    """How a GridSample reads the operand at the places of its grid."""

    mode: str
    """``nearest``, ``linear`` or ``cubic``."""
    padding: str
    """``zeros``, ``border`` or ``reflection``."""
    align: bool
    """Whether -1 and 1 are the centres of the outermost elements, not their outer edges."""

    def ends(self, size: int) -> tuple[np.float32, np.float32]:
        """Return where an axis ends on either side."""
        # Half an element beyond the centres of the outermost ones, where -1 and 1 mean their outer
        # edges.
        edge = np.float32(0 if self.align else -0.5)
        return edge, np.float32(size - 1) - edge


@dataclass(frozen=True)
class _Neighbour:
    """One of the elements along an axis that are mixed."""

    place: ir.Value
    """Index of the element along the axis, int64."""
    weight: ir.Value | None
    """Share of the element in the sum, float32; None where it is the only one."""


def sample(draft: Draft, how: Sampling) -> ir.Value:
    """Write a GridSample whose grid is computed.

    Args:
        draft: The draft of the node.
        how: How places are read.

    Returns:
        The result.

    Raises:
        CannotExpandError: The grid is not float32.
    """
    data, grid = draft.operand(0), draft.operand(1)
    shape, result = draft.shape(data), draft.shape(draft.node.outputs[0])
    # The formulas below write constants of float32, as onnxruntime computes places of such a grid.
    if draft.dtype(grid) != ir.DataType.FLOAT:
        raise CannotExpandError(f"its grid is computed in {draft.dtype(grid).name.lower()}")
    batch, channels, sizes = shape[0], shape[1], shape[2:]
    axes, count = len(sizes), math.prod(result[2:])
    grid = draft.op("Reshape", grid, draft.integers(batch, count, axes))
    per_axis = []
    for axis, size in enumerate(sizes):
        # A grid states the last axis first: x, then y, then z.
        column = draft.constant(np.array(axes - 1 - axis, np.int64))
        per_axis.append(_along(draft, draft.op("Gather", grid, column, axis=2), size, how))
    # One Gather takes all neighbours of all places, instead of one Gather for each of up to 64.
    mixed = [_corner(draft, corner, sizes) for corner in itertools.product(*per_axis)]
    places = _stacked(draft, [neighbour.place for neighbour in mixed])
    if batch > 1:  # one row of all elements of the batch, so that one Gather takes them
        data = draft.op("Transpose", data, perm=[1, 0, *range(2, len(shape))])
        first = math.prod(sizes) * np.arange(batch, dtype=np.int64)[:, None, None]
        places = draft.op("Add", places, draft.constant(first))
    data = draft.op("Reshape", data, draft.integers(channels, batch * math.prod(sizes)))
    value = draft.op("Gather", data, places, axis=1)  # channels, batch, neighbours, places
    weights = [neighbour.weight for neighbour in mixed if neighbour.weight is not None]
    if weights:
        shares = _stacked(draft, weights)
        # Places need float32; the elements are multiplied in their own type, as the result is of
        # it.
        if draft.dtype(draft.operand(0)) != ir.DataType.FLOAT:
            shares = draft.op("Cast", shares, to=draft.dtype(draft.operand(0)))
        value = draft.op("Mul", value, shares)
        value = draft.op("ReduceSum", value, draft.integers(2), keepdims=0)
    if batch > 1:
        value = draft.op("Reshape", value, draft.integers(channels, batch, count))
        value = draft.op("Transpose", value, perm=[1, 0, 2])
    return draft.op("Reshape", value, draft.integers(*result))


def _stacked(draft: Draft, values: list[ir.Value]) -> ir.Value:
    """Return values of shape (batch, places) as one of shape (batch, neighbours, places)."""
    rows = [draft.op("Unsqueeze", value, draft.integers(1)) for value in values]
    return rows[0] if len(rows) == 1 else draft.op("Concat", *rows, axis=1)


def _corner(draft: Draft, corner: tuple[_Neighbour, ...], sizes: tuple[int, ...]) -> _Neighbour:
    """Return one neighbour in all axes, by its place in a row of all elements and the product of its weights."""
    whole = corner[0]
    for neighbour, size in zip(corner[1:], sizes[1:], strict=True):
        row = draft.op("Mul", whole.place, draft.constant(np.array(size, np.int64)))
        weight = neighbour.weight
        if whole.weight is not None and weight is not None:
            weight = draft.op("Mul", whole.weight, weight)
        whole = _Neighbour(draft.op("Add", row, neighbour.place), weight)
    return whole


def _number(draft: Draft, number: float | np.float32) -> ir.Value:
    return draft.constant(np.array(number, np.float32))


def _along(draft: Draft, where: ir.Value, size: int, how: Sampling) -> list[_Neighbour]:
    """Return the neighbours of places along one axis."""
    # The same operations in the same order as onnxruntime's kernel, so that places are rounded
    # alike: on the border between two elements the last bit decides which one is taken.
    one, two = _number(draft, 1), _number(draft, 2)
    position = draft.op("Add", where, one)
    if how.align:
        position = draft.op("Mul", draft.op("Div", position, two), _number(draft, size - 1))
    else:
        position = draft.op("Sub", draft.op("Mul", position, _number(draft, size)), one)
        position = draft.op("Div", position, two)
    if how.mode == "nearest":
        position = draft.op("Round", position)
    if how.padding == "border" and how.mode != "cubic":
        # The cubic kernel bounds its neighbours only.
        inner = draft.op("Clip", position, _number(draft, 0), _number(draft, size - 1))
        # Only what is outside is replaced, since Clip would also make a number of NaN.
        position = draft.op("Where", _is_out(draft, position, size, how), inner, position)
    elif how.padding == "reflection":
        position = _reflected(draft, position, size, how)
    if how.mode == "nearest":  # what was rounded is moved by whole steps only
        return [_within(draft, position, None, size, how)]
    base = draft.op("Floor", position)
    # A cubic kernel reaches two elements to either side: one before the base, and two behind it.
    steps = range(2) if how.mode == "linear" else range(-1, 3)
    taken = [draft.op("Add", base, _number(draft, step)) for step in steps]
    neighbours = []
    for place in taken:
        distance = draft.op("Abs", draft.op("Sub", position, place))
        share = draft.op("Sub", one, distance) if how.mode == "linear" else _cubic(draft, distance)
        neighbours.append(_within(draft, place, share, size, how))
    return neighbours


def _is_out(draft: Draft, position: ir.Value, size: int, how: Sampling) -> ir.Value:
    # A comparison with NaN is false, so that NaN counts as inside and stays what it is.
    low, high = (_number(draft, end) for end in how.ends(size))
    return draft.op("Or", draft.op("Less", position, low), draft.op("Greater", position, high))


def _within(
    draft: Draft, taken: ir.Value, share: ir.Value | None, size: int, how: Sampling
) -> _Neighbour:
    """Return a neighbour within the axis in place of one beyond its ends, or one of weight zero."""
    if how.padding == "reflection":
        taken = _reflected(draft, taken, size, how)
        taken = draft.op("Floor", draft.op("Max", taken, _number(draft, 0)))
    first, last = _number(draft, 0), _number(draft, size - 1)
    above = draft.op("GreaterOrEqual", taken, first)
    if how.padding == "zeros":
        below = draft.op("LessOrEqual", taken, last)
        inside = draft.op("Cast", draft.op("And", above, below), to=ir.DataType.FLOAT)
        share = inside if share is None else draft.op("Mul", share, inside)
    # What is no number is at no place: it takes the first one, and its weight is no number.
    bounded = draft.op("Clip", draft.op("Where", above, taken, first), first, last)
    return _Neighbour(draft.op("Cast", bounded, to=ir.DataType.INT64), share)


def _reflected(draft: Draft, position: ir.Value, size: int, how: Sampling) -> ir.Value:
    """Return positions between two ends, those beyond reflected as often as it takes."""
    low, high = how.ends(size)
    begin, end = _number(draft, low), _number(draft, high)
    is_out = _is_out(draft, position, size, how)
    # An axis of one element, aligned: there is no span to reflect in, and a division by it would
    # make NaN.
    if high == low:
        return draft.op("Where", is_out, begin, position)
    span, two = _number(draft, high - low), _number(draft, 2)
    is_below = draft.op("Less", position, begin)
    before, behind = draft.op("Sub", begin, position), draft.op("Sub", position, end)
    beyond = draft.op("Where", is_below, before, behind)
    times = draft.op("Floor", draft.op("Div", beyond, span))
    rest = draft.op("Sub", beyond, draft.op("Mul", times, span))
    # The vendor's table has no remainder: a number is even where twice the floor of its half is the
    # number itself.
    pairs = draft.op("Mul", draft.op("Floor", draft.op("Div", times, two)), two)
    is_even = draft.op("Equal", times, pairs)
    rises, falls = draft.op("Add", begin, rest), draft.op("Sub", end, rest)
    # Every other reflection turns round: beyond the end the first one falls, before the begin it
    # rises.
    inner = draft.op("Where", draft.op("Equal", is_below, is_even), rises, falls)
    return draft.op("Where", is_out, inner, position)


def _cubic(draft: Draft, distance: ir.Value) -> ir.Value:
    """Return the share of an element at a distance, by the cubic kernel."""
    squared = draft.op("Mul", distance, distance)
    # By Horner's rule, as onnxruntime computes it: fewer products, and the same rounding.
    near = draft.op(
        "Sub", draft.op("Mul", distance, _number(draft, CUBIC + 2)), _number(draft, CUBIC + 3)
    )
    near = draft.op("Add", draft.op("Mul", near, squared), _number(draft, 1))
    far = _number(draft, CUBIC)
    for factor in (-5 * CUBIC, 8 * CUBIC, -4 * CUBIC):
        far = draft.op("Add", draft.op("Mul", far, distance), _number(draft, factor))
    return draft.op("Where", draft.op("LessOrEqual", distance, _number(draft, 1)), near, far)
