"""Products of integers whose results are exact, as sums of products of floats that are exact, too.

float32 holds every whole number up to 2^24, so a sum of products is exact, in whichever order it is summed
up, while the sum of the products' sizes stays below that. Longer sums are cut into pieces that are, and the
pieces are summed up as int32. Both factors have eight bits and a sign at most, which bfloat16 holds, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.float_twins import WHOLE
from samba_onnx.passes.rewrites.foreign.convolutions import WINDOW, attributes_of
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.quantization import dequantize
from samba_onnx.passes.rewrites.foreign.rules import expands
from samba_onnx.passes.rewrites.rewriting import constant

EXACT: Final = 1 << 24
"""Whole numbers up to this one are exact in float32."""
_WIDEST: Final = 255
"""Largest distance of two integers of eight bits."""
_MOST_PIECES: Final = 64
"""Pieces that a sum is cut into at most; of eight bits this is a sum of 16,512 products."""


def _centered(draft: Draft, position: int, zero_position: int, axis: int | None) -> ir.Value:
    """Write an operand minus its zero point as floats."""
    zero = draft.optional(zero_position)
    shape = () if zero is None or draft.rank(zero) == 0 else draft.shape(zero)
    if len(shape) > 1:
        raise CannotExpandError(f"its zero points {zero.name!r} are no vector" if zero else "")
    # A scale of one in the shape of the zero points makes DequantizeLinear a subtraction.
    ones = draft.constant(np.ones(shape, np.float32))
    return dequantize(draft, draft.operand(position), ones, zero, axis)


def _largest(draft: Draft, position: int, zero_position: int) -> int:
    """Return the largest size that an operand minus its zero point may have."""
    dtype, zero = draft.dtype(draft.operand(position)), draft.optional(zero_position)
    tensor = constant(zero)
    # A computed zero point may be any number of eight bits.
    if zero is not None and tensor is None:
        return _WIDEST
    points = np.zeros(1, np.int64) if tensor is None else tensor.numpy().astype(np.int64)
    low, high = int(dtype.min), int(dtype.max)
    return int(np.maximum(points - low, high - points).max())


def _sizes_of_weight(
    draft: Draft, position: int, zero_position: int, axis: int
) -> NDArray[np.int64] | None:
    """Return absolute values of a weight minus its zero points along an axis; None if it is computed."""
    # Contents of weights give a much smaller bound than their type, and so fewer pieces.
    tensor, zero = constant(draft.operand(position)), draft.optional(zero_position)
    points = constant(zero)
    if tensor is None or (zero is not None and points is None):
        return None
    numbers = tensor.numpy().astype(np.int64)
    if points is not None:
        shift = points.numpy().astype(np.int64)
        shape = [1] * numbers.ndim
        if shift.size > 1:
            shape[axis] = shift.size
        numbers = numbers - shift.reshape(shape)
    return np.abs(numbers)


def _pieces(length: int, largest: Sequence[int], sizes: NDArray[np.int64] | None) -> list[int]:
    """Return lengths of pieces of an axis so that the sum over each is exact.

    Args:
        length: Length of the axis that is summed over.
        largest: Largest sizes of both factors; for a weight whose content is known it is not asked for.
        sizes: Sizes of the weight's numbers, ``[length, sums]``, if they are known.

    Raises:
        CannotExpandError: Too many pieces would be needed.
    """
    # As few pieces as will do: each is a product and an addition.
    for count in range(1, min(length, _MOST_PIECES) + 1):
        step = -(-length // count)
        starts = range(0, length, step)
        if sizes is None:
            bound = step * largest[0] * largest[1]
        else:
            totals = [sizes[start : start + step].sum(axis=0) for start in starts]
            bound = int(np.max(totals, initial=0)) * largest[0]
        if bound <= EXACT:
            return [min(step, length - start) for start in starts]
    raise CannotExpandError(f"its sums over {length} products are too long to be exact in float32")


def _sum_of_pieces(
    draft: Draft,
    operands: tuple[ir.Value, ir.Value],
    axes: tuple[int, int],
    pieces: Sequence[int],
    operator: str,
    **attributes: Any,
) -> ir.Value:
    """Write the sum over an axis of both operands piece by piece, as int32."""
    if len(pieces) == 1:
        product = draft.op(operator, *operands, **attributes)
        product.meta[WHOLE] = 0  # so that what casts it back needs no integers in between
        return draft.op("Cast", product, to=ir.DataType.INT32)
    parts = [
        draft.several("Split", len(pieces), operand, draft.integers(*pieces), axis=axis)
        for operand, axis in zip(operands, axes, strict=True)
    ]
    total: ir.Value | None = None
    for left, right in zip(*parts, strict=True):
        product = draft.op(operator, left, right, **attributes)
        whole = draft.op("Cast", product, to=ir.DataType.INT32)
        total = whole if total is None else draft.op("Add", total, whole)
    assert total is not None
    return total


@expands("", "MatMulInteger")
def matmul_integer(draft: Draft) -> ir.Value:
    """Product of matrices of integers of eight bits."""
    left, right = draft.operand(0), draft.operand(1)
    length = draft.size(left, -1)
    ranks = draft.rank(left), draft.rank(right)
    factors = (
        _centered(draft, 0, 2, -2 if ranks[0] > 1 else None),
        _centered(draft, 1, 3, -1 if ranks[1] > 1 else None),
    )
    largest = (_largest(draft, 0, 2), _largest(draft, 1, 3))
    sizes = None
    # A weight of batches is judged by its type only.
    if length * largest[0] * largest[1] > EXACT and ranks[1] == 2:  # else it is not worth reading
        sizes = _sizes_of_weight(draft, 1, 3, 1)
    pieces = _pieces(length, largest, sizes)
    return _sum_of_pieces(draft, factors, (-1, -2 if ranks[1] > 1 else 0), pieces, "MatMul")


@expands("", "ConvInteger")
def conv_integer(draft: Draft) -> ir.Value:
    """Convolution of integers of eight bits; padding is of the zero point."""
    weight = draft.operand(1)
    shape = draft.shape(weight)
    channels, window = shape[1], int(np.prod(shape[2:]))
    factors = _centered(draft, 0, 2, None), _centered(draft, 1, 3, 0)
    largest = (_largest(draft, 0, 2), _largest(draft, 1, 3))
    sizes = None
    if channels * window * largest[0] * largest[1] > EXACT:
        sizes = _sizes_of_weight(draft, 1, 3, 0)
        if sizes is not None:
            # A piece is of channels, so that all of the window counts together with its channel.
            sizes = sizes.reshape(shape[0], channels, window).sum(axis=2).T
    pieces = _pieces(
        channels, (largest[0] * window, largest[1]) if sizes is None else largest, sizes
    )
    group = draft.integer("group", 1)
    # Split cuts channels of the data, of which each group has some only.
    if group != 1 and len(pieces) > 1:
        raise CannotExpandError("its sums are too long to be exact, and it has groups")
    attributes = attributes_of(draft, "group", *WINDOW)
    return _sum_of_pieces(draft, factors, (1, 1), pieces, "Conv", **attributes)


@expands(ONNXRUNTIME_DOMAIN, "MulInteger")
def mul_integer(draft: Draft) -> ir.Value:
    """Product of integers of eight bits, number by number."""
    product = draft.op("Mul", _centered(draft, 0, 1, None), _centered(draft, 2, 3, None))
    return draft.op("Cast", product, to=ir.DataType.INT32)


@expands(ONNXRUNTIME_DOMAIN, "ReduceSumInteger")
def reduce_sum_integer(draft: Draft) -> ir.Value:
    """Sum of integers of eight bits over some axes, or all, in 32 bits."""
    value = draft.operand(0)
    axes = draft.list_of("axes") or list(range(draft.rank(value)))
    terms = int(np.prod([draft.size(value, axis) for axis in axes]))
    # By type only: what is summed up is data, whose content nobody knows.
    if terms * _WIDEST > EXACT:
        raise CannotExpandError(f"its sums of {terms} numbers are too long to be exact in float32")
    numbers = dequantize(draft, value, draft.constant(np.ones((), np.float32)), None)
    keep = draft.integer("keepdims", 1)
    total = draft.op("ReduceSum", numbers, draft.integers(*axes), keepdims=keep)
    return draft.op("Cast", total, to=draft.dtype(draft.node.outputs[0]))
