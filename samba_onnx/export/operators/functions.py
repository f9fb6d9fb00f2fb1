"""Functions of one operand, element by element."""

from __future__ import annotations

import math

import onnx_ir as ir

from samba_onnx.export.operators.elementwise import truncated
from samba_onnx.export.operators.promotion import arithmetic, rounds_once, unary
from samba_onnx.export.operators.registry import Context, Translation, translates
from samba_onnx.export.translation.builder import is_floating, sizes

_SAME_NAME = [
    "abs",
    "exp",
    "log",
    "sqrt",
    "tanh",
    "sigmoid",
    "erf",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "neg",
    "reciprocal",
    "sign",
]


def _function(op_type: str) -> Translation:
    def apply(context: Context, value: ir.Value) -> ir.Value:
        return unary(context, op_type, value)

    return apply


for _name in _SAME_NAME:
    translates(_name)(_function(_name.capitalize()))


@translates("sgn")
def sgn(context: Context, value: ir.Value) -> ir.Value:
    """Write the sign."""
    return unary(context, "Sign", value)


@translates("positive")
def positive(context: Context, value: ir.Value) -> ir.Value:
    """Write nothing."""
    return value


@translates("rsqrt")
def rsqrt(context: Context, value: ir.Value) -> ir.Value:
    """Write one over the square root."""
    return context.build.unary("Reciprocal", unary(context, "Sqrt", value))


@translates("square")
def square(context: Context, value: ir.Value) -> ir.Value:
    """Write the square."""
    return arithmetic(context, "Mul", value, value)


def _logarithm(base: float) -> Translation:
    @rounds_once
    def logarithm(context: Context, value: ir.Value) -> ir.Value:
        return context.build.multiply(unary(context, "Log", value), 1 / math.log(base))

    return logarithm


translates("log2")(_logarithm(2))
translates("log10")(_logarithm(10))


@translates("exp2")
def exp2(context: Context, value: ir.Value) -> ir.Value:
    """Write two to the power of a value."""
    return arithmetic(context, "Pow", 2.0, value)


@translates("log1p")
@rounds_once
def log1p(context: Context, value: ir.Value) -> ir.Value:
    """Write the logarithm of one more; near zero by a function that is exact there."""
    build = context.build
    operand = build.cast(value, context.result.dtype)
    ratio = build.divide(operand, build.add(operand, 2.0))
    exact = build.multiply(build.unary("Atanh", ratio), 2.0)
    near = build.compare("Less", build.unary("Abs", operand), 0.5)
    return build.where(near, exact, build.unary("Log", build.add(operand, 1.0)))


@translates("expm1", "special_expm1")
@rounds_once
def expm1(context: Context, value: ir.Value) -> ir.Value:
    """Write one less than the exponential; near zero by a function that is exact there."""
    build = context.build
    exponent = build.cast(value, context.result.dtype)
    half = build.unary("Tanh", build.multiply(exponent, 0.5))
    exact = build.divide(build.multiply(half, 2.0), build.subtract(1.0, half))
    near = build.compare("Less", build.unary("Abs", exponent), 0.5)
    return build.where(near, exact, build.subtract(build.unary("Exp", exponent), 1.0))


@translates("erfc", "special_erfc")
def erfc(context: Context, value: ir.Value) -> ir.Value:
    """Write one less the error function."""
    return context.build.subtract(1.0, unary(context, "Erf", value))


@translates("sinc")
@rounds_once
def sinc(context: Context, value: ir.Value) -> ir.Value:
    """Write ``sin(pi x) / (pi x)``, which is one at zero."""
    build = context.build
    turned = build.multiply(build.cast(value, context.result.dtype), math.pi)
    ratio = build.divide(build.unary("Sin", turned), turned)
    return build.where(build.compare("Equal", turned, 0), 1.0, ratio)


def _rounding(op_type: str) -> Translation:
    def rounded(context: Context, value: ir.Value) -> ir.Value:
        return context.build.unary(op_type, value) if is_floating(value) else value

    return rounded


translates("floor")(_rounding("Floor"))
translates("ceil")(_rounding("Ceil"))


@translates("round")
def round_half_even(context: Context, value: ir.Value, decimals: int = 0) -> ir.Value:
    """Write the nearest number with some decimals, the even one of two."""
    build = context.build
    if not is_floating(value):
        return value
    factor = float(10 ** abs(decimals))
    if decimals > 0:
        return build.divide(build.unary("Round", build.multiply(value, factor)), factor)
    if decimals < 0:
        return build.multiply(build.unary("Round", build.divide(value, factor)), factor)
    return build.unary("Round", value)


@translates("trunc", "fix")
def trunc(context: Context, value: ir.Value) -> ir.Value:
    """Write a value rounded towards zero."""
    return truncated(context.build, value) if is_floating(value) else value


@translates("frac")
def frac(context: Context, value: ir.Value) -> ir.Value:
    """Write what rounding towards zero takes away."""
    return context.build.subtract(value, truncated(context.build, value))


@translates("nan_to_num")
def nan_to_num(
    context: Context,
    value: ir.Value,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> ir.Value:
    """Write a value with numbers in place of what is none."""
    build = context.build
    if not is_floating(value):
        return value
    limits = context.result.dtype.max
    high = float(limits) if posinf is None else posinf
    low = -float(limits) if neginf is None else neginf
    unknown = build.emit("IsNaN", [value], ir.DataType.BOOL, sizes(value))
    known = build.where(unknown, build.constant(nan or 0.0, context.result.dtype), value)
    known = build.where(build.compare("Equal", known, math.inf), high, known)
    return build.where(build.compare("Equal", known, -math.inf), low, known)
