"""Gates of onnxruntime's domain, and normalisations that stand before one."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.normalizations import normal
from samba_onnx.passes.rewrites.foreign.rules import expands


def _wide(draft: Draft, value: ir.Value) -> ir.Value:
    """Return an operand in float32, which these operators compute in whatever their type is."""
    if draft.dtype(value) == ir.DataType.FLOAT:
        return value
    return draft.op("Cast", value, to=ir.DataType.FLOAT)


def _narrow(draft: Draft, value: ir.Value) -> ir.Value:
    """Return a result in the type of the node's first operand."""
    dtype = draft.dtype(draft.operand(0))
    return value if dtype == ir.DataType.FLOAT else draft.op("Cast", value, to=dtype)


def _float(draft: Draft, number: float) -> ir.Value:
    return draft.constant(np.array(number, np.float32))


@expands(ONNXRUNTIME_DOMAIN, "GatedAdd")
def gated_add(draft: Draft) -> ir.Value:
    """Sum of the first operand and the product of the other two."""
    return draft.op("Add", draft.operand(0), draft.op("Mul", draft.operand(1), draft.operand(2)))


@expands(ONNXRUNTIME_DOMAIN, "ScaledSiLU")
def scaled_silu(draft: Draft) -> ir.Value:
    """A scaled value times its sigmoid."""
    value, scale = draft.operand(0), draft.optional(1)
    if scale is None:
        scale = draft.scalar(draft.number("alpha", 1.0), value)
    elif draft.dtype(scale) != draft.dtype(value):
        raise CannotExpandError("its scale has another type than its data")
    scaled = draft.op("Mul", value, scale)
    return draft.op("Mul", scaled, draft.op("Sigmoid", scaled))


@expands(ONNXRUNTIME_DOMAIN, "BiasSplitGelu")
def bias_split_gelu(draft: Draft) -> ir.Value:
    """The first half of a value with its bias, times the Gelu of the second."""
    value = draft.operand(0)
    # The size of the last axis decides where the halves meet, so that it must be static.
    half = draft.size(value, -1) // 2
    total = draft.op("Add", value, draft.operand(1))
    left, right = draft.several("Split", 2, total, draft.integers(half, half), axis=-1)
    return draft.op("Mul", left, draft.op("Gelu", right))


