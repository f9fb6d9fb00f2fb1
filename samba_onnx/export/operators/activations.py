"""Activation functions."""

from __future__ import annotations

import math

import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.export.operators.elementwise import clamp
from samba_onnx.export.operators.promotion import rounds_once
from samba_onnx.export.operators.registry import Context, Result, translates
from samba_onnx.export.translation.builder import Operand, Scalar, is_floating, sizes

_CERTAIN = 15.0
"""Beyond it, ``log(1 + exp(x))`` is ``x`` in single precision."""


@translates("relu")
def relu(context: Context, value: ir.Value) -> ir.Value:
    """Write what is positive."""
    if is_floating(value):
        return context.build.unary("Relu", value)
    return clamp(context, value, 0, None)


@translates("relu6")
def relu6(context: Context, value: ir.Value) -> ir.Value:
    """Write a value kept between 0 and 6."""
    return clamp(context, value, 0, 6)


@translates("hardtanh")
def hardtanh(context: Context, value: ir.Value, low: Scalar = -1, high: Scalar = 1) -> ir.Value:
    """Write a value kept between two bounds."""
    return clamp(context, value, low, high)


@translates("gelu")
def gelu(context: Context, value: ir.Value, approximate: str = "none") -> ir.Value:
    """Write a Gelu."""
    return context.build.unary("Gelu", value, approximate=approximate)


@translates("silu")
def silu(context: Context, value: ir.Value) -> ir.Value:
    """Write ``x * sigmoid(x)``."""
    return context.build.multiply(value, context.build.unary("Sigmoid", value))


@translates("mish")
@rounds_once
def mish(context: Context, value: ir.Value) -> ir.Value:
    """Write ``x * tanh(softplus(x))``."""
    build = context.build
    return build.multiply(value, build.unary("Tanh", build.unary("Softplus", value)))


@translates("hardswish")
def hardswish(context: Context, value: ir.Value) -> ir.Value:
    """Write a HardSwish."""
    return context.build.unary("HardSwish", value)


@translates("hardsigmoid")
def hardsigmoid(context: Context, value: ir.Value) -> ir.Value:
    """Write a HardSigmoid."""
    return context.build.unary("HardSigmoid", value, alpha=1 / 6, beta=0.5)


@translates("leaky_relu")
def leaky_relu(context: Context, value: ir.Value, slope: float = 0.01) -> ir.Value:
    """Write a LeakyRelu."""
    return context.build.unary("LeakyRelu", value, alpha=float(slope))


