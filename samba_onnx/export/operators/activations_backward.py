"""Gradients of activations, as ATen has them: the gradient of the result comes first."""

from __future__ import annotations

import math

import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, Result, translates
from samba_onnx.export.translation.builder import GraphBuilder, broadcast, element, sizes


def _between(
    build: GraphBuilder, value: ir.Value, low: float, high: float, *, closed: bool = False
) -> ir.Value:
    suffix = "OrEqual" if closed else ""
    above = build.compare(f"Greater{suffix}", value, low)
    below = build.compare(f"Less{suffix}", value, high)
    return build.emit("And", [above, below], ir.DataType.BOOL, sizes(value))


@translates("gelu_backward")
def gelu_backward(
    context: Context, gradient: ir.Value, value: ir.Value, approximate: str = "none"
) -> ir.Value:
    """Derive gelu, exact or by tanh."""
    build = context.build
    slope = _gelu_tanh_slope if approximate == "tanh" else _gelu_slope
    return build.multiply(gradient, slope(build, value))


def _gelu_slope(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Distribution function plus value times density of the normal distribution."""
    error = build.unary("Erf", build.multiply(value, math.sqrt(0.5)))
    below = build.multiply(build.add(error, 1.0), 0.5)
    bell = build.unary("Exp", build.multiply(build.multiply(value, value), -0.5))
    weighted = build.multiply(build.multiply(value, 1 / math.sqrt(2 * math.pi)), bell)
    return build.add(below, weighted)


def _gelu_tanh_slope(build: GraphBuilder, value: ir.Value) -> ir.Value:
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    square = build.multiply(value, value)
    inner = build.multiply(value, build.add(build.multiply(square, scale * cubic), scale))
    bent = build.unary("Tanh", inner)
    # 0.5 (1 + t) + 0.5 x (1 - t²) inner'
    rise = build.add(build.multiply(square, 1.5 * scale * cubic), 0.5 * scale)
    fall = build.subtract(1.0, build.multiply(bent, bent))
    curved = build.multiply(build.multiply(value, fall), rise)
    return build.add(curved, build.add(build.multiply(bent, 0.5), 0.5))


@translates("tanh_backward")
def tanh_backward(context: Context, gradient: ir.Value, result: ir.Value) -> ir.Value:
    """Derive tanh, from its result."""
    build = context.build
    return build.multiply(gradient, build.subtract(1.0, build.multiply(result, result)))


@translates("sigmoid_backward")
def sigmoid_backward(context: Context, gradient: ir.Value, result: ir.Value) -> ir.Value:
    """Derive sigmoid, from its result."""
    build = context.build
    slope = build.multiply(result, build.subtract(1.0, result))
    return build.multiply(gradient, slope)


@translates("threshold_backward")
def threshold_backward(
    context: Context, gradient: ir.Value, value: ir.Value, threshold: float
) -> ir.Value:
    """Derive relu and threshold."""
    build = context.build
    return build.where(build.compare("Greater", value, threshold), gradient, 0)


@translates("hardtanh_backward")
def hardtanh_backward(
    context: Context, gradient: ir.Value, value: ir.Value, low: float, high: float
) -> ir.Value:
    """Derive hardtanh and relu6."""
    build = context.build
    return build.where(_between(build, value, low, high), gradient, 0)


@translates("hardsigmoid_backward")
def hardsigmoid_backward(context: Context, gradient: ir.Value, value: ir.Value) -> ir.Value:
    """Derive hardsigmoid."""
    build = context.build
    inside = _between(build, value, -3.0, 3.0)
    return build.where(inside, build.multiply(gradient, 1 / 6), 0)


@translates("hardswish_backward")
def hardswish_backward(context: Context, gradient: ir.Value, value: ir.Value) -> ir.Value:
    """Derive hardswish."""
    build = context.build
    slope = build.add(build.multiply(value, 1 / 3), 0.5)
    above = build.where(build.compare("GreaterOrEqual", value, 3.0), 1.0, slope)
    return build.multiply(
        gradient, build.where(build.compare("LessOrEqual", value, -3.0), 0, above)
    )


@translates("silu_backward")
def silu_backward(context: Context, gradient: ir.Value, value: ir.Value) -> ir.Value:
    """Derive silu."""
    build = context.build
    gate = build.unary("Sigmoid", value)
    rise = build.add(build.multiply(value, build.subtract(1.0, gate)), 1.0)
    return build.multiply(gradient, build.multiply(gate, rise))


@translates("mish_backward")
def mish_backward(context: Context, gradient: ir.Value, value: ir.Value) -> ir.Value:
    """Derive mish."""
    build = context.build
    bent = build.unary("Tanh", build.unary("Softplus", value))
    fall = build.subtract(1.0, build.multiply(bent, bent))
    curved = build.multiply(build.multiply(value, build.unary("Sigmoid", value)), fall)
    return build.multiply(gradient, build.add(bent, curved))


@translates("elu_backward")
def elu_backward(
    context: Context,
    gradient: ir.Value,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    value: ir.Value,
) -> ir.Value:
    """Derive elu, celu and selu, from the operand or the result."""
    build = context.build
    if is_result:
        slope = build.multiply(build.add(value, alpha * scale), input_scale)
    else:
        # Positive operands are not used here, and must not overflow.
        low = build.binary("Min", value, 0.0)
        slope = build.unary("Exp", build.multiply(low, input_scale))
        slope = build.multiply(slope, alpha * scale * input_scale)
    negative = build.compare("LessOrEqual", value, 0.0)
    return build.multiply(gradient, build.where(negative, slope, scale))


@translates("leaky_relu_backward")
def leaky_relu_backward(
    context: Context, gradient: ir.Value, value: ir.Value, slope: float, is_result: bool
) -> ir.Value:
    """Derive leaky relu."""
    build = context.build
    positive = build.compare("Greater", value, 0.0)
    return build.where(positive, gradient, build.multiply(gradient, slope))


@translates("softplus_backward")
def softplus_backward(
    context: Context, gradient: ir.Value, value: ir.Value, beta: float, threshold: float
) -> ir.Value:
    """Derive softplus, which is a straight line above the threshold."""
    build = context.build
    scaled = value if beta == 1 else build.multiply(value, beta)
    bent = build.multiply(gradient, build.unary("Sigmoid", scaled))
    return build.where(build.compare("Greater", scaled, threshold), gradient, bent)


@translates("log_sigmoid_backward")
def log_sigmoid_backward(
    context: Context, gradient: ir.Value, value: ir.Value, buffer: ir.Value
) -> ir.Value:
    """Derive the logarithm of sigmoid."""
    build = context.build
    return build.multiply(gradient, build.unary("Sigmoid", build.unary("Neg", value)))


@translates("glu_backward")
def glu_backward(context: Context, gradient: ir.Value, value: ir.Value, dim: int) -> ir.Value:
    """Derive the product of one half with the sigmoid of the other."""
    build = context.build
    half = sizes(value)[dim] // 2
    plain, gate = build.split(value, [half, half], dim)
    open_ = build.unary("Sigmoid", gate)
    first = build.multiply(gradient, open_)
    second = build.multiply(build.multiply(first, plain), build.subtract(1.0, open_))
    return build.concat([first, second], dim)


@translates("_prelu_kernel_backward")
def prelu_backward(
    context: Context, gradient: ir.Value, value: ir.Value, weight: ir.Value
) -> Result:
    """Derive prelu for its operand and, element by element, for its slope."""
    build = context.build
    positive = build.compare("Greater", value, 0.0)
    to_value = build.where(positive, gradient, build.multiply(gradient, weight))
    shape = broadcast(sizes(gradient), sizes(value))
    to_weight = build.where(positive, 0, build.multiply(gradient, value))
    return [build.expand(to_value, shape), to_weight]


@translates("rrelu_with_noise_backward")
def rrelu_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    noise: ir.Value,
    lower: float,
    upper: float,
    training: bool,
    is_result: bool,
) -> ir.Value:
    """Derive leaky relu with a random slope, which is in the noise."""
    if training and upper - lower > 1e-6:
        return context.build.multiply(gradient, noise)
    return leaky_relu_backward(context, gradient, value, (lower + upper) / 2, is_result)


@translates("softshrink_backward", "hardshrink_backward")
def shrink_backward(
    context: Context, gradient: ir.Value, value: ir.Value, threshold: float
) -> ir.Value:
    """Derive softshrink and hardshrink."""
    build = context.build
    inside = _between(build, value, -threshold, threshold, closed=True)
    return build.where(inside, 0, gradient)


@translates("logit_backward")
def logit_backward(
    context: Context, gradient: ir.Value, value: ir.Value, eps: float | None = None
) -> ir.Value:
    """Derive the inverse of sigmoid, whose operand may have been clamped."""
    build = context.build
    width = build.multiply(value, build.subtract(1.0, value))
    slope = build.divide(gradient, width)
    low = 0.0 if eps is None else eps
    inside = _between(build, value, low, 1.0 - low, closed=True)
    return build.where(inside, slope, float("nan") if eps is None else 0.0)


@translates("native_dropout_backward")
def dropout_backward(
    context: Context, gradient: ir.Value, mask: ir.Value, scale: float
) -> ir.Value:
    """Derive dropout."""
    build = context.build
    gradient = build.cast(gradient, context.result.dtype)
    return build.where(mask, build.multiply(gradient, scale), 0)


@translates("_masked_scale")
def masked_scale(context: Context, value: ir.Value, mask: ir.Value, scale: float) -> ir.Value:
    """Scale what a mask keeps."""
    build = context.build
    return build.multiply(build.multiply(value, build.cast(mask, element(value))), scale)
