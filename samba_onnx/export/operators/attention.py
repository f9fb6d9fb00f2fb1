"""Scaled dot-product attention, in the forms that ATen has."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.export.operators.registry import Context, Result, translates
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes

_NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@translates("scaled_dot_product_attention")
def scaled_dot_product_attention(
    context: Context,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_mask: ir.Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ir.Value:
    """Attend; a row without anything to attend to gives zeros."""
    if dropout_p:
        raise ModelError(
            f"{context.operator} drops {dropout_p:g} of the attention weights outside training: "
            "pass dropout_p=0.0 in evaluation, as torch.nn.MultiheadAttention does"
        )
    build = context.build
    if is_causal:
        attn_mask = _causal(build, sizes(query)[-2], sizes(key)[-2])
    shared = enable_gqa and sizes(query)[-3] != sizes(key)[-3]
    if shared:
        heads = sizes(key)[-3]
        query, attn_mask = _grouped(build, query, heads), _grouped_mask(build, attn_mask, heads)
        key, value = (_single(build, operand) for operand in (key, value))
    result = attend(build, query, key, value, attn_mask, scale)[0]
    # The stand-in for minus infinity is finite, and would make such a row the mean of all values. A
    # causal row attends to the first column at least.
    if attn_mask is not None and not is_causal:
        result = build.where(_attends(build, attn_mask), result, 0)
    return build.reshape(result, context.result.shape)


def attend(
    build: GraphBuilder,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    mask: ir.Value | None,
    scale: float | None,
) -> tuple[ir.Value, ir.Value]:
    """Return the weighted sums of values, and the weights.

    Scores of bfloat16 are not rounded: they stay in float32, in which products are added up, until they are
    weights, as in torch's own kernel.

    Args:
        build: The graph.
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, Ev).
        mask: True where to attend, or a number to add; broadcast to (..., L, S).
        scale: Factor of the scores; 1/sqrt(E) when None.

    Returns:
        (..., L, Ev) and (..., L, S). Not zero in a row without anything to attend to.
    """
    width = sizes(query)[-1]
    factor = (1.0 / math.sqrt(width) if width else 1.0) if scale is None else scale
    last = len(sizes(key)) - 1
    turned = build.transpose(key, [*range(last - 1), last, last - 1])
    dtype = element(query)
    if dtype == ir.DataType.BFLOAT16:
        wide = [build.cast(operand, ir.DataType.FLOAT) for operand in (query, turned)]
        scores = build.multiply(build.matmul(*wide), factor)
    else:
        # Before the product, since the query is smaller than the scores mostly are.
        scores = build.matmul(build.multiply(query, factor), turned)
    if mask is not None:
        scores = build.add(scores, _addend(build, mask, element(scores)))
    weights = build.cast(build.unary("Softmax", scores, axis=-1), dtype)
    return build.matmul(weights, value), weights


def _causal(build: GraphBuilder, rows: int, columns: int) -> ir.Value:
    return build.constant(np.tri(rows, columns, dtype=bool), ir.DataType.BOOL)


def _addend(build: GraphBuilder, mask: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return what to add to scores: minus infinity's stand-in where a mask is false."""
    # Well within the range of float16, so that a score can be added to it.
    lowest = float(np.finfo(np.float32).min) if dtype not in _NARROW else -30000.0
    if element(mask) != ir.DataType.BOOL:
        # A row of nothing but minus infinity would not be a number.
        return build.binary("Max", build.cast(mask, dtype), lowest)
    # A constant mask is turned into an addend here, and not in every run.
    if mask.const_value is not None:
        content = np.where(mask.const_value.numpy(), 0.0, lowest)
        return build.constant(content, dtype)
    return build.where(mask, build.constant(0.0, dtype), lowest)


def _attends(build: GraphBuilder, mask: ir.Value) -> ir.Value:
    """Return which rows attend to anything."""
    if element(mask) == ir.DataType.BOOL:
        open_ = build.cast(mask, ir.DataType.FLOAT)
        return build.cast(build.reduce("ReduceMax", open_, [-1], keep=True), ir.DataType.BOOL)
    best = build.reduce("ReduceMax", mask, [-1], keep=True)
    return build.compare("Greater", best, float("-inf"))


def _grouped(build: GraphBuilder, query: ir.Value, heads: int) -> ir.Value:
    """Return queries with an axis for those that share a head of key and value."""
    shape = sizes(query)
    return build.reshape(query, [*shape[:-3], heads, shape[-3] // heads, *shape[-2:]])


def _grouped_mask(build: GraphBuilder, mask: ir.Value | None, heads: int) -> ir.Value | None:
    if mask is None or len(sizes(mask)) < 3:
        return mask
    return _single(build, mask) if sizes(mask)[-3] == 1 else _grouped(build, mask, heads)


def _single(build: GraphBuilder, operand: ir.Value) -> ir.Value:
    shape = sizes(operand)
    return build.reshape(operand, [*shape[:-2], 1, *shape[-2:]])


@translates("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    context: Context,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: ir.Value | None = None,
    scale: float | None = None,
) -> Result:
    """Attend, and return the logarithms of the sums that scores were normalised by."""
    result = scaled_dot_product_attention(
        context=context,
        query=query,
        key=key,
        value=value,
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        is_causal=is_causal,
        scale=scale,
    )
    build = context.build
    width = sizes(query)[-1]
    turned = build.transpose(key, [0, 1, 3, 2])
    scores = build.matmul(build.multiply(query, width**-0.5 if scale is None else scale), turned)
    mask = _causal(build, *sizes(scores)[-2:]) if is_causal else attn_mask
    if mask is not None:
        scores = build.add(scores, _addend(build, mask, element(scores)))
    sums = build.reduce("ReduceLogSumExp", scores, [-1])
    second = context.results[1]
    return [result, second and build.cast(sums, second.dtype)]
