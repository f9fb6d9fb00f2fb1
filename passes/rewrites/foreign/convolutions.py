"""Convolutions that onnxruntime fuses with what stands around them, or lays out with channels last."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import CHANNELS_LAST_DOMAIN, ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.activation_functions import activate
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.rules import expands

WINDOW = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
"""Attributes of convolutions and pooling that onnxruntime's operators have in common with ONNX's."""


def attributes_of(draft: Draft, *names: str) -> dict[str, Any]:
    """Return the values of those of some attributes that the node states."""
    # Only what is stated is passed on, so that ONNX's own defaults hold for the rest.
    return {
        name: draft.node.attributes[name].value for name in names if name in draft.node.attributes
    }


def channels_first(draft: Draft, value: ir.Value, rank: int) -> ir.Value:
    """Write a value whose channels come last, ``[batch, *spatial, channels]``, with them after the batch."""
    return draft.op("Transpose", value, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(draft: Draft, value: ir.Value, rank: int) -> ir.Value:
    """Write a value ``[batch, channels, *spatial]`` with its channels last."""
    return draft.op("Transpose", value, perm=[0, *range(2, rank), 1])


def convolve(draft: Draft, value: ir.Value, weight: ir.Value, bias: ir.Value | None) -> ir.Value:
    """Write a convolution with the attributes of the node."""
    inputs = [value, weight, *([] if bias is None else [bias])]
    return draft.op("Conv", *inputs, **attributes_of(draft, "group", *WINDOW))


def activated(draft: Draft, value: ir.Value) -> ir.Value:
    """Write the activation that a fused convolution applies last."""
    numbers = draft.list_of("activation_params")
    # Parameters have no names here: their order is that of the activation's own.
    stated = dict(zip(("alpha", "beta", "gamma"), numbers, strict=False))
    return activate(draft, value, draft.text("activation", ""), stated)


@expands(ONNXRUNTIME_DOMAIN, "FusedConv")
def fused_conv(draft: Draft) -> ir.Value:
    """Convolution, a value that is added, and an activation."""
    result = convolve(draft, draft.operand(0), draft.operand(1), draft.optional(2))
    addend = draft.optional(3)
    return activated(draft, result if addend is None else draft.op("Add", result, addend))


@expands(ONNXRUNTIME_DOMAIN, "NhwcConv")
def nhwc_conv(draft: Draft) -> ir.Value:
    """Convolution with channels last in data and weight, as the optimizer for diffusion models writes it."""
    rank = draft.rank(draft.operand(0))
    value = channels_first(draft, draft.operand(0), rank)
    weight = channels_first(draft, draft.operand(1), rank)
    return channels_last(draft, convolve(draft, value, weight, draft.optional(2)), rank)


@expands(ONNXRUNTIME_DOMAIN, "NhwcFusedConv")
def nhwc_fused_conv(draft: Draft) -> ir.Value:
    """Convolution with channels last in data only, a value that is added, and an activation."""
    rank = draft.rank(draft.operand(0))
    # Only data are turned: the kernel for inference keeps weights as ONNX has them.
    value, addend = channels_first(draft, draft.operand(0), rank), draft.optional(3)
    result = channels_last(draft, convolve(draft, value, draft.operand(1), draft.optional(2)), rank)
    return activated(draft, result if addend is None else draft.op("Add", result, addend))


@expands(ONNXRUNTIME_DOMAIN, "ConvTransposeWithDynamicPads")
def conv_transpose_with_dynamic_pads(draft: Draft) -> ir.Value:
    """Transposed convolution; what is an attribute in ONNX must be constant."""
    bias, pads = draft.optional(3), draft.optional(2)
    attributes = attributes_of(
        draft, "auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides"
    )
    if pads is not None:
        attributes["pads"] = [
            int(size) for size in draft.known(pads, "its padding").numpy().ravel()
        ]
    inputs = [draft.operand(0), draft.operand(1), *([] if bias is None else [bias])]
    return draft.op("ConvTranspose", *inputs, **attributes)


@expands(ONNXRUNTIME_DOMAIN, "CausalConvWithState")
def causal_conv_with_state(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Convolution of every channel with itself over earlier positions, of which a state keeps the last.

    Data and state are ``[batch, channels, length]``.
    """
    draft.refuse_attributes(ndim=1, channels_last=0, state_window=0)
    activation = draft.text("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise CannotExpandError(f"its activation {activation} is none that onnxruntime fuses")
    value, weight, bias = draft.operand(0), draft.operand(1), draft.optional(2)
    dilation = draft.integer("dilation", 1)
    # Positions that a kernel reaches back to, beside the one that it stands on.
    earlier = (draft.size(weight, 2) - 1) * dilation
    length, channels = draft.size(value, 2), draft.size(value, 1)
    state = draft.optional(3)
    # Before the first position there are zeros.
    if state is None:
        shape = (draft.size(value, 0), channels, earlier)
        state = draft.tensor(ir.tensor(np.zeros(shape, draft.dtype(value).numpy())))
    whole = draft.op("Concat", state, value, axis=2) if earlier else value
    inputs = [whole, weight, *([] if bias is None else [bias])]
    result = draft.op("Conv", *inputs, group=channels, dilations=[dilation])
    if activation != "none":
        result = draft.op("Mul", result, draft.op("Sigmoid", result))
    if not draft.is_read(1):
        return (result,)
    # What the next run needs of this one: the last positions of state and data together.
    bounds = [draft.integers(number) for number in (length, length + earlier, 2)]
    return result, draft.op("Slice", whole, *bounds)


@expands(
    CHANNELS_LAST_DOMAIN,
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "ConvTranspose",
    "DepthToSpace",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "InstanceNormalization",
    "LRN",
    "LpPool",
    "MaxPool",
    "SpaceToDepth",
)
def internal_with_channels_last(draft: Draft) -> ir.Value:
    """ONNX's operator of the same name, with channels last in data and result, but not in weights."""
    rank = draft.rank(draft.operand(0))
    value = channels_first(draft, draft.operand(0), rank)
    attributes = attributes_of(draft, *draft.node.attributes)
    # Further operands are weights, scales and statistics by channel, which have no layout.
    result = draft.op(draft.node.op_type, value, *draft.node.inputs[1:], **attributes)
    return channels_last(draft, result, rank)
