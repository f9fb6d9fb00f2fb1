"""Padding with what is there: each axis is read by constant places.

Evidence: Gather is ``index_select`` of the vendor's table, documented for BF16, FP32 and INT64; of Pad only the
form with a constant is known to run. Places are taken, not computed with, so the results are equal to the bit.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.bounds import refuse_large
from samba_onnx.passes.rewrites.legalisation.rules import legalises


@legalises(
    "Pad",
    name="pad",
    makes="a Gather by constant places for each axis that is padded",
    needs="mode reflect, edge or wrap; constant pads, not negative and positive at once; a reflection within the axis",
)
def pad(draft: Draft) -> ir.Value:
    """Write a Pad that repeats its operand."""
    mode, data = draft.text("mode", "constant"), draft.operand(0)
    if mode == "constant":
        raise CannotExpandError("a Pad with a constant is refused for another reason than its mode")
    pads = draft.known(draft.operand(1), "its pads").numpy().astype(np.int64)
    rank = draft.rank(data)
    axes = draft.optional(3)
    chosen = range(rank) if axes is None else draft.known(axes, "its axes").numpy().tolist()
    if len(pads) != 2 * len(chosen):
        raise CannotExpandError(f"it states {len(pads)} pads for {len(chosen)} axes")
    # It is not defined alike whether the crop or the padding comes first.
    if (pads < 0).any() and (pads > 0).any():
        raise CannotExpandError("it pads and crops at once")
    value = data
    for place, axis in enumerate(chosen):
        # All begins come before all ends.
        before, after = int(pads[place]), int(pads[place + len(pads) // 2])
        if before or after:
            # A model may ask for any size.
            refuse_large(draft.size(data, axis) + before + after)
            places = _places(mode, draft.size(data, axis), before, after)
            value = draft.op("Gather", value, draft.constant(places), axis=axis % rank)
    return value


def _places(mode: str, size: int, before: int, after: int) -> NDArray[np.int64]:
    """Return which element of an axis each element of the padded one is.

    Raises:
        CannotExpandError: A reflection is as wide as the axis, which is not defined, or the mode is not known.
    """
    places = np.arange(-before, size + after, dtype=np.int64)
    if max(before, after) <= 0 and len(places):
        return places  # the mode says nothing of a crop
    if mode == "edge":
        return places.clip(0, size - 1)
    if mode == "wrap":
        return places % size
    if mode != "reflect":
        raise CannotExpandError(f"its mode is {mode!r}")
    if max(before, after) >= size:
        raise CannotExpandError("it reflects more than the axis has")
    # Reflection at the first element is the absolute place, at the last one the distance from twice
    # its place: neither repeats the border itself.
    places = np.abs(places)
    return np.where(places < size, places, 2 * (size - 1) - places)
