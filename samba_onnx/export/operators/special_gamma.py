"""The gamma function's logarithm and its derivatives, to the accuracy of float32."""

from __future__ import annotations

import math
from typing import Final

import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.special_functions import in_float32, polynomial
from samba_onnx.export.translation.builder import GraphBuilder

_FRONT: Final = (
    0.422784335,
    0.322467032,
    -0.0673522406,
    0.0205799555,
    -0.00737947255,
    0.00286546506,
    -0.00112869174,
    0.000403974444,
    -0.000108222468,
    1.50459699e-05,
)
"""Coefficients of lgamma(2 + t) / t for t between 0 and 1, fitted to scipy's values; within 2e-7 in float32."""
_STIRLING: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
"""Coefficients in 1/x² of x times the difference between lgamma(x) and Stirling's formula."""
_ASYMPTOTIC: Final = (1 / 12, -1 / 120, 1 / 252, -1 / 240)
"""Coefficients in 1/x² of x² times the difference between log(x) - 1/2x and digamma(x)."""
_BERNOULLI: Final = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600)
"""B(2k) / (2k)! of the Euler-Maclaurin formula."""
_SHIFT: Final = 8


def _reflected(build: GraphBuilder, value: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return whether a value is negative, 1 - value if so, and what it is more than an integer."""
    negative = build.compare("Less", value, 0.0)
    mirrored = build.where(negative, build.subtract(1.0, value), value)
    return negative, mirrored, build.subtract(value, build.unary("Round", value))


def lgamma(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return the logarithm of the gamma function's size."""
    negative, mirrored, rest = _reflected(build, value)
    low = build.binary("Min", mirrored, 3.0)
    part = build.subtract(low, build.unary("Floor", low))
    below_two = build.where(build.compare("Less", low, 2.0), low, 1.0)
    twice = build.multiply(low, build.add(low, 1.0))
    product = build.where(build.compare("Less", low, 1.0), twice, below_two)
    front = build.multiply(part, polynomial(build, part, _FRONT))
    front = build.subtract(front, build.unary("Log", product))
    high = build.binary("Max", mirrored, 3.0)
    back = build.multiply(build.subtract(high, 0.5), build.subtract(build.unary("Log", high), 1.0))
    inverse = build.unary("Reciprocal", high)
    series = polynomial(build, build.multiply(inverse, inverse), _STIRLING)
    back = build.add(build.add(back, build.multiply(series, inverse)), _STIRLING_CONSTANT)
    right = build.where(build.compare("Less", mirrored, 3.0), front, back)
    wave = build.unary("Abs", build.unary("Sin", build.multiply(rest, math.pi)))
    left = build.subtract(build.unary("Log", build.divide(math.pi, wave)), right)
    return build.where(negative, left, right)


_STIRLING_CONSTANT: Final = 0.5 * math.log(2 * math.pi) - 0.5


def digamma(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return the derivative of lgamma."""
    negative, mirrored, rest = _reflected(build, value)
    far = build.add(mirrored, 5.0)
    inverse = build.unary("Reciprocal", far)
    square = build.multiply(inverse, inverse)
    right = build.subtract(build.unary("Log", far), build.multiply(inverse, 0.5))
    series = build.multiply(polynomial(build, square, _ASYMPTOTIC), square)
    right = build.subtract(right, series)
    for k in range(4, -1, -1):
        right = build.subtract(right, build.unary("Reciprocal", build.add(mirrored, float(k))))
    wave = build.unary("Tan", build.multiply(rest, math.pi))
    left = build.subtract(right, build.divide(math.pi, wave))
    left = build.where(build.compare("Equal", rest, 0.0), math.nan, left)
    return build.where(negative, left, right)


translates("lgamma", "prims::lgamma")(in_float32(lgamma))
translates("digamma", "special_digamma", "prims::digamma")(in_float32(digamma))


def _zeta(build: GraphBuilder, exponent: int, value: ir.Value) -> ir.Value:
    """Return the sum of ``(value + k) ** -exponent`` over all k, for positive values."""

    def power(base: ir.Value, times: int) -> ir.Value:
        return build.binary("Pow", base, float(-times))

    far = build.add(value, float(_SHIFT))
    total = build.multiply(power(far, exponent - 1), 1 / (exponent - 1))
    total = build.add(total, build.multiply(power(far, exponent), 0.5))
    factor = 1.0
    for k, coefficient in enumerate(_BERNOULLI):
        factor *= exponent if k == 0 else (exponent + 2 * k - 1) * (exponent + 2 * k)
        term = build.multiply(power(far, exponent + 2 * k + 1), coefficient * factor)
        total = build.add(total, term)
    for k in range(_SHIFT - 1, -1, -1):
        shifted = build.add(value, float(k)) if k else value
        total = build.add(total, power(shifted, exponent))
    return total


def _cotangent_slope(order: int) -> list[float]:
    """Return a derivative of the cotangent as a polynomial in it, lowest power first."""
    coefficients = [0.0, 1.0]
    for _ in range(order):
        slope = [-k * c for k, c in enumerate(coefficients)][1:]
        raised = [0.0, 0.0, *slope]
        coefficients = [a + b for a, b in zip(raised, [*slope, 0.0, 0.0], strict=True)]
    return coefficients


@translates("polygamma", "special_polygamma")
def polygamma(context: Context, order: int, value: ir.Value) -> ir.Value:
    """Return a derivative of digamma."""
    build = context.build
    wide = build.cast(value, ir.DataType.FLOAT)
    if order == 0:
        return build.cast(digamma(build, wide), context.result.dtype)
    negative, mirrored, rest = _reflected(build, wide)
    sign = 1.0 if order % 2 else -1.0
    size = math.factorial(order)
    right = build.multiply(_zeta(build, order + 1, mirrored), sign * size)
    turned = build.unary("Tan", build.multiply(rest, math.pi))
    slope = polynomial(build, build.unary("Reciprocal", turned), _cotangent_slope(order))
    # psi(x) = (-1)^n psi(1 - x) - pi d^n/dx^n cot(pi x)
    left = build.subtract(
        build.multiply(right, -sign), build.multiply(slope, math.pi ** (order + 1))
    )
    return build.cast(build.where(negative, left, right), context.result.dtype)
