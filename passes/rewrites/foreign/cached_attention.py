"""Attention whose keys and values are cached and shared by groups of heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.rotary_embeddings import angles_at, rotate
from samba_onnx.passes.rewrites.foreign.rules import expands
from samba_onnx.passes.rewrites.foreign.sequence_attention import (
    Heads,
    join_heads,
    scores,
    split_heads,
)


@dataclass(frozen=True)
class _Sizes:
    """Sizes of a GroupQueryAttention, from the shapes of its operands."""

    batch: int
    length: int
    """New positions."""
    total: int
    """Positions of the longest row after this run, cached and new."""
    cache: int
    """Positions that the cache has room for after this run."""
    heads: int
    groups: int
    """Heads of keys and values."""
    head: int
    """Numbers of a head."""


@expands(ONNXRUNTIME_DOMAIN, "GroupQueryAttention")
def group_query_attention(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Causal attention of new positions to cached and new ones.

    ``seqlens_k`` is the index of the last position of each row, cached and new together. New keys and
    values are written behind the cached ones of their row; a first run, whose new positions are all that
    there are, writes them from the start, rows that are shorter end with padding.
    """
    # Inputs for quantised caches, sinks and other extensions, which change what is computed.
    draft.refuse_inputs(11, 12, 13, 14, 15)
    draft.refuse_attributes(
        smooth_softmax=0, qk_output=0, kv_cache_bit_width=0, sliding_window_cache=0, causal=1
    )
    sizes = _sizes(draft)
    query, key, value = _split(draft, sizes)
    past = _cached_positions(draft, sizes)
    steps = draft.constant(np.arange(sizes.length, dtype=np.int64)[None])
    positions = draft.op("Add", past, steps)
    if draft.integer("do_rotary"):
        query, key = _rotated(draft, sizes, positions, query, key)
    keys = _append(draft, sizes, 3, key, positions)
    values = _append(draft, sizes, 4, value, positions)
    # Keys and values that groups share are repeated, since MatMul has a matrix for each head.
    heads = Heads(query, _repeated(draft, sizes, keys), _repeated(draft, sizes, values), sizes.head)
    total = scores(draft, heads, draft.number("scale", 0.0))
    cap = draft.number("softcap", 0.0)
    # A soft limit: scores stay between minus and plus the cap.
    if cap:
        limit = draft.scalar(cap, draft.operand(0))
        total = draft.op("Mul", draft.op("Tanh", draft.op("Div", total, limit)), limit)
    bias = draft.optional(10)
    if bias is not None:
        total = draft.op("Add", total, bias)
    total = _hide(draft, sizes, positions, total)
    result = draft.op("MatMul", draft.op("Softmax", total, axis=-1), heads.value)
    return join_heads(draft, result, sizes.heads * sizes.head), keys, values


def _sizes(draft: Draft) -> _Sizes:
    query = draft.operand(0)
    heads, groups = draft.count("num_heads"), draft.count("kv_num_heads")
    # It must be constant, since shapes of the graph depend on it.
    total = int(draft.known(draft.operand(6), "its total length").numpy().item())
    packed = draft.optional(1) is None
    width = draft.size(query, 2)
    room = 0 if draft.optional(3) is None else draft.size(draft.operand(3), 2)
    return _Sizes(
        batch=draft.size(query, 0),
        length=draft.size(query, 1),
        total=total,
        # onnxruntime lets a cache have more room than is used, and gives back one of that size.
        cache=max(room, total),
        heads=heads,
        groups=groups,
        # Packed, one tensor has the heads of queries, then those of keys and of values.
        head=width // (heads + 2 * groups if packed else heads),
    )


