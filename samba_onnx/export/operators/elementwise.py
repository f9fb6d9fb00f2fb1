"""Arithmetic of two operands, element by element."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from samba_onnx.export.operators.accumulation import scattered_onto
from samba_onnx.export.operators.promotion import arithmetic, in_bfloat16, rounds_once, wider
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import (
    GraphBuilder,
    Operand,
    Scalar,
    broadcast,
    element,
    is_floating,
    sizes,
)
from samba_onnx.tensor.dtypes import FLOATING

_BOOL = ir.DataType.BOOL


def _operands(context: Context, left: Operand, right: Operand) -> tuple[ir.Value, ir.Value]:
    """Return both operands in the type in which the result is computed, by Mod among others."""
    build, dtype = context.build, wider(context.result.dtype, "Mod")
    return build.value(left, dtype), build.value(right, dtype)


def _scaled(context: Context, value: Operand, factor: Scalar) -> Operand:
    if factor == 1:
        return value
    if not isinstance(value, ir.Value):
        return value * factor
    return arithmetic(context, "Mul", value, factor)


@translates("add", "_foreach_add")
def add(context: Context, left: Operand, right: Operand, alpha: Scalar = 1) -> ir.Value:
    """Write ``left + alpha * right``; of booleans, whether one is true."""
    if context.result.dtype == _BOOL:
        right = _scaled(context, right, int(alpha))
        return context.build.binary("Or", left, right, _BOOL)
    if alpha == 1 and isinstance(left, ir.Value) and isinstance(right, ir.Value):
        scatter = scattered_onto(context.build, left, right)
        if scatter is not None:
            return scatter
    return _combined(context, "Add", left, right, alpha)


@translates("sub")
def sub(context: Context, left: Operand, right: Operand, alpha: Scalar = 1) -> ir.Value:
    """Write ``left - alpha * right``."""
    return _combined(context, "Sub", left, right, alpha)


def _combined(
    context: Context, op_type: str, left: Operand, right: Operand, alpha: Scalar
) -> ir.Value:
    """Write a sum or a difference; of bfloat16 torch rounds numbers and the factor, and no product."""
    if alpha == 1:
        return arithmetic(context, op_type, left, right)
    if context.result.dtype == ir.DataType.BFLOAT16:
        alpha = in_bfloat16(alpha)
        left, right = (
            one if isinstance(one, ir.Value) else in_bfloat16(one) for one in (left, right)
        )
    return _scaled_combined(context, op_type, left, right, alpha)


@rounds_once
def _scaled_combined(
    context: Context, op_type: str, left: Operand, right: Operand, alpha: Scalar
) -> ir.Value:
    return arithmetic(context, op_type, left, _scaled(context, right, alpha))


@translates("rsub")
def rsub(context: Context, left: Operand, right: Operand, alpha: Scalar = 1) -> ir.Value:
    """Write ``right - alpha * left``."""
    return _combined(context, "Sub", right, left, alpha)


@translates("mul")
def mul(context: Context, left: Operand, right: Operand) -> ir.Value:
    """Write ``left * right``; of booleans, whether both are true."""
    if context.result.dtype == _BOOL:
        return context.build.binary("And", left, right, _BOOL)
    return _product(context, "Mul", left, right)


def _product(context: Context, op_type: str, left: Operand, right: Operand) -> ir.Value:
    """Write a product or a quotient; of bfloat16 torch reads a number that it lacks in float32."""
    numbers = [one for one in (left, right) if not isinstance(one, ir.Value)]
    is_narrow = context.result.dtype == ir.DataType.BFLOAT16
    if is_narrow and any(in_bfloat16(number) != number for number in numbers):
        return _wide_product(context, op_type, left, right)
    return arithmetic(context, op_type, left, right)


@rounds_once
def _wide_product(context: Context, op_type: str, left: Operand, right: Operand) -> ir.Value:
    return arithmetic(context, op_type, left, right)


@translates("div")
def div(
    context: Context, left: Operand, right: Operand, rounding_mode: str | None = None
) -> ir.Value:
    """Write ``left / right``, rounded down or towards zero on request."""
    if rounding_mode == "floor":
        return floor_divide(context, left, right)
    if rounding_mode == "trunc":
        return _truncated_quotient(context, left, right)
    return _product(context, "Div", left, right)


@rounds_once
def _truncated_quotient(context: Context, left: Operand, right: Operand) -> ir.Value:
    quotient = arithmetic(context, "Div", left, right)
    return truncated(context.build, quotient) if is_floating(quotient) else quotient


@translates("floor_divide")
@rounds_once
def floor_divide(context: Context, left: Operand, right: Operand) -> ir.Value:
    """Write ``left / right`` rounded down, exactly where the quotient itself would be rounded up."""
    build, dtype = context.build, context.result.dtype
    one, other = _operands(context, left, right)
    rest = _modulo(build, one, other)
    quotient = build.divide(build.subtract(one, rest), other)
    if dtype in FLOATING:
        quotient = build.unary("Round", quotient)
        if isinstance(right, ir.Value) or right == 0:
            zero = build.compare("Equal", other, 0)
            quotient = build.where(zero, build.divide(one, other), quotient)
    return build.cast(quotient, dtype)


@translates("remainder")
def remainder(context: Context, left: Operand, right: Operand) -> ir.Value:
    """Write what a division that rounds down leaves; it has the sign of the divisor."""
    one, other = _operands(context, left, right)
    return context.build.cast(_modulo(context.build, one, other), context.result.dtype)


@translates("fmod")
def fmod(context: Context, left: Operand, right: Operand) -> ir.Value:
    """Write what a division that rounds towards zero leaves."""
    one, other = _operands(context, left, right)
    return context.build.cast(_rest(context.build, one, other, 1), context.result.dtype)


def _rest(build: GraphBuilder, left: ir.Value, right: ir.Value, fmod: int) -> ir.Value:
    shape = broadcast(sizes(left), sizes(right))
    return build.emit("Mod", [left, right], element(left), shape, fmod=fmod)


def _modulo(build: GraphBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    """Return the rest with the sign of the divisor, which ONNX defines for integers only."""
    if not is_floating(left):
        return _rest(build, left, right, 0)
    rest = _rest(build, left, right, 1)
    opposed = build.compare("Less", build.multiply(rest, build.unary("Sign", right)), 0)
    return build.where(opposed, build.add(rest, right), rest)


def truncated(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return a floating-point value rounded towards zero.

    Args:
        build: The graph.
        value: Any value with a fraction.
    """
    negative = build.compare("Less", value, 0)
    return build.where(negative, build.unary("Ceil", value), build.unary("Floor", value))


