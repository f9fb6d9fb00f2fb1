"""Attention over whole sequences, as onnxruntime's optimizer fuses it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.quantization import dequantized
from samba_onnx.passes.rewrites.foreign.rules import expands

# Finite, so that a row that hides everything is still a softmax of numbers.
_FILTER = -10000.0
"""The number that onnxruntime adds to the score of a position that a mask hides."""


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values of one attention, each ``[batch, heads, length, head size]``."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    size: int
    """Numbers of a head of queries and keys."""


def like(draft: Draft) -> ir.Value:
    """Return the operand whose type an attention computes in: the data, or the scale of quantised data."""
    return draft.operand(3 if draft.node.op_type == "QAttention" else 0)


def split_heads(draft: Draft, value: ir.Value, heads: int) -> ir.Value:
    # Zeros in a Reshape keep what is there, so that batch and length may be dynamic.
    """Write ``[batch, length, heads * size]`` as ``[batch, heads, length, size]``."""
    split = draft.op("Reshape", value, draft.integers(0, 0, heads, -1))
    return draft.op("Transpose", split, perm=[0, 2, 1, 3])


def join_heads(draft: Draft, value: ir.Value, width: int) -> ir.Value:
    """Write ``[batch, heads, length, size]`` as ``[batch, length, width]``."""
    back = draft.op("Transpose", value, perm=[0, 2, 1, 3])
    return draft.op("Reshape", back, draft.integers(0, 0, width))


def scores(draft: Draft, heads: Heads, scale: float) -> ir.Value:
    """Write the products of queries with keys, scaled by ``scale`` or the root of the head's size."""
    # The queries are scaled and not the scores, which are more numbers wherever the sequence is
    # longer than a head.
    factor = scale or 1 / math.sqrt(heads.size)
    scaled = draft.op("Mul", heads.query, draft.scalar(factor, like(draft)))
    return draft.op("MatMul", scaled, draft.op("Transpose", heads.key, perm=[0, 1, 3, 2]))


def attend(draft: Draft, heads: Heads, *addends: ir.Value | None) -> ir.Value:
    """Write the values weighted by the softmax of the scores, to which addends are added."""
    total = scores(draft, heads, draft.number("scale", 0.0))
    for addend in addends:
        if addend is not None:
            total = draft.op("Add", total, addend)
    return draft.op("MatMul", draft.op("Softmax", total, axis=-1), heads.value)


