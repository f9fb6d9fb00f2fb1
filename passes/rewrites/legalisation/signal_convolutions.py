"""Transposed convolutions of signals: as those of pictures that are one row high.

Evidence: programs for the RDU show ConvTranspose2d (U-Net) and no other. A signal is a picture of one row,
and a kernel of one row has as many terms for each of its elements, in the same order.
"""

from __future__ import annotations

from typing import Any, Final

import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.rules import legalises

_SIGNAL: Final = 3
"""Dimensions of a signal: batch, channels, length."""
_ROW: Final = 2
"""The axis of height one: behind batch and channels, or input and output channels."""
_ALONG_A_ROW: Final = {"strides": 1, "dilations": 1, "kernel_shape": 1, "output_padding": 0}
"""Attributes with a number per axis, and what stands in them for the axis of height one."""


@legalises(
    "ConvTranspose",
    name="transposed_convolution",
    makes="a ConvTranspose of pictures of one row",
    needs="an operand of three dimensions",
    numbers="the same sums, which an engine may add up in another order",
)
def transposed_convolution(draft: Draft) -> ir.Value:
    """Write a transposed convolution of one dimension with one of two."""
    signal, kernel = draft.operand(0), draft.operand(1)
    if draft.rank(signal) != _SIGNAL:
        raise CannotExpandError(f"its operand has {draft.rank(signal)} dimensions, not {_SIGNAL}")
    # One constant for all three nodes: the axis is behind two others in the signal, the kernel and
    # the result alike.
    row = draft.integers(_ROW)
    picture = draft.op(
        "ConvTranspose",
        draft.op("Unsqueeze", signal, row),
        draft.op("Unsqueeze", kernel, row),
        draft.optional(2),
        **_attributes(draft),
    )
    return draft.op("Squeeze", picture, row)


def _attributes(draft: Draft) -> dict[str, Any]:
    """Return the attributes for an axis more, in front of the signal's own."""
    found: dict[str, Any] = {
        "auto_pad": draft.text("auto_pad", "NOTSET"),
        "group": draft.integer("group", 1),
    }
    for name, neutral in _ALONG_A_ROW.items():
        # What is not stated stays so: the operator then takes its defaults for both axes itself.
        if numbers := draft.list_of(name):
            found[name] = [neutral, *numbers]
    if length := draft.list_of("output_shape"):
        # Batch and channels may be stated, too; then the row goes behind them.
        found["output_shape"] = [*length[:-1], 1, length[-1]]
    if pads := draft.list_of("pads"):
        before, after = pads
        # All begins come before all ends, so that an axis more is put into either half.
        found["pads"] = [0, before, 0, after]
    return found
