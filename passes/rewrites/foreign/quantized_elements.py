"""Quantised operators other than products: computed on the numbers that the integers stand for."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.convolutions import (
    WINDOW,
    attributes_of,
    channels_first,
    channels_last,
)
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.quantization import dequantized, quantized
from samba_onnx.passes.rewrites.foreign.rules import expands


@expands(ONNXRUNTIME_DOMAIN, "QLinearAdd", "QLinearMul")
def quantized_pair(draft: Draft) -> ir.Value:
    """Sum or product of two operands, each with a scale and a zero point of its own."""
    operator = draft.node.op_type.removeprefix("QLinear")
    result = draft.op(operator, dequantized(draft, (0, 1, 2)), dequantized(draft, (3, 4, 5)))
    return quantized(draft, result, (6, 7), 0)


@expands(ONNXRUNTIME_DOMAIN, "QLinearSigmoid")
def quantized_sigmoid(draft: Draft) -> ir.Value:
    """Sigmoid of the numbers that integers stand for, written as integers of another scale."""
    return quantized(draft, draft.op("Sigmoid", dequantized(draft, (0, 1, 2))), (3, 4), 0)


@expands(ONNXRUNTIME_DOMAIN, "QLinearLeakyRelu")
def quantized_leaky_relu(draft: Draft) -> ir.Value:
    """Leaky rectified linear unit of the numbers that integers stand for."""
    alpha = draft.number("alpha", 0.01)
    result = draft.op("LeakyRelu", dequantized(draft, (0, 1, 2)), alpha=alpha)
    return quantized(draft, result, (3, 4), 0)


@expands(ONNXRUNTIME_DOMAIN, "QLinearSoftmax")
def quantized_softmax(draft: Draft) -> ir.Value:
    """Softmax over an axis; before version 13 it was over all axes from there on."""
    value, axis = draft.operand(0), draft.integer("axis", -1)
    rank = draft.rank(value)
    # ONNX's Softmax of today is over one axis only.
    if draft.integer("opset", 13) < 13 and axis % rank != rank - 1:
        raise CannotExpandError(f"it is of an old version and over all axes from {axis} on")
    return quantized(
        draft, draft.op("Softmax", dequantized(draft, (0, 1, 2)), axis=axis), (3, 4), 0
    )


@expands(ONNXRUNTIME_DOMAIN, "QLinearAveragePool")
def quantized_average_pool(draft: Draft) -> ir.Value:
    """Mean over windows; channels may come last."""
    attributes = attributes_of(draft, "ceil_mode", "count_include_pad", *WINDOW)
    value, rank = dequantized(draft, (0, 1, 2)), draft.rank(draft.operand(0))
    if not draft.integer("channels_last"):
        return quantized(draft, draft.op("AveragePool", value, **attributes), (3, 4), 0)
    if draft.integer("ceil_mode") and draft.integer("count_include_pad"):
        # Its two kernels differ: this one divides by what lies beyond the padding, too.
        raise CannotExpandError("it counts what is beyond its padding, since its channels are last")
    pooled = draft.op("AveragePool", channels_first(draft, value, rank), **attributes)
    return quantized(draft, channels_last(draft, pooled, rank), (3, 4), 0)


@expands(ONNXRUNTIME_DOMAIN, "QLinearGlobalAveragePool")
def quantized_global_average_pool(draft: Draft) -> ir.Value:
    """Mean over all positions; channels may come last."""
    rank = draft.rank(draft.operand(0))
    # A mean over axes knows of no layout, so that channels may stay where they are.
    first = 1 if draft.integer("channels_last") else 2
    axes = draft.integers(*range(first, first + rank - 2))
    mean = draft.op("ReduceMean", dequantized(draft, (0, 1, 2)), axes, keepdims=1)
    return quantized(draft, mean, (3, 4), 0)


@expands(ONNXRUNTIME_DOMAIN, "QLinearReduceMean")
def quantized_reduce_mean(draft: Draft) -> ir.Value:
    """Mean over some axes, or all."""
    axes = draft.list_of("axes") or list(range(draft.rank(draft.operand(0))))
    value, keep = dequantized(draft, (0, 1, 2)), draft.integer("keepdims", 1)
    mean = draft.op("ReduceMean", value, draft.integers(*axes), keepdims=keep)
    return quantized(draft, mean, (3, 4), 0)


@expands(ONNXRUNTIME_DOMAIN, "QLinearConcat")
def quantized_concat(draft: Draft) -> ir.Value:
    """Concatenation of values that each have a scale of their own."""
    # Scale and zero point of the result come first, then three operands for each part.
    starts = range(2, len(draft.node.inputs), 3)
    parts = [dequantized(draft, (at, at + 1, at + 2)) for at in starts]
    result = draft.op("Concat", *parts, axis=draft.integer("axis"))
    return quantized(draft, result, (0, 1), 2)


@expands(ONNXRUNTIME_DOMAIN, "QLinearWhere")
def quantized_where(draft: Draft) -> ir.Value:
    """Choice between two values that each have a scale of their own."""
    first, second = dequantized(draft, (1, 2, 3)), dequantized(draft, (4, 5, 6))
    return quantized(draft, draft.op("Where", draft.operand(0), first, second), (7, 8), 1)


@expands(ONNXRUNTIME_DOMAIN, "NhwcMaxPool")
def nhwc_max_pool(draft: Draft) -> ir.Value:
    """Largest of each window, with channels last; the integers are compared as they are."""
    rank = draft.rank(draft.operand(0))
    # A scale is positive, so that the largest integer is the largest number.
    value = channels_first(draft, draft.operand(0), rank)
    attributes = attributes_of(draft, "ceil_mode", *WINDOW)
    return channels_last(draft, draft.op("MaxPool", value, **attributes), rank)
