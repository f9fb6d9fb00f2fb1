"""Comparisons, logic, and operations on bits."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from samba_onnx.export.operators.promotion import arithmetic, common
from samba_onnx.export.operators.registry import Context, Translation, translates
from samba_onnx.export.translation.builder import Operand, broadcast, element, is_floating, sizes

_BOOL = ir.DataType.BOOL


def _comparison(op_type: str, negated: bool = False) -> Translation:
    def compare(context: Context, left: Operand, right: Operand) -> ir.Value:
        build = context.build
        one, other = common(build, op_type, left, right)
        answer = build.emit(op_type, [one, other], _BOOL, broadcast(sizes(one), sizes(other)))
        return build.logical_not(answer) if negated else answer

    return compare


for _name, _op_type, _negated in (
    ("eq", "Equal", False),
    ("ne", "Equal", True),
    ("lt", "Less", False),
    ("le", "LessOrEqual", False),
    ("gt", "Greater", False),
    ("ge", "GreaterOrEqual", False),
):
    translates(_name)(_comparison(_op_type, _negated))


def _logic(op_type: str) -> Translation:
    def combine(context: Context, left: ir.Value, right: ir.Value) -> ir.Value:
        return context.build.binary(op_type, left, right, _BOOL)

    return combine


translates("logical_and")(_logic("And"))
translates("logical_or")(_logic("Or"))
translates("logical_xor")(_logic("Xor"))


@translates("logical_not")
def logical_not(context: Context, value: ir.Value) -> ir.Value:
    """Write whether a value is zero."""
    return context.build.logical_not(context.build.cast(value, _BOOL))


def _bits(op_type: str) -> Translation:
    def combine(context: Context, left: Operand, right: Operand) -> ir.Value:
        dtype = context.result.dtype
        kind = op_type if dtype == _BOOL else f"Bitwise{op_type}"
        return context.build.binary(kind, left, right, dtype)

    return combine


translates("bitwise_and", "__and__")(_bits("And"))
translates("bitwise_or", "__or__")(_bits("Or"))
translates("bitwise_xor", "__xor__")(_bits("Xor"))


@translates("bitwise_not")
def bitwise_not(context: Context, value: ir.Value) -> ir.Value:
    """Write the complement."""
    return context.build.unary("Not" if element(value) == _BOOL else "BitwiseNot", value)


@translates("bitwise_left_shift", "__lshift__")
def left_shift(context: Context, value: Operand, places: Operand) -> ir.Value:
    """Write a multiplication by a power of two: ONNX shifts unsigned integers only."""
    return arithmetic(context, "Mul", value, _power_of_two(context, places))


@translates("bitwise_right_shift", "__rshift__")
def right_shift(context: Context, value: Operand, places: Operand) -> ir.Value:
    """Write a division by a power of two, rounded down."""
    divisor = _power_of_two(context, places)
    rest = arithmetic(context, "Mod", value, divisor)
    return arithmetic(context, "Div", arithmetic(context, "Sub", value, rest), divisor)


def _power_of_two(context: Context, places: Operand) -> Operand:
    if isinstance(places, ir.Value):
        return context.build.binary("Pow", 2, places, ir.DataType.INT64)
    return int(2**places)


@translates("isnan")
def is_nan(context: Context, value: ir.Value) -> ir.Value:
    """Write whether a value is not a number."""
    return _property(context, "IsNaN", value)


@translates("isinf")
def is_infinite(context: Context, value: ir.Value) -> ir.Value:
    """Write whether a value is infinite."""
    return _property(context, "IsInf", value)


@translates("isposinf")
def is_positive_infinity(context: Context, value: ir.Value) -> ir.Value:
    """Write whether a value is infinite and positive."""
    return _property(context, "IsInf", value, detect_negative=0)


@translates("isneginf")
def is_negative_infinity(context: Context, value: ir.Value) -> ir.Value:
    """Write whether a value is infinite and negative."""
    return _property(context, "IsInf", value, detect_positive=0)


@translates("isfinite")
def is_finite(context: Context, value: ir.Value) -> ir.Value:
    """Write whether a value is a number and not infinite."""
    build = context.build
    if not is_floating(value):
        return build.full(sizes(value), True, _BOOL)
    unknown = _property(context, "IsNaN", value)
    infinite = _property(context, "IsInf", value)
    return build.logical_not(build.binary("Or", unknown, infinite))


@translates("signbit")
def sign_bit(context: Context, value: ir.Value) -> ir.Value:
    """Write whether a value is negative; minus zero is."""
    build = context.build
    operand = value if is_floating(value) else build.cast(value, ir.DataType.INT64)
    negative = build.compare("Less", operand, 0)
    if not is_floating(value):
        return negative
    return build.binary(
        "Or", negative, build.compare("Less", build.unary("Reciprocal", operand), 0)
    )


def _property(context: Context, op_type: str, value: ir.Value, **attributes: Any) -> ir.Value:
    build = context.build
    if not is_floating(value):
        return build.full(sizes(value), False, _BOOL)
    return build.emit(op_type, [value], _BOOL, sizes(value), **attributes)
