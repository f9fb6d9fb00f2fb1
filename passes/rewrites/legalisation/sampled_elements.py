"""Sampling: elements taken by their places, and mixed with weights; both constant, or computed from a grid.

Evidence: Gather is ``index_select`` and ``embedding`` of the vendor's table, whose places are data, Mul and ReduceSum are
in logs and tutorials. What makes places and weights of a grid is elementary arithmetic, which the table assumes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.computed_sampling import (
    CUBIC,
    NEIGHBOURS,
    Sampling,
    sample,
)
from samba_onnx.passes.rewrites.legalisation.interpolation import Floats, Places
from samba_onnx.passes.rewrites.legalisation.rules import legalises
from samba_onnx.passes.rewrites.rewriting import constant

MOST = 1 << 20
"""Elements that are taken at most: 8 MiB of places."""


@legalises(
    "GridSample",
    name="gridsample",
    makes="a Gather of the neighbours of each place, Mul with their weights, and ReduceSum; places and weights constant, or computed from the grid",
    needs=f"static shapes, at most {MOST:,} neighbours; a computed grid of float32",
    numbers="nearest equal; linear and cubic within a few roundings of float32, where infinities and NaN spread to neighbours of weight 0",
)
def grid_sample(draft: Draft) -> ir.Value:
    """Write a GridSample."""
    data = draft.operand(0)
    shape, result = draft.shape(data), draft.shape(draft.node.outputs[0])
    # The operator sets before 20 call the modes bilinear and bicubic.
    mode = draft.text("mode", "linear").removeprefix("bi")
    how = Sampling(mode, draft.text("padding_mode", "zeros"), bool(draft.integer("align_corners")))
    if mode not in NEIGHBOURS:
        raise CannotExpandError(f"its mode is {mode!r}")
    axes = len(shape) - 2
    # Every axis multiplies the number of neighbours: 64 in a cubic volume.
    if result[0] * math.prod(result[2:]) * NEIGHBOURS[mode] ** axes > MOST:
        raise CannotExpandError(f"it takes more than {MOST:,} elements")
    tensor = constant(draft.operand(1))
    if tensor is None:
        return sample(draft, how)
    grid = tensor.numpy().astype(np.float32)
    places, weights = _neighbours(grid.reshape(len(grid), -1, grid.shape[-1]), shape[2:], how)
    # One grid for all of a batch takes one list of places, and no transposed data.
    if len(grid) > 1 and (places == places[:1]).all() and (weights == weights[:1]).all():
        places, weights = places[:1], weights[:1]
    return _mixed(draft, data, shape, result, places, weights)


def _mixed(
    draft: Draft,
    data: ir.Value,
    shape: Sequence[int],
    result: Sequence[int],
    places: Places,
    weights: Floats,
) -> ir.Value:
    """Take elements of the operand and mix them by weights.

    Args:
        draft: The draft of the node.
        data: The operand, of shape (batch, channels, sizes).
        shape: Shape of the operand.
        result: Shape of the output.
        places: Which element is taken, of shape (batch or 1, neighbours, elements of the output).
        weights: By what each element is multiplied, of the same shape as places.
    """
    batch, channels, size = shape[0], shape[1], math.prod(shape[2:])
    _, neighbours, count = places.shape
    own = len(places) > 1
    if own:  # one row of all elements of the batch, so that one Gather takes them
        order = [1, 0, *range(2, len(shape))]
        data = draft.op("Transpose", data, perm=order)
        places = places + size * np.arange(batch, dtype=np.int64)[:, None, None]
    rows = [channels, batch * size] if own else [batch, channels, size]
    data = draft.op("Reshape", data, draft.integers(*rows))
    value = draft.op("Gather", data, draft.constant(places.ravel()), axis=len(rows) - 1)
    form = [channels, batch, neighbours, count] if own else [batch, channels, neighbours, count]
    # A single neighbour of weight 1 is the result as it is.
    if not (weights == 1).all() or neighbours > 1:
        value = draft.op("Reshape", value, draft.integers(*form))
        factors = weights if own else weights[0]
        value = draft.op(
            "Mul", value, draft.constant(factors.astype(draft.dtype(draft.operand(0)).numpy()))
        )
        value = draft.op("ReduceSum", value, draft.integers(2), keepdims=0)
    if own:
        value = draft.op("Reshape", value, draft.integers(channels, batch, count))
        value = draft.op("Transpose", value, perm=[1, 0, 2])
    return draft.op("Reshape", value, draft.integers(*result))


def _neighbours(grid: Floats, sizes: Sequence[int], how: Sampling) -> tuple[Places, Floats]:
    """Return which elements each place of a grid mixes, in a row of all, and with which weights.

    Args:
        grid: Places of shape (batch, places, axes), the last axis first.
        sizes: Sizes of the axes.
        how: How places are read.
    """
    per_axis = [
        _along(grid[..., len(sizes) - 1 - axis], size, how) for axis, size in enumerate(sizes)
    ]
    places, weights = [], []
    for combination in itertools.product(*(range(taken.shape[0]) for taken, _ in per_axis)):
        place = np.zeros(grid.shape[:2], np.int64)
        weight = np.ones(grid.shape[:2], np.float32)
        for (taken, share), number, size in zip(per_axis, combination, sizes, strict=True):
            # Row-major: the axis that comes later moves within what the earlier one has chosen.
            place = place * size + taken[number]
            weight = weight * share[number]
        places.append(place)
        weights.append(weight)
    return np.stack(places, axis=1), np.stack(weights, axis=1)


def _along(where: Floats, size: int, how: Sampling) -> tuple[Places, Floats]:
    """Return the neighbours along one axis, and their weights: (neighbours, batch, places) each."""
    one, two = np.float32(1), np.float32(2)
    # The same order of operations in float32 as in onnxruntime: a place halfway between two
    # elements is decided by the last bit.
    if how.align:
        position = (where + one) / two * np.float32(size - 1)
    else:
        position = ((where + one) * np.float32(size) - one) / two
    if how.mode == "nearest":
        # rint takes the even one of two that are as near, as onnxruntime does.
        position = np.rint(position)
    low, high = how.ends(size)
    is_out = (position < low) | (position > high)
    if how.padding == "border" and how.mode != "cubic":
        # The cubic kernel bounds its neighbours only.
        position = np.where(is_out, position.clip(0, np.float32(size - 1)), position)
    elif how.padding == "reflection":
        position = np.where(is_out, _reflected(position, low, high), position)
    if how.mode == "nearest":
        # What was rounded is moved by whole steps only.
        taken, share = position[None], np.ones_like(position)[None]
    else:
        base = np.floor(position)
        steps = np.arange(2) if how.mode == "linear" else np.arange(-1, 3)
        taken = base[None] + steps[:, None, None].astype(np.float32)
        distance = np.abs(position[None] - taken)
        share = one - distance if how.mode == "linear" else _cubic(distance)
    return _within(taken, share.astype(np.float32), size, how)


def _within(taken: Floats, share: Floats, size: int, how: Sampling) -> tuple[Places, Floats]:
    """Return neighbours within the axis in place of those beyond its ends, or some of weight zero."""
    low, high = how.ends(size)
    if how.padding == "reflection":
        taken = np.where((taken < low) | (taken > high), _reflected(taken, low, high), taken)
        # Reflected neighbours lie between the ends; a part of a step is cut off, as by a cast to an
        # integer.
        taken = np.trunc(taken)
    # The first beyond either end stands for all: no integer holds the farthest, and what is no number.
    places = np.where(np.isnan(taken), -1, taken).clip(-1, size).astype(np.int64)
    if how.padding == "zeros":
        share = np.where((places >= 0) & (places < size), share, np.float32(0))
    # What has no weight still needs a place that there is: Gather refuses others.
    return places.clip(0, size - 1), share


def _reflected(position: Floats, low: np.float32, high: np.float32) -> Floats:
    """Return positions between two ends, reflected as often as it takes."""
    span = high - low
    # An axis of one element has nowhere to reflect to.
    if span == 0:
        return np.full_like(position, low)
    is_below = position < low
    beyond = np.where(is_below, low - position, position - high)
    times = np.trunc(beyond / span)
    rest = beyond - times * span
    is_even = times % 2 == 0
    return np.where(is_below == is_even, low + rest, high - rest).astype(np.float32)


def _cubic(distance: Floats) -> NDArray[np.float32]:
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance * distance + 1
    far = ((CUBIC * distance - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
    return np.where(distance <= 1, near, far).astype(np.float32)
