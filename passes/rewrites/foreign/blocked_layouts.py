"""Operators whose channels onnxruntime lays out in blocks, as the vectors of a processor hold them.

Between ReorderInput and ReorderOutput all values are of that layout, though their shapes say nothing of it:
``[batch, channels, *spatial]``, with channels filled up to whole blocks. These rules write the same values
in the order that the shapes state. They are right only together: a node that stayed would read what it takes
for blocks. :class:`~samba_onnx.passes.rewrites.expand_blocked_layouts.ExpandBlockedLayoutsPass` sees to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.foreign.convolutions import (
    WINDOW,
    activated,
    attributes_of,
    channels_first,
    channels_last,
    convolve,
)
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.lazy_weights import Array
from samba_onnx.passes.rewrites.rewriting import WEIGHT


def _convolution(draft: Draft, block: int) -> ir.Value:
    """Convolution, a value that is added, and an activation."""
    weight, addend = _weight(draft, block), draft.optional(3)
    result = convolve(draft, draft.operand(0), weight, draft.optional(2))
    return activated(draft, result if addend is None else draft.op("Add", result, addend))


def _weight(draft: Draft, block: int) -> ir.Value:
    """Write the weight ``[outputs, inputs, *window]``, whose numbers lie in blocks of outputs and inputs.

    A weight of fewer inputs than a block, and one of a convolution of every channel with itself, have
    blocks of outputs only.
    """
    operand = draft.operand(1)
    tensor, shape = draft.known(operand, "its weight"), draft.shape(operand)
    if len(shape) < 3:
        raise CannotExpandError(f"its weight of {len(shape)} dimensions is none of a convolution")
    outputs, inputs, *window = shape
    # onnxruntime's kernels read an input of a few channels, as of a picture, without blocks of
    # inputs.
    single = inputs < block if draft.integer("group", 1) == 1 else inputs == 1
    # The width of blocks is that of this machine's vectors; a model that was saved elsewhere has
    # others.
    if outputs % block or (not single and inputs % block):
        raise CannotExpandError(
            f"its weight of {outputs} by {inputs} channels has no whole blocks of {block}, as this "
            "machine's processor wants them: it was saved on another kind of machine"
        )
    spatial = range(2, 2 + len(window))
    if single:
        stored = (outputs // block, inputs, *window, block)
        order = (0, len(stored) - 1, 1, *spatial)
    else:
        stored = (outputs // block, inputs // block, *window, block, block)
        order = (0, len(stored) - 1, 1, len(stored) - 2, *spatial)

    # Computed when it is read: a weight may be large, and lie in an external file.
    def compute() -> ir.TensorProtocol:
        numbers: Array = tensor.numpy().reshape(stored).transpose(order).reshape(shape)
        return ir.Tensor(np.ascontiguousarray(numbers))

    value = draft.tensor(ir.LazyTensor(compute, dtype=tensor.dtype, shape=ir.Shape(list(shape))))
    value.meta[WEIGHT] = True
    return value


def _pool(draft: Draft, block: int) -> ir.Value:
    """Mean or largest number of windows, or of all positions."""
    attributes = attributes_of(draft, "ceil_mode", "count_include_pad", *WINDOW)
    return draft.op(draft.node.op_type, draft.operand(0), **attributes)


def _to_blocks(draft: Draft, block: int) -> ir.Value:
    """Fill the channels up to whole blocks; they may come last."""
    value = draft.operand(0)
    rank, last = draft.rank(value), bool(draft.integer("channels_last"))
    # The remainder to the next whole block; none where the channels fill their blocks.
    missing = -draft.size(value, rank - 1 if last else 1) % block
    if last:
        value = channels_first(draft, value, rank)
    if missing:
        sizes = draft.integers(*[0] * (rank + 1), missing, *[0] * (rank - 2))
        value = draft.op("Pad", value, sizes)
    return value


def _from_blocks(draft: Draft, block: int) -> ir.Value:
    """Take the channels that the blocks were filled up from; they may come last."""
    # The attribute knows how many channels there were before blocks were filled up.
    value, channels = draft.operand(0), draft.count("channels")
    rank = draft.rank(value)
    if draft.size(value, 1) != channels:
        bounds = (draft.integers(number) for number in (0, channels, 1))
        value = draft.op("Slice", value, *bounds)
    return channels_last(draft, value, rank) if draft.integer("channels_last") else value


def _upsample(draft: Draft, block: int) -> ir.Value:
    """Enlargement of all positions by whole factors."""
    factors = draft.constant(np.array(draft.list_of("scales"), np.float32))
    attributes = attributes_of(draft, "coordinate_transformation_mode", "mode")
    if draft.text("mode", "nearest") == "nearest":
        attributes["nearest_mode"] = "floor"  # the only one that onnxruntime has in blocks
    return draft.op("Resize", draft.operand(0), None, factors, **attributes)


BlockedRule = Callable[[Draft, int], ir.Value]
"""Writes what a node computes, for a layout whose blocks have so many channels."""

BLOCKED_RULES: Final[Mapping[str, BlockedRule]] = {
    "AveragePool": _pool,
    "Conv": _convolution,
    "GlobalAveragePool": _pool,
    "GlobalMaxPool": _pool,
    "MaxPool": _pool,
    "ReorderInput": _to_blocks,
    "ReorderOutput": _from_blocks,
    "Upsample": _upsample,
}
"""Rules by operator of ``com.microsoft.nchwc``: all that there are."""
