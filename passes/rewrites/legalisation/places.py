"""Reading and writing at places that are known: one Gather of everything in a row.

Evidence: Gather and Concat are ``index_select`` and ``cat`` of the vendor's table for every type that it names, while
its scatter updates or adds floats only. Elements are taken, not computed with: results are equal to the bit.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.rules import legalises

MOST = 1 << 20
"""Places that are written out as constants at most: 8 MiB of indices."""
MOST_TURNS = 16
"""Updates of one place that are combined at most."""
_COMBINE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}

Places = NDArray[np.int64]


@legalises(
    "GatherElements",
    "GatherND",
    name="gather",
    makes="a Reshape to a row, a Gather by constant places, and a Reshape",
    needs=f"constant indices, static shapes, at most {MOST:,} elements",
)
def gather(draft: Draft) -> ir.Value:
    """Write a GatherElements or GatherND of constant indices."""
    data = draft.operand(0)
    shape, result = draft.shape(data), draft.shape(draft.node.outputs[0])
    indices = draft.known(draft.operand(1), "its indices").numpy().astype(np.int64)
    _refuse_many(math.prod(shape), math.prod(result))
    # Numbering all elements and indexing the numbers by numpy leaves no formula for strides to get
    # wrong.
    row = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    if draft.node.op_type == "GatherElements":
        taken = row[_along(indices, draft.integer("axis"), shape)]
    else:
        taken = _gathered(row, indices, draft.integer("batch_dims"))
    return _picked(draft, data, taken, result)


def row_of(draft: Draft, data: ir.Value, indices: tuple[Places, ...]) -> ir.Value:
    """Return elements of a tensor as one Gather of all of them in a row.

    Args:
        draft: What the node is replaced by.
        data: What is read, of static shape.
        indices: One for every axis, of shapes that fit each other; together they have the shape of the result.

    Raises:
        CannotExpandError: There are too many elements.
    """
    shape = draft.shape(data)
    result = np.broadcast_shapes(*(index.shape for index in indices))
    _refuse_many(math.prod(shape), math.prod(result))
    row = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    return _picked(draft, data, row[indices], result)


def _picked(draft: Draft, data: ir.Value, taken: Places, result: tuple[int, ...]) -> ir.Value:
    flat = draft.op("Reshape", data, draft.integers(-1))
    picked = draft.op("Gather", flat, draft.constant(taken.ravel()), axis=0)
    return draft.op("Reshape", picked, draft.integers(*result))


@legalises(
    "ScatterElements",
    "ScatterND",
    name="scatter",
    makes="a Concat of the data and the updates in a row, and a Gather that takes the last that was written",
    needs=f"constant indices, static shapes, at most {MOST:,} elements; at most {MOST_TURNS} updates of a place where they are combined",
    numbers="equal; NaN spreads through max and min, as ONNX's Max and Min define",
)
def scatter(draft: Draft) -> ir.Value:
    """Write a ScatterElements or ScatterND of constant indices."""
    data, updates = draft.operand(0), draft.operand(2)
    shape = draft.shape(data)
    indices = draft.known(draft.operand(1), "its indices").numpy().astype(np.int64)
    size, count = math.prod(shape), math.prod(draft.shape(updates))
    _refuse_many(size, count)
    row = np.arange(size, dtype=np.int64).reshape(shape)
    if draft.node.op_type == "ScatterElements":
        written = row[_along(indices, draft.integer("axis"), shape)].ravel()
    else:
        written = _gathered(row, indices, 0).ravel()
    flat = draft.op("Reshape", data, draft.integers(-1))
    new = draft.op("Reshape", updates, draft.integers(-1))
    reduction = draft.text("reduction", "none")
    if reduction != "none":
        return _combined(draft, flat, new, written, _COMBINE[reduction])
    return _written(draft, flat, new, written)


def _written(draft: Draft, flat: ir.Value, new: ir.Value, places: Places) -> ir.Value:
    """Return a row in its shape, with new elements at some places; of equal places the last one stays."""
    shape = draft.shape(draft.operand(0))
    size = math.prod(shape)
    source = np.arange(size, dtype=np.int64)
    # numpy writes in order, so that of equal places the last one stays, as in onnxruntime.
    source[places] = size + np.arange(len(places))
    both = draft.op("Concat", flat, new, axis=0)
    result = draft.op("Gather", both, draft.constant(source), axis=0)
    return draft.op("Reshape", result, draft.integers(*shape))


def _combined(
    draft: Draft, flat: ir.Value, new: ir.Value, places: Places, operator: str
) -> ir.Value:
    """Return a row in its shape, with updates combined one after the other where a place has several."""
    # Updates of one place are combined in the order in which they are stated, since rounding
    # depends on it: each turn has every place at most once.
    turns: list[list[int]] = []
    seen: dict[int, int] = {}
    for number, place in enumerate(places.tolist()):
        turn = seen[place] = seen.get(place, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(number)
    if len(turns) > MOST_TURNS:
        raise CannotExpandError(f"it combines {len(turns):,} updates of one place")
    size = math.prod(draft.shape(draft.operand(0)))
    value = flat
    for chosen in turns:
        numbers = np.array(chosen, np.int64)
        update = draft.op("Gather", new, draft.constant(numbers), axis=0)
        old = draft.op("Gather", value, draft.constant(places[numbers]), axis=0)
        both = draft.op("Concat", value, draft.op(operator, old, update), axis=0)
        source = np.arange(size, dtype=np.int64)
        source[places[numbers]] = size + np.arange(len(numbers))
        value = draft.op("Gather", both, draft.constant(source), axis=0)
    return draft.op("Reshape", value, draft.integers(*draft.shape(draft.operand(0))))


def _along(indices: Places, axis: int, shape: tuple[int, ...]) -> tuple[Places, ...]:
    """Return an index for every axis: that of the element itself, but along one."""
    own: list[Places] = [*np.indices(indices.shape, dtype=np.int64)]
    # Negative indices count from the end.
    own[axis] = indices % shape[axis]
    return tuple(own)


def _gathered(row: Places, indices: Places, batches: int) -> Places:
    """Return the elements that GatherND takes from places in a row."""
    if batches:
        pairs = zip(row, indices, strict=True)
        return np.stack([_gathered(one, where, batches - 1) for one, where in pairs])
    # A tuple of indices lies along the last axis of its tensor; numpy wants one array for each
    # axis.
    taken: Places = row[tuple(np.moveaxis(indices, -1, 0))]
    return taken


def _refuse_many(*sizes: int) -> None:
    if max(sizes) > MOST:
        raise CannotExpandError(f"it has {max(sizes):,} elements, more than {MOST:,}")