@translates("pow")
def power(context: Context, base: Operand, exponent: Operand) -> ir.Value:
    """Write ``base`` to the power of ``exponent``; usual exponents without a Pow."""
    build, dtype = context.build, context.result.dtype
    if isinstance(base, ir.Value) and not isinstance(exponent, ir.Value):
        simple = _simple_power(build, build.cast(base, wider(dtype, "Mul")), exponent)
        if simple is not None:
            return build.cast(simple, dtype)
    if dtype == _BOOL:
        raised = build.binary("Or", base, build.logical_not(build.value(exponent, _BOOL)), _BOOL)
        return raised
    return arithmetic(context, "Pow", base, exponent)


def _simple_power(build: GraphBuilder, base: ir.Value, exponent: Scalar) -> ir.Value | None:
    if exponent == 0:
        return build.full(sizes(base), 1, element(base))
    if exponent == 1:
        return base
    if exponent == 2:
        return build.multiply(base, base)
    if exponent == 3:
        return build.multiply(build.multiply(base, base), base)
    if not is_floating(base):
        return None
    if exponent == -1:
        return build.unary("Reciprocal", base)
    if exponent == 0.5:
        return build.unary("Sqrt", base)
    if exponent == -0.5:
        return build.unary("Reciprocal", build.unary("Sqrt", base))
    return None


@translates("float_power")
def float_power(context: Context, base: Operand, exponent: Operand) -> ir.Value:
    """Write a power in double precision."""
    return arithmetic(context, "Pow", base, exponent)


@translates("maximum", "max.other")
def maximum(context: Context, left: ir.Value, right: ir.Value) -> ir.Value:
    """Write the larger one of two; not a number if one of them is none."""
    return _extremum(context, "Max", left, right)


@translates("minimum", "min.other")
def minimum(context: Context, left: ir.Value, right: ir.Value) -> ir.Value:
    """Write the smaller one of two; not a number if one of them is none."""
    return _extremum(context, "Min", left, right)


def _extremum(context: Context, op_type: str, left: Operand, right: Operand) -> ir.Value:
    if context.result.dtype == _BOOL:
        return context.build.binary("Or" if op_type == "Max" else "And", left, right, _BOOL)
    return arithmetic(context, op_type, left, right)


@translates("fmax")
def fmax(context: Context, left: ir.Value, right: ir.Value) -> ir.Value:
    """Write the larger one of two, the other one where one is not a number."""
    return _known_extremum(context, "Max", left, right)


@translates("fmin")
def fmin(context: Context, left: ir.Value, right: ir.Value) -> ir.Value:
    """Write the smaller one of two, the other one where one is not a number."""
    return _known_extremum(context, "Min", left, right)


def _known_extremum(context: Context, op_type: str, left: ir.Value, right: ir.Value) -> ir.Value:
    build = context.build
    extremum = _extremum(context, op_type, left, right)
    if not is_floating(extremum):
        return extremum
    one, other = _operands(context, left, right)
    for value, replacement in ((one, other), (other, one)):
        unknown = build.emit("IsNaN", [value], _BOOL, sizes(value))
        extremum = build.where(unknown, replacement, extremum)
    return extremum


