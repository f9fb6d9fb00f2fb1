"""Rotary embeddings of positions."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.rules import expands


def rotate(
    draft: Draft,
    value: ir.Value,
    angles: tuple[ir.Value, ir.Value],
    head_size: int,
    rotated: int,
    *,
    interleaved: bool,
) -> ir.Value:
    """Write the rotation of pairs of the first ``rotated`` numbers of every head.

    Args:
        draft: What is written into.
        value: ``[batch, heads, length, head size]``.
        angles: Cosines and sines, ``[batch or 1, 1, length, rotated / 2]``.
        head_size: Numbers of a head.
        rotated: How many of them are rotated; the others stay.
        interleaved: Whether neighbours are pairs, not a number of the first half with one of the second.

    Returns:
        A value of the shape of ``value``.
    """
    # What is not rotated goes round and is joined again, so that no table needs angles of zero for
    # it.
    kept = None
    if rotated != head_size:
        sizes = draft.integers(rotated, head_size - rotated)
        value, kept = draft.several("Split", 2, value, sizes, axis=-1)
    half = rotated // 2
    if interleaved:
        # Neighbours become an axis of two, from which each is taken.
        pairs = draft.op("Reshape", value, draft.integers(0, 0, 0, half, 2))
        first, second = (
            draft.op("Gather", pairs, draft.constant(np.array(number)), axis=-1)
            for number in (0, 1)
        )
    else:
        first, second = draft.several("Split", 2, value, draft.integers(half, half), axis=-1)
    cosine, sine = angles
    turned = (
        draft.op("Sub", draft.op("Mul", first, cosine), draft.op("Mul", second, sine)),
        draft.op("Add", draft.op("Mul", second, cosine), draft.op("Mul", first, sine)),
    )
    if interleaved:
        columns = [draft.op("Unsqueeze", part, draft.integers(-1)) for part in turned]
        joined = draft.op("Concat", *columns, axis=-1)
        result = draft.op("Reshape", joined, draft.integers(0, 0, 0, rotated))
    else:
        result = draft.op("Concat", *turned, axis=-1)
    return result if kept is None else draft.op("Concat", result, kept, axis=-1)


def angles_at(
    draft: Draft, positions: ir.Value, tables: tuple[ir.Value, ir.Value]
) -> tuple[ir.Value, ir.Value]:
    """Return rows of the tables of cosines and sines, with an axis for the heads before the last two.

    Args:
        draft: What is written into.
        positions: ``[batch or 1, length]``, integers.
        tables: Two of ``[positions, rotated / 2]``.
    """
    cosine, sine = (
        # All heads of a position turn by the same angles.
        draft.op("Unsqueeze", draft.op("Gather", table, positions), draft.integers(1))
        for table in tables
    )
    return cosine, sine


@expands(ONNXRUNTIME_DOMAIN, "RotaryEmbedding")
def rotary_embedding(draft: Draft) -> ir.Value:
    """Rotation by tables of cosines and sines, at positions that are stated or begin at one."""
    draft.refuse_attributes(is_packed_batching=0, scale=1.0)
    value, positions = draft.operand(0), draft.operand(1)
    cosines, sines = draft.operand(2), draft.operand(3)
    # Half of the rotated numbers have an angle, in each table.
    rotated = draft.integer("rotary_embedding_dim") or 2 * draft.size(cosines, 1)
    flat = draft.rank(value) == 3
    # A vector is one position, at which all rows begin; a matrix states every position.
    if draft.rank(positions) == 1:
        length = draft.size(value, 1 if flat else 2)
        steps = draft.constant(np.arange(length, dtype=np.int64)[None])
        positions = draft.op("Add", positions, steps)
    angles = angles_at(draft, positions, (cosines, sines))
    return _rotated(draft, value, angles, rotated)


def _rotated(
    draft: Draft, value: ir.Value, angles: tuple[ir.Value, ir.Value], rotated: int
) -> ir.Value:
    """Write the rotation of every head of ``[batch, length, width]`` or ``[batch, heads, length, size]``."""
    flat = draft.rank(value) == 3
    head_size = _head_size(draft, value, rotated, flat=flat)
    heads = value
    if flat:
        split = draft.op("Reshape", value, draft.integers(0, 0, -1, head_size))
        heads = draft.op("Transpose", split, perm=[0, 2, 1, 3])
    interleaved = bool(draft.integer("interleaved"))
    result = rotate(draft, heads, angles, head_size, rotated, interleaved=interleaved)
    if not flat:
        return result
    back = draft.op("Transpose", result, perm=[0, 2, 1, 3])
    return draft.op("Reshape", back, draft.integers(0, 0, draft.size(value, 2)))


def _head_size(draft: Draft, value: ir.Value, rotated: int, *, flat: bool) -> int:
    if not flat:
        return draft.size(value, 3)
    heads = draft.integer("num_heads")
    return draft.size(value, 2) // heads if heads else rotated


@expands(ONNXRUNTIME_DOMAIN, "MRotaryEmbedding")
def multimodal_rotary_embedding(draft: Draft) -> ir.Value:
    """Rotation by angles of which each belongs to one of three positions: time, row or column.

    Each table is looked up at all three positions, and every angle is taken from one of the results.
    """
    draft.refuse_attributes(is_packed_batching=0, scale=1.0)
    positions, tables = draft.operand(1), (draft.operand(2), draft.operand(3))
    half = draft.size(tables[0], 1)
    streams = _streams(draft, half)
    # Each angle belongs to one of the positions: the mask takes it and adds zeros of the others.
    chosen = (streams == np.arange(3)[:, None])[:, None, None]  # [3, 1, 1, half]
    mask = draft.constant(chosen.astype(draft.dtype(tables[0]).numpy()))
    cosine, sine = (
        draft.op(
            "Unsqueeze",
            draft.op(
                "ReduceSum",
                draft.op("Mul", draft.op("Gather", table, positions), mask),
                draft.integers(0),
                keepdims=0,
            ),
            draft.integers(1),
        )
        for table in tables
    )
    rotated = draft.integer("rotary_embedding_dim") or 2 * half
    return _rotated(draft, draft.operand(0), (cosine, sine), rotated)


def _streams(draft: Draft, half: int) -> NDArray[np.int64]:
    """Return which of the three positions each angle belongs to."""
    sections = [int(size) for size in draft.list_of("mrope_section")]
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != half:
        raise CannotExpandError(f"its sections {sections} are not three that add up to {half}")
    # One section behind the other; the other layout takes turns between the three.
    if not draft.integer("mrope_layout"):
        return np.repeat(np.arange(3), sections)
    streams = np.zeros(half, np.int64)
    # What is left over at the end belongs to time, as the arrays begin.
    for stream in (1, 2):
        streams[stream : 3 * sections[stream] : 3] = stream
    return streams


@expands(ONNXRUNTIME_DOMAIN, "GemmaRotaryEmbedding")
def gemma_rotary_embedding(draft: Draft) -> tuple[ir.Value, ir.Value]:
    """Rotation of queries and keys, each given with its turned self, by the sine and cosine of angles."""
    angles = draft.operand(0)
    dtype = draft.dtype(draft.operand(1))
    sine, cosine = (
        draft.op(
            "Unsqueeze",
            # Angles stay float32 until sine and cosine are taken: halves have too few digits for
            # far positions.
            draft.op("Cast", draft.op(function, angles), to=dtype),
            draft.integers(1),
        )
        for function in ("Sin", "Cos")
    )
    query, key = (
        draft.op(
            "Add",
            draft.op("Mul", draft.operand(at), cosine),
            draft.op("Mul", draft.operand(at + 1), sine),
        )
        for at in (1, 3)
    )
    return query, key
