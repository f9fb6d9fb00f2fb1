"""Inverse and scaled error functions, which ONNX lacks, to the accuracy of float32.

Coefficients are of polynomials that were fitted to scipy's values for the least relative error; in
float32 all are within 4e-7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, Result, Translation, translates
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes

Formula = Callable[[GraphBuilder, ir.Value], ir.Value]

_NEAR: Final = (
    1.50140936,
    0.246640286,
    -0.00417738678,
    -0.00125274188,
    0.000218344439,
    -4.96334786e-06,
    -3.46270476e-06,
    4.66170664e-07,
    2.32326442e-08,
    -8.7910565e-09,
)
"""Coefficients of erfinv(x) / x as a polynomial in w - 2.5, where w = -log(1 - x²) is at most 5."""
_FAR: Final = (
    2.93323165,
    1.00335325,
    0.00746041025,
    -0.00565319857,
    0.00411955452,
    -0.00289208074,
    0.00133528896,
    -2.92848601e-05,
    -0.000181107095,
)
"""The same in sqrt(w) - 3.1, where that root is at most 4.1."""
_FARTHEST: Final = (
    6.86901851,
    1.0085969,
    -0.000509051748,
    5.17639066e-06,
    4.34738405e-06,
    -1.3095223e-06,
    5.59302489e-07,
    -9.07226851e-08,
)
"""The same in sqrt(w) - 7, where that root is at most 10.4, as it is for any float32."""
_SCALED: Final = (
    0.282094795,
    0.282093853,
    0.246880586,
    0.17537683,
    0.0930005919,
    -0.0572325068,
    0.127089516,
    -0.446977503,
    0.486178891,
    -0.230857657,
    0.0423525937,
)
"""Coefficients of erfcx(x) / t as a polynomial in t = 2 / (2 + x), where x is not negative."""


def polynomial(build: GraphBuilder, value: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """Evaluate a polynomial, the coefficient of the lowest power first."""
    result = build.add(build.multiply(value, coefficients[-1]), coefficients[-2])
    for coefficient in coefficients[-3::-1]:
        result = build.add(build.multiply(result, value), coefficient)
    return result


def in_float32(formula: Formula) -> Translation:
    """Return the translation of a function of one operand that is computed in float32."""

    def translated(context: Context, value: ir.Value) -> ir.Value:
        build = context.build
        result = formula(build, build.cast(value, ir.DataType.FLOAT))
        return build.cast(result, context.result.dtype)

    return translated


def _inverse(build: GraphBuilder, value: ir.Value, left: ir.Value) -> ir.Value:
    """Return erfinv of a value, given 1 - value² to full accuracy."""
    depth = build.unary("Neg", build.unary("Log", left))
    root = build.unary("Sqrt", depth)
    near = polynomial(build, build.subtract(depth, 2.5), _NEAR)
    far = polynomial(build, build.subtract(root, 3.1), _FAR)
    farthest = polynomial(build, build.subtract(root, 7.0), _FARTHEST)
    ratio = build.where(build.compare("Less", root, 4.1), far, farthest)
    ratio = build.where(build.compare("Less", depth, 5.0), near, ratio)
    ratio = build.where(build.compare("Equal", left, 0.0), math.inf, ratio)
    return build.multiply(value, ratio)


def erfinv(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return the inverse of the error function."""
    left = build.multiply(build.subtract(1.0, value), build.add(value, 1.0))
    return _inverse(build, value, left)


def ndtri(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return the quantile of the normal distribution."""
    left = build.multiply(build.multiply(value, 4.0), build.subtract(1.0, value))
    centred = build.subtract(build.multiply(value, 2.0), 1.0)
    return build.multiply(_inverse(build, centred, left), math.sqrt(2.0))


def erfcx(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return ``exp(x²) erfc(x)``."""
    size = build.unary("Abs", value)
    t = build.divide(2.0, build.add(size, 2.0))
    right = build.multiply(t, polynomial(build, t, _SCALED))
    peak = build.unary("Exp", build.multiply(value, value))
    left = build.subtract(build.multiply(peak, 2.0), right)
    return build.where(build.compare("Less", value, 0.0), left, right)


def spherical_bessel_j0(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return ``sin(x) / x``, which is one at zero."""
    ratio = build.divide(build.unary("Sin", value), value)
    return build.where(build.compare("Equal", value, 0.0), 1.0, ratio)


def angle(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return pi for negative numbers, else zero."""
    turned = build.where(build.compare("Less", value, 0.0), math.pi, build.multiply(value, 0.0))
    return build.where(build.compare("Greater", value, 0.0), 0.0, turned)


translates("erfinv", "special_erfinv", "prims::erf_inv")(in_float32(erfinv))
translates("special_ndtri", "prims::ndtri")(in_float32(ndtri))
translates("special_erfcx", "prims::erfcx")(in_float32(erfcx))
translates("special_spherical_bessel_j0", "prims::spherical_bessel_j0")(
    in_float32(spherical_bessel_j0)
)
translates("angle")(in_float32(angle))


@translates("frexp", "prims::frexp")
def frexp(context: Context, value: ir.Value) -> Result:
    """Return fractions of at least a half, and the powers of two that they are multiplied by."""
    build, dtype = context.build, element(value)
    size = build.unary("Abs", value)
    strange = build.emit("IsInf", [size], ir.DataType.BOOL, sizes(size))
    strange = build.binary(
        "Or", strange, build.emit("IsNaN", [size], ir.DataType.BOOL, sizes(size))
    )
    plain = build.where(build.binary("Or", strange, build.compare("Equal", size, 0)), 0.5, size)
    power = build.unary("Floor", build.multiply(build.unary("Log", plain), 1 / math.log(2.0)))
    # The logarithm may be rounded over the next power of two.
    fraction = build.divide(plain, build.binary("Pow", build.constant(2.0, dtype), power))
    over, under = build.compare("GreaterOrEqual", fraction, 2), build.compare("Less", fraction, 1)
    power = build.add(power, build.where(over, build.constant(2.0, dtype), 1.0))
    power = build.subtract(power, build.cast(under, dtype))
    plain_fraction = build.divide(
        build.divide(value, 2.0),
        build.binary("Pow", build.constant(2.0, dtype), build.subtract(power, 1.0)),
    )
    special = build.binary("Or", strange, build.compare("Equal", size, 0))
    second = context.results[1]
    return [
        build.where(special, value, plain_fraction),
        second and build.cast(build.where(special, 0.0, power), second.dtype),
    ]
