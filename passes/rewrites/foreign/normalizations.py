"""Normalisations of onnxruntime's domain, of sums and of embeddings."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.rules import expands

_EPSILON = 1e-12
"""Default epsilon of onnxruntime's operators of sums and embeddings, which they add to a variance."""


def root_mean_square(
    draft: Draft, value: ir.Value, scale: ir.Value, epsilon: float, axis: int = -1
) -> ir.Value:
    """Write a value divided by its root mean square over the axes from ``axis`` on, scaled.

    float16 and bfloat16 are computed in float32, as onnxruntime does.
    """
    dtype = draft.dtype(draft.operand(0))
    wide = value
    if dtype != ir.DataType.FLOAT:
        wide = draft.op("Cast", value, to=ir.DataType.FLOAT)
    # Over the last axis the rank of the operand need not be known.
    rank = 1 if axis == -1 else draft.rank(draft.operand(0)) - axis % draft.rank(draft.operand(0))
    result = normal(draft, wide, epsilon, rank)
    if dtype != ir.DataType.FLOAT:
        result = draft.op("Cast", result, to=dtype)
    # Rounded first, then scaled: the scale has the operand's own type.
    return draft.op("Mul", result, scale)


def normal(draft: Draft, value: ir.Value, epsilon: float, rank: int = 1) -> ir.Value:
    """Write a value of float32 divided by its root mean square over the last ``rank`` axes."""
    axes = draft.integers(*range(-rank, 0))
    # A product and not Pow: it is exact where a power may be computed by logarithms.
    mean = draft.op("ReduceMean", draft.op("Mul", value, value), axes)
    shifted = draft.op("Add", mean, draft.constant(np.array(epsilon, np.float32)))
    return draft.op("Div", value, draft.op("Sqrt", shifted))


@expands("", "SimplifiedLayerNormalization")
@expands(ONNXRUNTIME_DOMAIN, "SimplifiedLayerNormalization")
def simplified_layer_normalization(draft: Draft) -> ir.Value:
    """Root mean square normalisation under the name that onnxruntime's optimizer gives it."""
    axis, epsilon = draft.integer("axis", -1), draft.number("epsilon", 1e-5)
    return root_mean_square(draft, draft.operand(0), draft.operand(1), epsilon, axis)


@expands(ONNXRUNTIME_DOMAIN, "SkipLayerNormalization")
def skip_layer_normalization(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Layer normalisation of a sum, and the sum."""
    total = _sum(draft, 4)
    shift = draft.optional(3)
    result = layer_normalization(draft, total, draft.operand(2), shift)
    # Mean and inverse deviation are outputs for training only; the sum is the fourth one.
    return result, None, None, total


@expands(ONNXRUNTIME_DOMAIN, "SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Root mean square normalisation of a sum, and the sum."""
    total = _sum(draft, 3)
    epsilon = draft.number("epsilon", _EPSILON)
    return root_mean_square(draft, total, draft.operand(2), epsilon), None, None, total


def _sum(draft: Draft, bias_position: int) -> ir.Value:
    bias = draft.optional(bias_position)
    total = draft.op("Add", draft.operand(0), draft.operand(1))
    return total if bias is None else draft.op("Add", total, bias)


def layer_normalization(
    draft: Draft, value: ir.Value, scale: ir.Value, shift: ir.Value | None
) -> ir.Value:
    """Write a layer normalisation over the last axis."""
    inputs = [value, scale, *([] if shift is None else [shift])]
    epsilon = draft.number("epsilon", _EPSILON)
    return draft.op("LayerNormalization", *inputs, axis=-1, epsilon=epsilon)


@expands(ONNXRUNTIME_DOMAIN, "GroupNorm")
def group_norm(draft: Draft) -> ir.Value:
    """Normalisation of groups of channels, which may come last."""
    return _group_norm(draft, draft.operand(0))


@expands(ONNXRUNTIME_DOMAIN, "SkipGroupNorm")
def skip_group_norm(draft: Draft) -> tuple[ir.Value, ir.Value]:
    """Normalisation of groups of channels of a sum, and the sum."""
    value, skip, bias = draft.operand(0), draft.operand(3), draft.optional(4)
    # Channels last is the default of this operator, unlike of ONNX's.
    rank, last = draft.rank(value), bool(draft.integer("channels_last", 1))
    axes = draft.integers(*(range(1, rank - 1) if last else range(2, rank)))
    # Without positions the addend is the same for all of them.
    if draft.rank(skip) == 2:
        skip = draft.op("Unsqueeze", skip, axes)
    total = draft.op("Add", value, skip)
    if bias is not None:
        behind = draft.integers(*range(1, rank - 1))
        total = draft.op("Add", total, bias if last else draft.op("Unsqueeze", bias, behind))
    return _group_norm(draft, total), total


def _group_norm(draft: Draft, value: ir.Value) -> ir.Value:
    """Write the normalisation in float32 if the scale is, as onnxruntime computes it."""
    scale, shift = draft.operand(1), draft.operand(2)
    dtype, inner = draft.dtype(draft.operand(0)), draft.dtype(scale)
    rank = draft.rank(draft.operand(0))
    last = bool(draft.integer("channels_last", 1))
    # ONNX's operator has channels behind the batch.
    if last:
        value = draft.op("Transpose", value, perm=[0, rank - 1, *range(1, rank - 1)])
    if inner != dtype:
        value = draft.op("Cast", value, to=inner)
    groups, epsilon = draft.count("groups"), draft.number("epsilon", 1e-5)
    result = draft.op("GroupNormalization", value, scale, shift, num_groups=groups, epsilon=epsilon)
    if draft.integer("activation"):
        result = draft.op("Mul", result, draft.op("Sigmoid", result))
    if inner != dtype:
        result = draft.op("Cast", result, to=dtype)
    return draft.op("Transpose", result, perm=[0, *range(2, rank), 1]) if last else result
