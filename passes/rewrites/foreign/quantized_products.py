"""Products and convolutions of quantised operands, computed on the numbers that these stand for."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.convolutions import (
    channels_first,
    channels_last,
    convolve,
)
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.quantization import (
    dequantize,
    dequantized,
    quantized,
    quantized_by_range,
)
from samba_onnx.passes.rewrites.foreign.rules import expands


@expands("", "QLinearConv")
@expands(ONNXRUNTIME_DOMAIN, "QLinearConv")
def quantized_conv(draft: Draft) -> ir.Value:
    """Convolution; channels may come last in the data, never in the weight.

    The bias is of int32, in units of the product of both scales.
    """
    rank, last = draft.rank(draft.operand(0)), bool(draft.integer("channels_last"))
    value = dequantized(draft, (0, 1, 2))
    if last:
        value = channels_first(draft, value, rank)
    # Scales of a weight are by output channel, its first axis.
    weight = dequantized(draft, (3, 4, 5), 0)
    bias = draft.optional(8)
    if bias is not None:
        # Zero points of a bias are zero by definition.
        bias = dequantize(draft, bias, _unit(draft, 1, 4), None, 0)
    result = convolve(draft, value, weight, bias)
    if last:
        result = channels_last(draft, result, rank)
    return quantized(draft, result, (6, 7), 0)


def _unit(draft: Draft, left: int, right: int) -> ir.Value:
    """Return what one step of a product of integers stands for: the product of both scales."""
    return draft.op("Mul", draft.operand(left), draft.operand(right))


def _scale_axis(draft: Draft, position: int, axis: int) -> int:
    """Return the axis of a matrix that scales belong to, if there are several.

    Raises:
        CannotExpandError: They have more than one dimension.
    """
    if draft.rank(draft.operand(position)) > 1:
        raise CannotExpandError(f"its scales {draft.operand(position).name!r} are no vector")
    return axis


@expands("", "QLinearMatMul")
def quantized_matmul(draft: Draft) -> ir.Value:
    """Product of matrices; scales are of a whole operand, of rows of the first or columns of the second."""
    left = dequantized(draft, (0, 1, 2), _scale_axis(draft, 1, -2))
    right = dequantized(draft, (3, 4, 5), _scale_axis(draft, 4, -1))
    return quantized(draft, draft.op("MatMul", left, right), (6, 7), 0)


@expands(ONNXRUNTIME_DOMAIN, "QGemm")
def quantized_gemm(draft: Draft) -> ir.Value:
    """General product; the addend is of int32, in units of the product of both scales and ``alpha``.

    Without a scale for it, the result stays a number.
    """
    alpha, addend = draft.number("alpha", 1.0), draft.optional(6)
    transposed = draft.integer("transB")
    left = dequantized(draft, (0, 1, 2))
    # Columns of the result lie along the first axis of a transposed weight.
    right = dequantized(draft, (3, 4, 5), 0 if transposed else 1)
    inputs = [left, right]
    if addend is not None:
        unit = _unit(draft, 1, 4)
        # Gemm multiplies the product by alpha and not the addend, whose unit contains it.
        if alpha != 1:
            unit = draft.op("Mul", unit, draft.scalar(alpha, draft.operand(1)))
        # Cast and Mul broadcast: the addend may be a row or a matrix, the unit one number or one
        # for each column.
        whole = draft.op("Cast", addend, to=draft.dtype(draft.operand(1)))
        inputs.append(draft.op("Mul", whole, unit))
    result = draft.op(
        "Gemm", *inputs, alpha=alpha, transA=draft.integer("transA"), transB=transposed
    )
    return result if draft.optional(7) is None else quantized(draft, result, (7, 8), 0)


@expands(ONNXRUNTIME_DOMAIN, "MatMulIntegerToFloat")
def matmul_integer_to_float(draft: Draft) -> ir.Value:
    """Product of matrices of integers, scaled to numbers, to which a bias may be added."""
    left = dequantized(draft, (0, 2, 4), _scale_axis(draft, 2, -2))
    right = dequantized(draft, (1, 3, 5), _scale_axis(draft, 3, -1))
    return _with_bias(draft, draft.op("MatMul", left, right), 6)


@expands(ONNXRUNTIME_DOMAIN, "DynamicQuantizeMatMul")
def dynamic_quantize_matmul(draft: Draft) -> ir.Value:
    """Product of a matrix that is quantised by its range with one of integers."""
    left = dequantize(draft, *quantized_by_range(draft, draft.operand(0)))
    right = dequantized(draft, (1, 2, 3), _scale_axis(draft, 2, -1))
    return _with_bias(draft, draft.op("MatMul", left, right), 4)


def _with_bias(draft: Draft, value: ir.Value, position: int) -> ir.Value:
    bias = draft.optional(position)
    return value if bias is None else draft.op("Add", value, bias)
