"""Embeddings of words, positions and segments, summed up and normalised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.normalizations import layer_normalization
from samba_onnx.passes.rewrites.foreign.quantization import dequantized
from samba_onnx.passes.rewrites.foreign.rules import expands


@dataclass(frozen=True)
class _Tables:
    """Tables of the embeddings of words, positions and segments, and the factors that normalise their sum."""

    words: ir.Value
    positions: ir.Value
    segments: ir.Value | None
    scale: ir.Value
    shift: ir.Value


@expands(ONNXRUNTIME_DOMAIN, "EmbedLayerNormalization")
def embed_layer_normalization(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Layer normalisation of the sum of embeddings.

    The second output counts the words that the mask keeps in each row.
    """
    words, positions, scale, shift = (draft.operand(at) for at in (2, 3, 5, 6))
    tables = _Tables(words, positions, draft.optional(4), scale, shift)
    return _embedded(draft, tables, draft.optional(8))


@expands(ONNXRUNTIME_DOMAIN, "QEmbedLayerNormalization")
def quantized_embed_layer_normalization(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Layer normalisation of the sum of embeddings whose tables and factors are integers."""
    segments = None if draft.optional(4) is None else dequantized(draft, (4, 10, 15))
    words, positions = dequantized(draft, (2, 8, 13)), dequantized(draft, (3, 9, 14))
    scale, shift = dequantized(draft, (5, 11, 16)), dequantized(draft, (6, 12, 17))
    return _embedded(draft, _Tables(words, positions, segments, scale, shift), None)


def _embedded(
    draft: Draft, tables: _Tables, positions: ir.Value | None
) -> tuple[ir.Value | None, ...]:
    words, segments = draft.operand(0), draft.optional(1)
    total = draft.op("Gather", tables.words, words)
    total = draft.op("Add", total, _positions(draft, words, tables.positions, positions))
    if segments is not None and tables.segments is not None:
        total = draft.op("Add", total, draft.op("Gather", tables.segments, segments))
    result = layer_normalization(draft, total, tables.scale, tables.shift)
    # The sum is an output, too, for a residual connection behind it.
    return result, _mask_counts(draft) if draft.is_read(1) else None, total


def _positions(
    draft: Draft, words: ir.Value, table: ir.Value, positions: ir.Value | None
) -> ir.Value:
    """Return the embeddings of the positions that are stated, or of the first ones."""
    if positions is not None:
        return draft.op("Gather", table, positions)
    length = draft.size(words, 1)
    # Positions count from 0: the first rows of the table, or all of it, in place of a Gather.
    if length == draft.size(draft.operand(3), 0):
        return table
    return draft.op("Slice", table, draft.integers(0), draft.integers(length), draft.integers(0))


def _mask_counts(draft: Draft) -> ir.Value:
    mask = draft.optional(7)
    # Without a mask onnxruntime returns zeros, not the lengths of the rows.
    if mask is None:
        return draft.constant(np.zeros(draft.size(draft.operand(0), 0), np.int32))
    return draft.op("ReduceSum", mask, draft.integers(1), keepdims=0)