@translates("elu")
def elu(
    context: Context, value: ir.Value, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> ir.Value:
    """Write an Elu; with scales if they are given."""
    build = context.build
    if scale == 1 and input_scale == 1:
        return build.unary("Elu", value, alpha=float(alpha))
    scaled = value if input_scale == 1 else build.multiply(value, float(input_scale))
    low = build.multiply(build.unary("Elu", scaled, alpha=1.0), float(alpha))
    positive = build.compare("Greater", value, 0)
    return build.multiply(build.where(positive, value, low), float(scale))


@translates("selu")
def selu(context: Context, value: ir.Value) -> ir.Value:
    """Write a Selu."""
    return context.build.unary("Selu", value)


@translates("celu")
@rounds_once
def celu(context: Context, value: ir.Value, alpha: float = 1.0) -> ir.Value:
    """Write an Elu of the same slope on both sides of zero."""
    build = context.build
    low = build.unary("Elu", build.divide(value, float(alpha)), alpha=1.0)
    return build.multiply(low, float(alpha)) if alpha > 0 else _bent(context, value, alpha)


def _bent(context: Context, value: ir.Value, alpha: float) -> ir.Value:
    build = context.build
    curve = build.subtract(build.unary("Exp", build.divide(value, float(alpha))), 1.0)
    curve = build.multiply(curve, float(alpha))
    return build.where(build.compare("Greater", value, 0), value, curve)


@translates("prelu", "_prelu_kernel")
def prelu(context: Context, value: ir.Value, slope: ir.Value) -> ir.Value:
    """Write a PRelu, whose slopes belong to the second axis."""
    build = context.build
    rank = len(sizes(value))
    if len(sizes(slope)) == 1 and rank > 1:
        slope = build.reshape(slope, [-1 % (sizes(slope)[0] + 1), *[1] * (rank - 2)])
    elif not rank:
        slope = build.reshape(slope, [])
    return build.emit("PRelu", [value, slope], context.result.dtype, sizes(value))


@translates("rrelu_with_noise", "rrelu_with_noise_functional")
def rrelu(
    context: Context,
    value: ir.Value,
    noise: ir.Value,
    low: float = 0.125,
    high: float = 1 / 3,
    training: bool = False,
    *_: object,
) -> ir.Value:
    """Write the LeakyRelu that it is in evaluation mode."""
    if training:
        raise ModelError("rrelu draws random slopes in training mode: call eval() on it first")
    return leaky_relu(context, value, (low + high) / 2)


@translates("softplus")
def softplus(context: Context, value: ir.Value, beta: float = 1, threshold: float = 20) -> ir.Value:
    """Write a Softplus."""
    build = context.build
    scaled = value if beta == 1 else build.multiply(value, float(beta))
    smooth = build.unary("Softplus", scaled)
    smooth = smooth if beta == 1 else build.divide(smooth, float(beta))
    if threshold >= _CERTAIN:
        return smooth
    return build.where(build.compare("Greater", scaled, float(threshold)), value, smooth)


@translates("log_sigmoid")
def log_sigmoid(context: Context, value: ir.Value) -> ir.Value:
    """Write the logarithm of the sigmoid, which does not overflow."""
    build = context.build
    return build.unary("Neg", build.unary("Softplus", build.unary("Neg", value)))


@translates("log_sigmoid_forward")
def log_sigmoid_forward(context: Context, value: ir.Value) -> Result:
    """Write the logarithm of the sigmoid; the buffer beside it is empty on a CPU."""
    second = context.results[1]
    buffer = None
    if second is not None:
        buffer = context.build.full(second.shape, 0, second.dtype)
    return [log_sigmoid(context, value), buffer]


@translates("glu")
def glu(context: Context, value: ir.Value, axis: int = -1) -> ir.Value:
    """Write one half times the sigmoid of the other."""
    build = context.build
    size = sizes(value)[axis] // 2
    left, right = build.split(value, [size, size], axis)
    return build.multiply(left, build.unary("Sigmoid", right))


@translates("softshrink")
@rounds_once
def softshrink(context: Context, value: ir.Value, bound: float = 0.5) -> ir.Value:
    """Write a value moved towards zero."""
    build = context.build
    low = build.binary("Min", build.add(value, float(bound)), 0.0)
    high = build.binary("Max", build.subtract(value, float(bound)), 0.0)
    return build.add(low, high)


@translates("hardshrink")
def hardshrink(context: Context, value: ir.Value, bound: float = 0.5) -> ir.Value:
    """Write a value, but zero near zero."""
    build = context.build
    near = build.compare("LessOrEqual", build.unary("Abs", value), float(bound))
    return build.where(near, 0.0, value)


@translates("threshold")
def threshold(context: Context, value: ir.Value, bound: Scalar, otherwise: Scalar) -> ir.Value:
    """Write a value where it is above a bound, a number elsewhere."""
    low = context.build.compare("LessOrEqual", value, bound)
    return context.build.where(low, otherwise, value)


@translates("logit", "special_logit")
def logit(context: Context, value: ir.Value, margin: float | None = None) -> ir.Value:
    """Write the inverse of the sigmoid."""
    build = context.build
    probability = build.cast(value, context.result.dtype)
    if margin is not None:
        probability = clamp(context, probability, margin, 1 - margin)
    return build.unary("Log", build.divide(probability, build.subtract(1.0, probability)))


@translates("xlogy", "special_xlogy")
def xlogy(context: Context, left: Operand, right: Operand) -> ir.Value:
    """Write ``left * log(right)``, which is zero where ``left`` is zero."""
    build, dtype = context.build, context.result.dtype
    factor, argument = build.value(left, dtype), build.value(right, dtype)
    product = build.multiply(factor, build.unary("Log", argument))
    answer = build.where(build.compare("Equal", factor, 0), 0.0, product)
    unknown = build.emit("IsNaN", [argument], ir.DataType.BOOL, sizes(argument))
    return build.expand(build.where(unknown, math.nan, answer), context.result.shape)


@translates("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(context: Context, value: ir.Value, rate: float, training: bool) -> ir.Value:
    """Write nothing: a dropout is the identity in evaluation mode."""
    if training and rate:
        raise ModelError(
            f"{context.operator} draws random numbers: call eval() on the module, or compile it "
            "for training"
        )
    return value
