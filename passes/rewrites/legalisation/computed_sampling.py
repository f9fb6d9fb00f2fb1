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
CUBIC = np.float32(-0.75)
"""The free parameter of cubic interpolation."""


@dataclass(frozen=True)
class Sampling:
    """How places of a grid are read."""

    mode: str
    """``nearest``, ``linear`` or ``cubic``."""
    padding: str
    """``zeros``, ``border`` or ``reflection``."""
    align: bool
    """Whether -1 and 1 are the centres of the outermost elements, not their outer edges."""

    def ends(self, size: int) -> tuple[np.float32, np.float32]:
        """Return where an axis ends on either side."""
        edge = np.float32(0 if self.align else -0.5)
        return edge, np.float32(size - 1) - edge


@dataclass(frozen=True)
class _Neighbour:
    """One of the elements along an axis that are mixed."""

    place: ir.Value
    """Its index along the axis, int64."""
    weight: ir.Value | None
    """Its share, float32; None for all of it."""


def sample(draft: Draft, how: Sampling) -> ir.Value:
    """Write a GridSample whose grid is computed.

    Args:
        draft: Where to.
        how: How places are read.

    Returns:
        The result.

    Raises:
        CannotExpandError: The grid is not float32.
    """
    data, grid = draft.operand(0), draft.operand(1)
    shape, result = draft.shape(data), draft.shape(draft.node.outputs[0])
    if draft.dtype(grid) != ir.DataType.FLOAT:
        raise CannotExpandError(f"its grid is computed in {draft.dtype(grid).name.lower()}")
    batch, channels, sizes = shape[0], shape[1], shape[2:]
    axes, count = len(sizes), math.prod(result[2:])
    grid = draft.op("Reshape", grid, draft.integers(batch, count, axes))
    per_axis = []
    for axis, size in enumerate(sizes):
        column = draft.constant(np.array(axes - 1 - axis, np.int64))
        per_axis.append(_along(draft, draft.op("Gather", grid, column, axis=2), size, how))
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
    """Return one element that is mixed, by its place in a row of all."""
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
        position = draft.op("Where", _is_out(draft, position, size, how), inner, position)
    elif how.padding == "reflection":
        position = _reflected(draft, position, size, how)
    if how.mode == "nearest":  # what was rounded is moved by whole steps only
        return [_within(draft, position, None, size, how)]
    base = draft.op("Floor", position)
    steps = range(2) if how.mode == "linear" else range(-1, 3)
    taken = [draft.op("Add", base, _number(draft, step)) for step in steps]
    neighbours = []
    for place in taken:
        distance = draft.op("Abs", draft.op("Sub", position, place))
        share = draft.op("Sub", one, distance) if how.mode == "linear" else _cubic(draft, distance)
        neighbours.append(_within(draft, place, share, size, how))
    return neighbours


def _is_out(draft: Draft, position: ir.Value, size: int, how: Sampling) -> ir.Value:
    low, high = (_number(draft, end) for end in how.ends(size))
    return draft.op("Or", draft.op("Less", position, low), draft.op("Greater", position, high))


def _within(
    draft: Draft, taken: ir.Value, share: ir.Value | None, size: int, how: Sampling
) -> _Neighbour:
    """Return a neighbour that there is for one beyond the ends, or a weight of zero."""
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
    if high == low:
        return draft.op("Where", is_out, begin, position)
    span, two = _number(draft, high - low), _number(draft, 2)
    is_below = draft.op("Less", position, begin)
    before, behind = draft.op("Sub", begin, position), draft.op("Sub", position, end)
    beyond = draft.op("Where", is_below, before, behind)
    times = draft.op("Floor", draft.op("Div", beyond, span))
    rest = draft.op("Sub", beyond, draft.op("Mul", times, span))
    pairs = draft.op("Mul", draft.op("Floor", draft.op("Div", times, two)), two)
    is_even = draft.op("Equal", times, pairs)
    rises, falls = draft.op("Add", begin, rest), draft.op("Sub", end, rest)
    inner = draft.op("Where", draft.op("Equal", is_below, is_even), rises, falls)
    return draft.op("Where", is_out, inner, position)


def _cubic(draft: Draft, distance: ir.Value) -> ir.Value:
    """Return the share of an element at a distance, by the cubic kernel."""
    squared = draft.op("Mul", distance, distance)
    near = draft.op(
        "Sub", draft.op("Mul", distance, _number(draft, CUBIC + 2)), _number(draft, CUBIC + 3)
    )
    near = draft.op("Add", draft.op("Mul", near, squared), _number(draft, 1))
    far = _number(draft, CUBIC)
    for factor in (-5 * CUBIC, 8 * CUBIC, -4 * CUBIC):
        far = draft.op("Add", draft.op("Mul", far, distance), _number(draft, factor))
    return draft.op("Where", draft.op("LessOrEqual", distance, _number(draft, 1)), near, far)