@expands(ONNXRUNTIME_DOMAIN, "LinearAttentionGate")
def linear_attention_gate(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Decay and update rate of a linear attention, in float32 until they are written."""
    total = draft.op("Add", _wide(draft, draft.operand(0)), draft.operand(1))
    decay = draft.op("Mul", draft.op("Softplus", total), draft.operand(2))
    rate = draft.optional(3)
    if rate is None:
        return (_narrow(draft, decay),)
    beta = draft.op("Sigmoid", _wide(draft, rate))
    return _narrow(draft, decay), _narrow(draft, beta)


@expands(ONNXRUNTIME_DOMAIN, "GatedRMSNorm")
def gated_rms_norm(draft: Draft) -> ir.Value:
    """Root mean square normalisation of every head, times an activation of the gate."""
    value, scale, gate = draft.operand(0), draft.operand(1), draft.operand(2)
    activation = draft.text("activation", "silu")
    if activation not in ("silu", "swish", "sigmoid"):
        raise CannotExpandError(f"its activation {activation} is none that onnxruntime gates with")
    width, rank = draft.size(scale, 0), draft.rank(value)
    # Zeros keep batch and length; the last axis becomes heads of the scale's width.
    heads = draft.integers(*[0] * (rank - 1), -1, width)
    # One head of the whole width needs no Reshape.
    split = draft.size(value, -1) != width
    wide, weights = _wide(draft, value), _wide(draft, gate)
    if split:
        wide, weights = (draft.op("Reshape", part, heads) for part in (wide, weights))
    scaled = draft.op("Mul", normal(draft, wide, _epsilon(draft)), _wide(draft, scale))
    opening = draft.op("Sigmoid", weights)
    if activation != "sigmoid":
        opening = draft.op("Mul", weights, opening)
    result = draft.op("Mul", scaled, opening)
    if split:
        result = draft.op("Reshape", result, draft.integers(*[0] * (rank - 1), -1))
    return _narrow(draft, result)


def _epsilon(draft: Draft) -> float:
    return draft.number("epsilon", 1e-5)


def _branches(draft: Draft, value: ir.Value) -> tuple[ir.Value, int, bool]:
    """Return streams as ``[..., branches, width]`` in float32, their number, and whether they were flat."""
    wide, number = _wide(draft, value), draft.integer("num_branches")
    # Without the attribute, branches have an axis of their own already.
    if not number:
        return wide, draft.size(value, -2), False
    shape = draft.integers(*[0] * (draft.rank(value) - 1), number, -1)
    return draft.op("Reshape", wide, shape), number, True


def _joined(draft: Draft, value: ir.Value, *, flat: bool) -> ir.Value:
    """Return streams in the form and type of the node's first operand."""
    if flat:
        rank = draft.rank(draft.operand(0))
        value = draft.op("Reshape", value, draft.integers(*[0] * (rank - 1), -1))
    return _narrow(draft, value)


@expands(ONNXRUNTIME_DOMAIN, "BranchwiseRMSNorm")
def branchwise_rms_norm(draft: Draft) -> ir.Value:
    """Root mean square normalisation of every branch; the scale may be one for all."""
    streams, number, flat = _branches(draft, draft.operand(0))
    result = normal(draft, streams, _epsilon(draft))
    scale = draft.optional(1)
    if scale is not None:
        weight = _wide(draft, scale)
        width = draft.size(draft.operand(0), -1) // (number if flat else 1)
        # One scale for all branches broadcasts; one for each comes as a flat row.
        if draft.rank(scale) == 1 and draft.size(scale, 0) == number * width and number > 1:
            weight = draft.op("Reshape", weight, draft.integers(number, width))
        result = draft.op("Mul", result, weight)
    return _joined(draft, result, flat=flat)


def _per_branch(draft: Draft, weights: ir.Value, rank: int, number: int) -> ir.Value:
    """Return weights of branches, ``[..., branches]`` or with features, in ``rank`` dimensions."""
    wide = _wide(draft, weights)
    if draft.rank(weights) == rank:
        return wide
    # Weights without features lack the last axis; flat ones have both in one.
    if draft.size(weights, -1) == number:
        return draft.op("Unsqueeze", wide, draft.integers(-1))
    return draft.op("Reshape", wide, draft.integers(*[0] * (rank - 2), number, -1))


@expands(ONNXRUNTIME_DOMAIN, "HyperConnectionPreMix")
def hyper_connection_pre_mix(draft: Draft) -> ir.Value:
    """Weighted sum of the branches."""
    streams, number, flat = _branches(draft, draft.operand(0))
    rank = draft.rank(draft.operand(0)) + int(flat)
    weights = _per_branch(draft, draft.operand(1), rank, number)
    product = draft.op("Mul", streams, weights)
    result = draft.op("ReduceSum", product, draft.integers(rank - 2), keepdims=0)
    factor = draft.number("reduction_scale", 1.0)
    if factor != 1:
        result = draft.op("Mul", result, _float(draft, factor))
    return _narrow(draft, result)


@expands(ONNXRUNTIME_DOMAIN, "HyperConnectionPostMix")
def hyper_connection_post_mix(draft: Draft) -> ir.Value:
    """Branches mixed with each other, and one more value with a weight for each."""
    streams, number, flat = _branches(draft, draft.operand(0))
    rank = draft.rank(draft.operand(0)) + int(flat)
    mix = draft.optional(3)
    if mix is not None:
        # Mixing is along branches: result j has branch i with the weight at (i, j), hence the
        # transposed matrix.
        order = [*range(rank - 2), rank - 1, rank - 2]
        streams = draft.op("MatMul", draft.op("Transpose", _wide(draft, mix), perm=order), streams)
    block = draft.op("Unsqueeze", _wide(draft, draft.operand(1)), draft.integers(-2))
    weights = _per_branch(draft, draft.operand(2), rank, number)
    return _joined(draft, draft.op("Add", streams, draft.op("Mul", weights, block)), flat=flat)


@expands(ONNXRUNTIME_DOMAIN, "EngramGate")
def engram_gate(draft: Draft) -> tuple[ir.Value | None, ...]:
    """A value gated by how alike its normalised key and query are, and its normalisation."""
    epsilon, width = _epsilon(draft), draft.size(draft.operand(0), -1)
    key, query = (
        draft.op(
            "Mul",
            normal(draft, _wide(draft, draft.operand(at)), epsilon),
            _wide(draft, draft.operand(at + 3)),
        )
        for at in (0, 1)
    )
    total = draft.op("ReduceSum", draft.op("Mul", key, query), draft.integers(-1), keepdims=1)
    score = draft.op("Mul", total, _float(draft, 1 / math.sqrt(width)))
    # The kernel takes the root of 1e-6 at least; a score of zero has the sign 0 in any case.
    size = draft.op("Max", draft.op("Abs", score), _float(draft, 1e-6))
    root = draft.op("Mul", draft.op("Sign", score), draft.op("Sqrt", size))
    value = draft.op("Unsqueeze", _wide(draft, draft.operand(2)), draft.integers(2))
    gated = draft.op("Mul", draft.op("Sigmoid", root), value)
    # The normalisation is left out where nobody reads it.
    if not draft.is_read(1):
        return (_narrow(draft, gated),)
    scale = _wide(draft, draft.operand(5))
    return _narrow(draft, gated), _narrow(
        draft, draft.op("Mul", normal(draft, gated, epsilon), scale)
    )