def _split(draft: Draft, sizes: _Sizes) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return queries, keys and values by heads."""
    query = draft.operand(0)
    if draft.optional(1) is None:
        widths = [sizes.heads * sizes.head] + 2 * [sizes.groups * sizes.head]
        parts = tuple(draft.several("Split", 3, query, draft.integers(*widths), axis=-1))
    else:
        parts = (query, draft.operand(1), draft.operand(2))
    counts = (sizes.heads, sizes.groups, sizes.groups)
    first, second, third = (
        split_heads(draft, part, count) for part, count in zip(parts, counts, strict=True)
    )
    return first, second, third


def _cached_positions(draft: Draft, sizes: _Sizes) -> ir.Value:
    """Return how many positions of each row are cached, ``[batch, 1]`` of int64."""
    # A first run: nothing is cached, and rows that seqlens_k calls shorter end with padding.
    if sizes.total == sizes.length:
        return draft.constant(np.zeros((sizes.batch, 1), np.int64))
    last = draft.op("Cast", draft.operand(5), to=ir.DataType.INT64)
    column = draft.op("Reshape", last, draft.integers(sizes.batch, 1))
    # seqlens_k is the last index, so that one more is the length, of which the new positions are a
    # part.
    return draft.op("Add", column, draft.constant(np.array(1 - sizes.length, np.int64)))


def _rotated(
    draft: Draft, sizes: _Sizes, positions: ir.Value, query: ir.Value, key: ir.Value
) -> tuple[ir.Value, ir.Value]:
    tables = draft.operand(7), draft.operand(8)
    angles = angles_at(draft, draft.optional(9) or positions, tables)
    # Tables have an angle for each pair of numbers.
    rotated = 2 * draft.size(tables[0], 1)
    interleaved = bool(draft.integer("rotary_interleaved"))
    first, second = (
        rotate(draft, value, angles, sizes.head, rotated, interleaved=interleaved)
        for value in (query, key)
    )
    return first, second


def _append(
    draft: Draft, sizes: _Sizes, cache_position: int, new: ir.Value, positions: ir.Value
) -> ir.Value:
    """Write new keys or values into their cache, ``[batch, groups, cache, head]``."""
    shape = (sizes.batch, sizes.groups, sizes.length)
    cache = draft.optional(cache_position)
    room = 0 if cache is None else draft.size(cache, 2)
    # Nothing cached and no room left over: new keys are the whole cache.
    if room == 0 and sizes.cache == sizes.length:
        return new
    if cache is None or room < sizes.cache:
        missing = (sizes.batch, sizes.groups, sizes.cache - room, sizes.head)
        zeros = draft.tensor(ir.tensor(np.zeros(missing, draft.dtype(draft.operand(0)).numpy())))
        cache = zeros if cache is None or room == 0 else draft.op("Concat", cache, zeros, axis=2)
    # ScatterND instead of Concat: rows of a batch may have cached different numbers of positions.
    rows, groups = np.meshgrid(*(np.arange(size) for size in shape[:2]), indexing="ij")
    fixed = np.stack([rows, groups], axis=-1)[:, :, None].repeat(sizes.length, axis=2)
    where = draft.op("Reshape", positions, draft.integers(sizes.batch, 1, sizes.length, 1))
    moving = draft.op("Expand", where, draft.integers(*shape, 1))
    indices = draft.op("Concat", draft.constant(fixed.astype(np.int64)), moving, axis=-1)
    return draft.op("ScatterND", cache, indices, new)


def _repeated(draft: Draft, sizes: _Sizes, cache: ir.Value) -> ir.Value:
    """Return the first ``total`` positions of a cache, once for every head of queries."""
    # Room that no row has used is no position to attend to.
    if sizes.cache != sizes.total:
        bounds = draft.integers(0), draft.integers(sizes.total), draft.integers(2)
        cache = draft.op("Slice", cache, *bounds)
    if sizes.heads == sizes.groups:
        return cache
    times = sizes.heads // sizes.groups
    apart = draft.op("Unsqueeze", cache, draft.integers(2))
    shape = (sizes.batch, sizes.groups, times, sizes.total, sizes.head)
    repeated = draft.op("Expand", apart, draft.integers(*shape))
    return draft.op(
        "Reshape", repeated, draft.integers(sizes.batch, sizes.heads, sizes.total, sizes.head)
    )


def _hide(draft: Draft, sizes: _Sizes, positions: ir.Value, total: ir.Value) -> ir.Value:
    """Return the scores with later positions, and those before the window, hidden."""
    dtype = draft.dtype(draft.operand(0))
    every = draft.constant(np.arange(sizes.total, dtype=np.int64))
    mine = draft.op("Reshape", positions, draft.integers(sizes.batch, 1, sizes.length, 1))
    seen = draft.op("LessOrEqual", every, mine)
    window = draft.integer("local_window_size", -1)
    if window == 0:
        # Softmax of hidden scores alone would be the mean of all; onnxruntime's kernel returns zeros.
        raise CannotExpandError("its window has no positions")
    if window > 0:
        oldest = draft.op("Sub", mine, draft.constant(np.array(window, np.int64)))
        seen = draft.op("And", seen, draft.op("Greater", every, oldest))
    # The lowest number and not infinity, of which a softmax makes NaN where all is hidden.
    lowest = draft.tensor(ir.tensor(np.array(float(dtype.min), dtype.numpy())))
    return draft.op("Where", seen, total, lowest)
