"""Walking backwards along an axis: one Gather of places that are known.

Evidence: the vendor's programs slice forwards only, and reverse nothing; Gather is ``index_select`` of the vendor's
table, documented for BF16, FP32 and INT64. Elements are taken, not computed with: results are equal to the bit.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.bounds import refuse_large
from samba_onnx.passes.rewrites.legalisation.places import MOST, row_of
from samba_onnx.passes.rewrites.legalisation.rules import legalises

Places = NDArray[np.int64]


@legalises(
    "Slice",
    name="slice",
    makes="a Gather by constant places for each axis that is walked backwards, and a Slice of the others",
    needs="constant bounds; a static size of each axis that is walked backwards",
)
def slice_backwards(draft: Draft) -> ir.Value:
    """Write a Slice with negative steps."""
    data = draft.operand(0)
    rank = draft.rank(data)
    starts, ends = (
        _numbers(draft, place, what) for place, what in ((1, "its starts"), (2, "its ends"))
    )
    axes = _optional(draft, 3, "its axes", list(range(len(starts))))
    steps = _optional(draft, 4, "its steps", [1] * len(starts))
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise CannotExpandError("its bounds, axes and steps are not equally many")
    if all(step > 0 for step in steps):
        raise CannotExpandError("it walks forwards, and is refused for another reason")
    value, forwards = data, []
    for number, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        if step > 0:
            forwards.append(number)
            continue
        size = draft.size(data, axis % rank)
        first, last = _bounds(starts[number], ends[number], size)
        places = np.arange(size, dtype=np.int64)[first:last:step]
        refuse_large(len(places))
        value = draft.op("Gather", value, draft.constant(places), axis=axis % rank)
    # Axes do not depend on each other, so that the backward ones can go first.
    if not forwards:
        return value
    left = [
        draft.integers(*(numbers[n] for n in forwards)) for numbers in (starts, ends, axes, steps)
    ]
    return draft.op("Slice", value, *left)


@legalises(
    "ReverseSequence",
    name="reverse",
    makes="a Gather by constant places; of lengths that differ, of a row, between two Reshapes",
    needs=f"constant lengths and static shapes; where the lengths differ at most {MOST:,} elements",
)
def reverse_sequence(draft: Draft) -> ir.Value:
    """Write a ReverseSequence of constant lengths."""
    data = draft.operand(0)
    shape = draft.shape(data)
    batch, time = draft.integer("batch_axis", 1), draft.integer("time_axis", 0)
    lengths = draft.known(draft.operand(1), "its lengths").numpy().astype(np.int64).ravel()
    if len(lengths) != shape[batch] or len(lengths) == 0:
        raise CannotExpandError(f"it has {len(lengths)} lengths for {shape[batch]} sequences")
    if lengths.min() < 0 or lengths.max() > shape[time]:
        raise CannotExpandError(f"a length is not from 0 to {shape[time]}")
    places = np.stack([_reversed(shape[time], int(length)) for length in lengths])
    # Equal lengths reverse a whole axis, which takes a Gather of that axis only.
    if (places == places[0]).all():
        refuse_large(shape[time])
        return draft.op("Gather", data, draft.constant(places[0]), axis=time)
    return row_of(draft, data, _along_both(places, shape, batch, time))


def _reversed(size: int, length: int) -> Places:
    """Return which element each one of a sequence is, whose first ones are in reverse order."""
    places = np.arange(size, dtype=np.int64)
    # What is behind the length of a sequence stays where it is.
    places[:length] = places[:length][::-1]
    return places


def _along_both(
    places: Places, shape: tuple[int, ...], batch: int, time: int
) -> tuple[Places, ...]:
    """Return an index for every axis: that of the element itself, but along the time of its sequence."""
    # Sparse indices broadcast, instead of an array of the whole shape for every axis.
    own: list[Places] = [*np.indices(shape, dtype=np.int64, sparse=True)]
    own[time] = places[own[batch], own[time]]
    return tuple(own)


def _bounds(start: int, end: int, size: int) -> tuple[int, int | None]:
    """Return ONNX's bounds of a walk backwards as Python's, which has no number for before the first element."""
    # A start before the first element is that element, an end before it is before it.
    first = min(max(start + size if start < 0 else start, 0), size - 1)
    last = min(max(end + size if end < 0 else end, -1), size - 1)
    return first, None if last < 0 else last


def _numbers(draft: Draft, place: int, what: str) -> list[int]:
    return [int(number) for number in draft.known(draft.operand(place), what).numpy().ravel()]


def _optional(draft: Draft, place: int, what: str, default: list[int]) -> list[int]:
    return default if draft.optional(place) is None else _numbers(draft, place, what)
