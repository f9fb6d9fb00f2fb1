"""How rules write quantised operators, which scale integers to numbers, compute, and round again.

They write DequantizeLinear and QuantizeLinear, and leave it to the pass for these how a target computes
them: whole numbers between the two stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.rules import expands
from samba_onnx.passes.rewrites.rewriting import static_shape


def dequantized(draft: Draft, at: Sequence[int], axis: int | None = None) -> ir.Value:
    """Write the numbers that an operand stands for.

    Args:
        draft: What is written into.
        at: Positions of the operand, its scale and its zero point, which may be left out.
        axis: The axis that the scales belong to, if they are more than one.
    """
    return dequantize(
        draft, draft.operand(at[0]), draft.operand(at[1]), draft.optional(at[2]), axis
    )


def dequantize(
    draft: Draft,
    value: ir.Value,
    scale: ir.Value,
    zero: ir.Value | None,
    axis: int | None = None,
) -> ir.Value:
    """Write the numbers that integers stand for; arguments as of :func:`dequantized`."""
    inputs = [value, scale, *([] if zero is None else [_as_wide(draft, zero, scale)])]
    # Without an axis ONNX assumes 1, which a single scale ignores.
    attributes = {} if axis is None else {"axis": axis}
    return draft.op("DequantizeLinear", *inputs, **attributes)


def _as_wide(draft: Draft, zero: ir.Value, scale: ir.Value) -> ir.Value:
    """Return a zero point in the shape of the scales, as ONNX wants it; onnxruntime takes one for all."""
    shape = static_shape(scale)
    if shape is None or static_shape(zero) in (None, shape):
        return zero
    # Only one number can be spread over several scales.
    size = int(np.prod(static_shape(zero) or (1,)))
    if size != 1:
        return zero
    single = draft.op("Reshape", zero, draft.integers())
    return draft.op("Expand", single, draft.integers(*shape)) if shape else single


def quantized(draft: Draft, value: ir.Value, at: Sequence[int], like: int) -> ir.Value:
    """Write numbers as integers, by a scale and a zero point.

    Args:
        draft: What is written into.
        value: The numbers, floats.
        at: Positions of scale and zero point; the zero point may be left out.
        like: Position of the operand whose type the integers have where the zero point is left out.
    """
    zero = draft.optional(at[1])
    if zero is None:
        # QuantizeLinear takes its type from the zero point, and would make uint8 without one.
        dtype = draft.dtype(draft.operand(like))
        zero = draft.tensor(ir.Tensor(np.zeros((), dtype.numpy()), dtype=dtype))
    scale = draft.operand(at[0])
    return draft.op("QuantizeLinear", value, scale, _as_wide(draft, zero, scale))


def quantized_by_range(draft: Draft, value: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Write a number as uint8 of the range that it has, zero included.

    Returns:
        The integers, their scale and their zero point, the latter two scalars. What is zero throughout
        has the scale 1, as onnxruntime chooses.
    """
    zero = draft.constant(np.zeros((), np.float32))
    # Zero is in the range, so that it is a number of its own exactly: padding and rectified values
    # are zeros.
    low = draft.op("Min", draft.op("ReduceMin", value, keepdims=0), zero)
    high = draft.op("Max", draft.op("ReduceMax", value, keepdims=0), zero)
    width = draft.op("Sub", high, low)
    steps = draft.op("Div", width, draft.constant(np.array(255, np.float32)))
    one = draft.constant(np.ones((), np.float32))
    scale = draft.op("Where", draft.op("Equal", width, zero), one, steps)
    first = draft.constant(np.zeros((), np.uint8))
    # QuantizeLinear rounds and limits the zero point as it does numbers.
    point = draft.op("QuantizeLinear", draft.op("Neg", low), scale, first)
    return draft.op("QuantizeLinear", value, scale, point), scale, point


@expands("", "DynamicQuantizeLinear")
def dynamic_quantize_linear(draft: Draft) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Quantisation by the range of the value."""
    return quantized_by_range(draft, draft.operand(0))


@expands(ONNXRUNTIME_DOMAIN, "QuantizeLinear")
def quantize_linear(draft: Draft) -> ir.Value:
    """Quantisation, which has more types and versions here than in older operator sets of ONNX."""
    zero = draft.optional(2)
    inputs = [draft.operand(0), draft.operand(1), *([] if zero is None else [zero])]
    return draft.op("QuantizeLinear", *inputs, axis=draft.integer("axis", 1))


@expands(ONNXRUNTIME_DOMAIN, "DequantizeLinear")
def dequantize_linear(draft: Draft) -> ir.Value:
    """The numbers that integers stand for, of more types and versions than in older sets of ONNX."""
    return dequantized(draft, (0, 1, 2), draft.integer("axis", 1))
