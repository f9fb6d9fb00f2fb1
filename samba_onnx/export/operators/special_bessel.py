"""Modified Bessel functions, to the accuracy of float32.

Near zero by their power series, none of whose terms is negative; farther away by polynomials in the
inverse that were fitted to scipy's values and are within 1.4e-7 in float32.
"""

from __future__ import annotations

import math
from typing import Final

import onnx_ir as ir

from samba_onnx.export.operators.registry import translates
from samba_onnx.export.operators.special_functions import in_float32, polynomial
from samba_onnx.export.translation.builder import GraphBuilder

_FAR_I: Final = (
    (
        0.398942281,
        0.00623342737,
        0.000438981614,
        5.32240399e-05,
        2.07833764e-05,
        -9.32765011e-06,
        6.97221047e-06,
    ),
    (
        0.39894228,
        -0.0187003664,
        -0.000731278732,
        -7.55059019e-05,
        -2.52457918e-05,
        1.03039813e-05,
        -7.91983827e-06,
    ),
)
"""Coefficients of exp(-x) sqrt(x) I(x) as a polynomial in 8/x, by order."""
_FAR_K: Final = (
    (
        1.25331409,
        -0.0783266632,
        0.0219305011,
        -0.0107540098,
        0.00609600906,
        -0.00268503872,
        0.000582343865,
    ),
    (
        1.25331419,
        0.234990085,
        -0.0366002227,
        0.0152083409,
        -0.00808467688,
        0.00347788571,
        -0.000748696438,
    ),
)
"""Coefficients of exp(x) sqrt(x) K(x) as a polynomial in 2/x, by order."""


def _series(order: int, terms: int) -> list[float]:
    """Return the coefficients of (2/x)^order I(x) in (x/2)²."""
    return [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(terms)]


def _quarter_square(build: GraphBuilder, value: ir.Value) -> ir.Value:
    half = build.multiply(value, 0.5)
    return build.multiply(half, half)


def _first_kind(build: GraphBuilder, value: ir.Value, order: int, *, scaled: bool) -> ir.Value:
    """Return I(x), or exp(-|x|) I(x)."""
    size = build.unary("Abs", value)
    low = build.binary("Min", size, 8.0)
    near = polynomial(build, _quarter_square(build, low), _series(order, 19))
    if order:
        near = build.multiply(near, build.multiply(low, 0.5))
    high = build.binary("Max", size, 8.0)
    far = polynomial(build, build.divide(8.0, high), _FAR_I[order])
    far = build.divide(far, build.unary("Sqrt", high))
    if scaled:
        near = build.multiply(near, build.unary("Exp", build.unary("Neg", low)))
    else:
        far = build.multiply(far, build.unary("Exp", high))
    result = build.where(build.compare("LessOrEqual", size, 8.0), near, far)
    return build.multiply(result, build.unary("Sign", value)) if order else result


def _second_kind(build: GraphBuilder, value: ir.Value, order: int, *, scaled: bool) -> ir.Value:
    """Return K(x), or exp(x) K(x); not a number for negative ones."""
    low = build.binary("Min", value, 2.0)
    square = _quarter_square(build, low)
    harmonic = [sum(1 / j for j in range(1, k + 1)) - 0.5772156649015329 for k in range(12)]
    plain = _series(order, 10)
    digammas = [harmonic[k] if not order else harmonic[k] + harmonic[k + 1] for k in range(10)]
    weighted = [d * c for d, c in zip(digammas, plain, strict=True)]
    logarithm = build.unary("Log", build.multiply(low, 0.5))
    bent = build.multiply(logarithm, polynomial(build, square, plain))
    straight = polynomial(build, square, weighted)
    if order:
        inner = build.subtract(bent, build.multiply(straight, 0.5))
        near = build.add(build.multiply(inner, build.multiply(low, 0.5)), build.divide(1.0, low))
        near = build.where(build.compare("Equal", low, 0.0), math.inf, near)
    else:
        near = build.subtract(straight, bent)
    high = build.binary("Max", value, 2.0)
    far = polynomial(build, build.divide(2.0, high), _FAR_K[order])
    far = build.divide(far, build.unary("Sqrt", high))
    if scaled:
        near = build.multiply(near, build.unary("Exp", low))
    else:
        far = build.multiply(far, build.unary("Exp", build.unary("Neg", high)))
    return build.where(build.compare("Greater", value, 2.0), far, near)


def _first(order: int, scaled: bool = False) -> None:
    names = [f"special_i{order}{'e' * scaled}", f"prims::bessel_i{order}{'e' * scaled}"]
    if not scaled:
        names += [f"special_modified_bessel_i{order}"]
    if (order, scaled) == (0, False):
        names += ["i0"]
    translates(*names)(
        in_float32(lambda build, value: _first_kind(build, value, order, scaled=scaled))
    )


def _second(order: int, scaled: bool = False) -> None:
    prefix = "special_scaled_" if scaled else "special_"
    translates(f"{prefix}modified_bessel_k{order}")(
        in_float32(lambda build, value: _second_kind(build, value, order, scaled=scaled))
    )


for _order in (0, 1):
    for _scaled in (False, True):
        _first(_order, _scaled)
        _second(_order, _scaled)