@translates("clamp")
def clamp(
    context: Context, value: ir.Value, low: Operand | None = None, high: Operand | None = None
) -> ir.Value:
    """Write a value kept between two bounds; the upper one wins."""
    build, dtype = context.build, context.result.dtype
    wide = wider(dtype, "Clip")
    operand = build.cast(value, wide)
    if not isinstance(low, ir.Value) and not isinstance(high, ir.Value):
        limits = [
            None if bound is None else build.constant(_within(bound, dtype), wide)
            for bound in (low, high)
        ]
        clipped = build.emit("Clip", [operand, *limits], wide, sizes(operand))
        return build.cast(clipped, dtype)
    for op_type, bound in (("Max", low), ("Min", high)):
        if bound is not None:
            operand = build.binary(op_type, operand, bound, wide)
    return build.cast(operand, dtype)


def _within(bound: Scalar, dtype: ir.DataType) -> Scalar:
    """Return a bound that a type can hold."""
    if dtype in FLOATING:
        return bound
    if math.isinf(bound):
        return (1 << 31) - 1 if bound > 0 else -(1 << 31)
    return int(bound)


@translates("clamp_min")
def clamp_min(context: Context, value: ir.Value, low: Operand) -> ir.Value:
    """Write a value kept above a bound."""
    return clamp(context, value, low, None)


@translates("clamp_max")
def clamp_max(context: Context, value: ir.Value, high: Operand) -> ir.Value:
    """Write a value kept below a bound."""
    return clamp(context, value, None, high)


@translates("where")
def where(context: Context, condition: ir.Value, left: Operand, right: Operand) -> ir.Value:
    """Write a choice between two operands, element by element."""
    build, dtype = context.build, context.result.dtype
    chosen = build.where(
        build.cast(condition, _BOOL), build.value(left, dtype), build.value(right, dtype)
    )
    return build.expand(chosen, context.result.shape)


@translates("addcmul")
@rounds_once
def addcmul(
    context: Context, value: ir.Value, left: ir.Value, right: ir.Value, factor: Scalar = 1
) -> ir.Value:
    """Write ``value + factor * left * right``."""
    product = _scaled(context, arithmetic(context, "Mul", left, right), factor)
    return arithmetic(context, "Add", value, product)


@translates("addcdiv")
@rounds_once
def addcdiv(
    context: Context, value: ir.Value, left: ir.Value, right: ir.Value, factor: Scalar = 1
) -> ir.Value:
    """Write ``value + factor * left / right``."""
    quotient = _scaled(context, arithmetic(context, "Div", left, right), factor)
    return arithmetic(context, "Add", value, quotient)


@translates("lerp")
@rounds_once
def lerp(context: Context, start: ir.Value, end: ir.Value, weight: Operand) -> ir.Value:
    """Write the point between two others, from the nearer one."""
    build = context.build
    way = build.subtract(end, start)
    from_start = build.add(start, build.multiply(way, weight))
    if isinstance(weight, ir.Value):
        rest = build.subtract(1.0, weight)
        from_end = build.subtract(end, build.multiply(way, rest))
        near = build.compare("Less", build.unary("Abs", weight), 0.5)
        return build.expand(build.where(near, from_start, from_end), context.result.shape)
    if abs(weight) < 0.5:
        return from_start
    return build.subtract(end, build.multiply(way, 1 - weight))


@translates("atan2")
@rounds_once
def atan2(context: Context, ordinate: ir.Value, abscissa: ir.Value) -> ir.Value:
    """Write the angle of a point."""
    build, dtype = context.build, context.result.dtype
    y, x = build.cast(ordinate, dtype), build.cast(abscissa, dtype)
    angle = build.unary("Atan", build.divide(y, x))
    below = build.compare("Less", y, 0)
    half_turn = build.where(below, build.constant(-math.pi, dtype), math.pi)
    turned = build.where(build.compare("Less", x, 0), build.add(angle, half_turn), angle)
    upright = build.multiply(build.unary("Sign", y), math.pi / 2)
    answer = build.where(build.compare("Equal", x, 0), upright, turned)
    return build.expand(answer, context.result.shape)


@translates("hypot")
@rounds_once
def hypot(context: Context, left: ir.Value, right: ir.Value) -> ir.Value:
    """Write the length of the hypotenuse, without squares that overflow."""
    build = context.build
    one, other = (build.unary("Abs", value) for value in _operands(context, left, right))
    larger, smaller = build.binary("Max", one, other), build.binary("Min", one, other)
    safe = build.where(
        build.compare("Equal", larger, 0), build.constant(1, element(larger)), larger
    )
    ratio = build.divide(smaller, safe)
    root = build.unary("Sqrt", build.add(build.multiply(ratio, ratio), 1.0))
    return build.multiply(larger, root)


@translates("copysign")
def copysign(context: Context, magnitude: ir.Value, sign: Operand) -> ir.Value:
    """Write a value with the sign of another; the sign of a zero is read, too."""
    build, dtype = context.build, context.result.dtype
    size = build.unary("Abs", build.cast(magnitude, dtype))
    if not isinstance(sign, ir.Value):
        return size if math.copysign(1, sign) > 0 else build.unary("Neg", size)
    signs: Any = build.cast(sign, dtype)
    # One over minus zero is minus infinity.
    low = build.compare("Less", build.unary("Reciprocal", signs), 0)
    low = build.binary("Or", low, build.compare("Less", signs, 0), _BOOL)
    return build.expand(build.where(low, build.unary("Neg", size), size), context.result.shape)