@expands(ONNXRUNTIME_DOMAIN, "Attention")
def attention(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Attention of a sequence to itself and to what a cache holds, with one product for all heads.

    The cache is ``[2, batch, heads, length, size]``: keys, then values.
    """
    draft.refuse_inputs(6)
    product = draft.op("MatMul", draft.operand(0), draft.operand(1))
    others = draft.optional(3), draft.optional(4), draft.optional(5)
    return _attention(draft, product, *others)


@expands(ONNXRUNTIME_DOMAIN, "QAttention")
def quantized_attention(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Attention of a sequence to itself whose data and weights are integers."""
    source, weights = dequantized(draft, (0, 3, 6)), dequantized(draft, (1, 4, 7), 1)
    product = draft.op("MatMul", source, weights)
    return _attention(draft, product, draft.optional(5), draft.optional(8), None)


def _attention(
    draft: Draft,
    product: ir.Value,
    mask: ir.Value | None,
    past: ir.Value | None,
    addend: ir.Value | None,
) -> tuple[ir.Value | None, ...]:
    """Write attention whose product of data and weights is there; these and the bias are operands 0 to 2."""
    draft.refuse_attributes(do_rotary=0, past_present_share_buffer=0)
    source, weights, bias = draft.operand(0), draft.operand(1), draft.optional(2)
    number = draft.count("num_heads")
    # One weight for all three where no widths are stated: queries, keys and values of equal width.
    widths = draft.list_of("qkv_hidden_sizes") or [draft.size(weights, 1) // 3] * 3
    if bias is not None:
        product = draft.op("Add", product, bias)
    parts = draft.several("Split", 3, product, draft.integers(*widths), axis=-1)
    query, key, value = (split_heads(draft, part, number) for part in parts)
    length, earlier = draft.size(source, 1), 0
    # The cache holds both in one tensor, keys first; new positions stand behind the cached ones.
    if past is not None:
        earlier = draft.size(past, 3)
        key, value = (
            draft.op(
                "Concat", draft.op("Gather", past, draft.constant(np.array(index))), new, axis=2
            )
            for index, new in enumerate((key, value))
        )
    heads = Heads(query, key, value, widths[0] // number)
    hidden = _hidden(draft, mask, length, earlier + length)
    causal = causal_mask(draft, length, earlier) if draft.integer("unidirectional") else None
    result = attend(draft, heads, hidden, causal, addend)
    return join_heads(draft, result, widths[2]), _pair(draft, key, value)


def _pair(draft: Draft, key: ir.Value, value: ir.Value) -> ir.Value | None:
    # Joining both is a copy of the whole cache, which is written only for a reader.
    if not draft.is_read(1):
        return None
    both = [draft.op("Unsqueeze", part, draft.integers(0)) for part in (key, value)]
    return draft.op("Concat", *both, axis=0)


def causal_mask(draft: Draft, length: int, earlier: int) -> ir.Value:
    """Write what hides later positions from ``length`` queries behind ``earlier`` cached positions."""
    dtype = draft.dtype(like(draft))
    # The lowest number and not infinity: infinity minus infinity would be NaN in a softmax of
    # hidden positions only.
    lowest = float(dtype.min)
    visible = np.tri(length, earlier + length, earlier, dtype=bool)
    return draft.tensor(ir.tensor(np.where(visible, 0.0, lowest).astype(dtype.numpy())))


def _hidden(draft: Draft, mask: ir.Value | None, length: int, total: int) -> ir.Value | None:
    """Write a mask as addends of the scores, ``[batch, 1, length or 1, total]``.

    A mask is a length per row, or says of every position, maybe by query, whether it is to be seen.
    """
    if mask is None:
        return None
    rank = draft.rank(mask)
    if rank == 1:
        # A vector of another length states the ends of all rows, and then their starts, of padding
        # on the left.
        if draft.size(mask, 0) != draft.size(draft.operand(0), 0):
            raise CannotExpandError("its mask states first positions of rows, too")
        steps = draft.constant(np.arange(total, dtype=np.int32))
        seen = draft.op("Less", steps, draft.op("Unsqueeze", mask, draft.integers(1, 2, 3)))
    elif rank in (2, 3):
        # A mask over other positions than these would broadcast to scores that it was not meant
        # for.
        known = draft.size(mask, -1) == total and (rank == 2 or draft.size(mask, 1) == length)
        if not known:
            raise CannotExpandError(f"its mask is not over {total} positions")
        axes = draft.integers(1, 2) if rank == 2 else draft.integers(1)
        wide = draft.op("Unsqueeze", mask, axes)
        seen = draft.op("Cast", wide, to=ir.DataType.BOOL)
    else:
        raise CannotExpandError(f"its mask has {rank} dimensions")
    outside = draft.number("mask_filter_value", _FILTER)
    shown, unseen = (draft.scalar(number, like(draft)) for number in (0.0, outside))
    return draft.op("Where", seen, shown, unseen)


@expands(ONNXRUNTIME_DOMAIN, "MultiHeadAttention")
def multi_head_attention(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Attention of queries to keys and values, which may be another sequence's, and to a cache.

    Keys and values come as ``[batch, length, width]``, or by heads as a cache of another sequence does.
    A cache counts whether or not the node returns it with what is new; onnxruntime's kernel reads other memory
    in its place where the node does not.
    """
    draft.refuse_inputs(8, 9)
    number = draft.count("num_heads")
    query, key, value = _projections(draft)
    width = draft.size(draft.operand(0), 2)
    out_width = width
    if draft.rank(draft.operand(2)) == 3:
        out_width = draft.size(draft.operand(2), 2)
    # Keys of a cache of another sequence come by heads already; their number of dimensions tells.
    elif draft.rank(draft.operand(2)) == 4:
        out_width = number * draft.size(draft.operand(2), 3)
    parts = [
        part if draft.rank(draft.operand(at)) == 4 else split_heads(draft, part, number)
        for at, part in enumerate((query, key, value))
    ]
    query, key, value = parts
    earlier = 0
    past_key, past_value = draft.optional(6), draft.optional(7)
    if past_key is not None and past_value is not None:
        earlier = draft.size(past_key, 2)
        key = draft.op("Concat", past_key, key, axis=2)
        value = draft.op("Concat", past_value, value, axis=2)
    length = draft.size(draft.operand(0), 1)
    new = draft.size(draft.operand(1), 2 if draft.rank(draft.operand(1)) == 4 else 1)
    hidden = _hidden(draft, draft.optional(4), length, earlier + new)
    causal = None
    if draft.integer("unidirectional"):
        # Which earlier positions of another sequence there are is no question of positions of this
        # one.
        if new != length:
            raise CannotExpandError("it looks back over another sequence")
        causal = causal_mask(draft, length, earlier)
    heads = Heads(query, key, value, width // number)
    result = attend(draft, heads, hidden, causal, draft.optional(5))
    return join_heads(draft, result, out_width), key, value


def _projections(draft: Draft) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return queries, keys and values with their shares of the bias added."""
    parts = (draft.operand(0), draft.operand(1), draft.operand(2))
    ranks = [draft.rank(part) for part in parts]
    # Packed tensors interleave heads in an order of their own.
    if ranks[0] != 3 or any(rank not in (3, 4) for rank in ranks):
        raise CannotExpandError("its queries, keys and values are packed into one tensor")
    bias = draft.optional(3)
    if bias is None:
        return parts
    if ranks != [3, 3, 3]:
        raise CannotExpandError("it adds a bias to keys of a cache")
    widths = [draft.size(part, 2) for part in parts]
    shares = draft.several("Split", 3, bias, draft.integers(*widths), axis=0)
    query, key, value = (
        draft.op("Add", part, share) for part, share in zip(parts, shares, strict=True)
    )
    return query, key, value
