"""Attention and rotary position embedding."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.values import torch_dtype


@dataclass(frozen=True)
class _Heads:
    """Query, key and value as [batch, heads, steps, features]."""

    query: Tensor
    key: Tensor
    value: Tensor
    flat: bool
    """Whether heads and features were one axis."""


@computes("Attention")
def attention(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor | tuple[Tensor | None, ...]:
    """Scaled dot-product attention with grouped queries, masks, a cache and a limit on scores."""
    heads = _heads(node, query, key, value)
    # Keys of the cache lie before the new ones, so that a query's own place is behind them.
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        # The cache is joined before masks are made, since these cover all keys.
        key, value = torch.cat([past_key, heads.key], 2), torch.cat([past_value, heads.value], 2)
        heads = _Heads(heads.query, key, value, heads.flat)
    bias = _bias(node, heads, mask, past, lengths)
    # torch's own operator is one node of a traced graph, but it neither returns scores nor caps
    # them.
    if _is_plain(node):
        result = _fused(node, heads, bias)
        return _joined(heads, result), heads.key, heads.value
    result, scores = _explicit(node, heads, bias)
    return _joined(heads, result), heads.key, heads.value, scores


def _heads(node: Node, query: Tensor, key: Tensor, value: Tensor) -> _Heads:
    if query.dim() == 4:
        return _Heads(query, key, value, flat=False)
    inner, outer = node.integer("kv_num_heads"), node.integer("q_num_heads")
    return _Heads(_parted(query, outer), _parted(key, inner), _parted(value, inner), flat=True)


def _parted(value: Tensor, heads: int) -> Tensor:
    batch, steps, width = value.shape
    return value.reshape(batch, steps, heads, width // heads).transpose(1, 2)


def _joined(heads: _Heads, result: Tensor) -> Tensor:
    return result.transpose(1, 2).flatten(2) if heads.flat else result


def _bias(
    node: Node, heads: _Heads, mask: Tensor | None, past: int, lengths: Tensor | None
) -> Tensor | None:
    """Return what is added to the scores: zeros where a query may look, else minus infinity."""
    steps, total = heads.query.shape[2], heads.key.shape[2]
    bias: Tensor | None = None
    if mask is not None:
        # A truth value that is set means "may look"; anything else is added to the scores as it is.
        bias = mask if mask.dtype != torch.bool else _closed(~mask, heads.query.dtype)
        # ONNX lets a mask be shorter than the keys, and closes what it does not mention.
        if bias.shape[-1] < total:
            bias = F.pad(bias, [0, total - bias.shape[-1]], value=-torch.inf)
    closed = _out_of_sight(node, steps, total, past, lengths)
    if closed is None:
        return bias
    shut = _closed(closed, heads.query.dtype)
    return shut if bias is None else bias + shut


def _out_of_sight(
    node: Node, steps: int, total: int, past: int, lengths: Tensor | None
) -> Tensor | None:
    """Return which keys a query must not look at because of where they are."""
    keys = torch.arange(total)
    own = torch.arange(steps).unsqueeze(1) + past
    if lengths is not None:
        # With lengths, the queries are the last ones of each sequence of the batch; the places of
        # the same query differ from element to element.
        own = own + (lengths - steps).reshape(-1, 1, 1, 1)
    left, right = node.integer("left_window_size", -1), node.integer("right_window_size", -1)
    closed: list[Tensor] = []
    if node.integer("is_causal"):
        closed.append(keys > own)
    if left >= 0:
        closed.append(keys < own - left)
    if right >= 0:
        closed.append(keys > own + right)
    if lengths is not None:
        # What lies behind a sequence's end is left over from padding.
        closed.append(keys >= lengths.reshape(-1, 1, 1, 1))
    return functools.reduce(torch.logical_or, closed) if closed else None


def _closed(places: Tensor, dtype: torch.dtype) -> Tensor:
    zero = torch.zeros(places.shape, dtype=dtype)
    return zero.masked_fill(places, -torch.inf)


def _is_plain(node: Node) -> bool:
    return (
        not node.wants(3)
        and node.number("softcap") == 0.0
        and not node.integer("softmax_precision")
    )


def _fused(node: Node, heads: _Heads, bias: Tensor | None) -> Tensor:
    scale = node.attributes.get("scale")
    return F.scaled_dot_product_attention(
        heads.query,
        heads.key,
        heads.value,
        bias,
        # torch takes 1/sqrt(features) for None, as ONNX does where the attribute is left out.
        scale=None if scale is None else float(scale),
        # torch refuses unequal counts of heads unless it is told that they are meant.
        enable_gqa=heads.query.shape[1] != heads.key.shape[1],
    )


def _explicit(node: Node, heads: _Heads, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute step by step; return the scores too, in the state that the attribute names."""
    groups = heads.query.shape[1] // heads.key.shape[1]
    # Queries that share a key are neighbours: repeat_interleave, not repeat.
    key, value = (item.repeat_interleave(groups, 1) for item in (heads.key, heads.value))
    scale = node.number("scale", heads.query.shape[-1] ** -0.5)
    scores = torch.matmul(heads.query, key.transpose(2, 3)) * scale
    limit = node.number("softcap")
    capped = torch.tanh(scores / limit) * limit if limit else scores
    masked = capped if bias is None else capped + bias
    precision = node.integer("softmax_precision")
    wide = masked.to(torch_dtype(precision)) if precision else masked
    probabilities = _softmax(wide, bias).to(scores.dtype)
    # The order is that of the attribute `qk_matmul_output_mode`, 0 to 3.
    states = (scores, capped, masked, probabilities)
    return torch.matmul(probabilities, value), states[node.integer("qk_matmul_output_mode")]


def _softmax(scores: Tensor, bias: Tensor | None) -> Tensor:
    """Return probabilities; zeros where a query may look at nothing."""
    if bias is None:
        return F.softmax(scores, -1)
    # A row of nothing but minus infinities would be NaN, forward and in its gradient. `where` on
    # the result alone would leave the gradient NaN, so the scores are replaced before.
    blind = torch.isneginf(bias.amax(-1, keepdim=True))
    seeing = torch.where(blind, torch.zeros_like(scores), scores)
    probabilities = F.softmax(seeing, -1)
    return torch.where(blind, torch.zeros_like(probabilities), probabilities)


@computes("RotaryEmbedding")
def rotary_embedding(
    node: Node, value: Tensor, cosines: Tensor, sines: Tensor, positions: Tensor | None = None
) -> Tensor:
    """Turn pairs of features by angles that grow with the position."""
    flat = value.dim() == 3
    heads = _parted(value, node.integer("num_heads")) if flat else value
    if positions is not None:
        cosines, sines = F.embedding(positions, cosines), F.embedding(positions, sines)
    cosines, sines = cosines.unsqueeze(1), sines.unsqueeze(1)
    # 0 stands for all features, and is the default of the attribute.
    width = node.integer("rotary_embedding_dim") or heads.shape[-1]
    turned, rest = heads[..., :width], heads[..., width:]
    if node.integer("interleaved"):
        left, right = turned[..., 0::2], turned[..., 1::2]
    else:
        left, right = turned.chunk(2, -1)
    real = left * cosines - right * sines
    imaginary = left * sines + right * cosines
    if node.integer("interleaved"):
        # Interleaved pairs are neighbours again, others lie half the width apart.
        result = torch.stack([real, imaginary], -1).flatten(-2)
    else:
        result = torch.cat([real, imaginary], -1)
    result = torch.cat([result, rest], -1)
    return result.transpose(1, 2).flatten(2) if flat else result
