"""Batch normalisation: with the batch's statistics, with running ones, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import as_stated, widen
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes


@translates("batch_norm")
def batch_norm(
    context: Context,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_variance: ir.Value | None,
    training: bool,
    momentum: float,
    epsilon: float,
    _cudnn: bool,
) -> ir.Value:
    """Write a whole batch normalisation, by running statistics if it is told and has them."""
    build = context.build
    if running_mean is None or running_variance is None:
        return _by_batch(build, value, weight, bias, epsilon)[0]
    if training:
        raise _mutation(context)
    stats = (running_mean, running_variance)
    return emit_inference(build, value, weight, bias, *stats, epsilon)


@translates("_native_batch_norm_legit_no_training")
def without_training(
    context: Context,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value,
    running_variance: ir.Value,
    momentum: float,
    epsilon: float,
) -> list[ir.Value | None]:
    """Write a normalisation by running statistics; the batch's are empty."""
    stats = (running_mean, running_variance)
    result = emit_inference(context.build, value, weight, bias, *stats, epsilon)
    return [result, *_empty(context)]


@translates("_native_batch_norm_legit.no_stats")
def without_running_statistics(
    context: Context,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> list[ir.Value | None]:
    """Write a normalisation by the batch's statistics where there are no others."""
    build = context.build
    result, mean, variance = _by_batch(build, value, weight, bias, epsilon)
    return as_stated(context, [result, mean, inverse_deviation(build, variance, epsilon)])


@translates("_native_batch_norm_legit", "native_batch_norm")
def native_batch_norm(
    context: Context,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_variance: ir.Value | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> list[ir.Value | None]:
    """Write the forms that would update running statistics in place, where they do not."""
    if running_mean is None or running_variance is None:
        rest = (training, momentum, epsilon)
        return without_running_statistics(context, value, weight, bias, *rest)
    if training:
        raise _mutation(context)
    stats = (running_mean, running_variance)
    return without_training(
        context, value, weight, bias, *stats, momentum=momentum, epsilon=epsilon
    )


@translates("_native_batch_norm_legit_functional")
def functional(
    context: Context,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value,
    running_variance: ir.Value,
    training: bool,
    momentum: float,
    epsilon: float,
) -> list[ir.Value | None]:
    """Write a normalisation that returns the new running statistics."""
    build = context.build
    if not training:
        stats = (running_mean, running_variance)
        result = emit_inference(build, value, weight, bias, *stats, epsilon)
        return [result, *_empty(context), *stats]
    wide = widen(build, value)
    operands = [wide, *_affine(build, wide, weight, bias)]
    result, mean, variance = _by_batch_at_once(
        build, operands, (running_mean, running_variance), epsilon
    )
    count = math.prod(sizes(value)) // sizes(value)[1]
    unbiased = momentum * count / (count - 1) if count > 1 else math.inf
    updated = (
        _blend(build, running_mean, mean, momentum, momentum),
        _blend(build, running_variance, variance, momentum, unbiased),
    )
    inverse = inverse_deviation(build, variance, epsilon)
    return as_stated(context, [result, mean, inverse, *updated])


@translates("native_batch_norm_backward")
def backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    weight: ir.Value | None,
    running_mean: ir.Value | None,
    running_variance: ir.Value | None,
    saved_mean: ir.Value | None,
    saved_inverse: ir.Value | None,
    training: bool,
    epsilon: float,
    mask: Sequence[bool],
) -> list[ir.Value | None]:
    """Write the gradients of input, weight and bias, those that ``mask`` asks for.

    With sums over the batch and ``c`` the centred input, the input's gradient is
    ``a * gradient + b * c + d`` with a number each per channel: three passes over memory.
    """
    build = context.build
    slope, data = widen(build, gradient), widen(build, value)
    if training and saved_mean is not None and saved_inverse is not None:
        mean, inverse = (build.cast(stat, element(data)) for stat in (saved_mean, saved_inverse))
    elif running_mean is not None and running_variance is not None:
        mean = build.cast(running_mean, element(data))
        variance = build.cast(running_variance, element(data))
        inverse = inverse_deviation(build, variance, epsilon)
    else:
        raise ModelError(f"{context.operator} was given no statistics to normalise by")
    rank = len(sizes(data))
    axes = [0, *range(2, rank)]
    scale = inverse if weight is None else build.multiply(inverse, weight)
    results: list[ir.Value | None] = [None, None, None]
    if mask[0] and not training:
        results[0] = build.multiply(slope, per_channel(build, scale, rank))
    if not (mask[1] or mask[2] or (mask[0] and training)):
        return as_stated(context, results)
    total = build.reduce("ReduceSum", slope, axes)
    results[2] = total if mask[2] else None
    if mask[1] or (mask[0] and training):
        centred = build.subtract(data, per_channel(build, mean, rank))
        product = build.reduce("ReduceSum", build.multiply(slope, centred), axes)
        results[1] = build.multiply(product, inverse) if mask[1] else None
        if mask[0] and training:
            results[0] = _centred_gradient(
                build, slope, centred, total=total, product=product, inverse=inverse, scale=scale
            )
    return as_stated(context, results)


def _centred_gradient(
    build: GraphBuilder,
    slope: ir.Value,
    centred: ir.Value,
    total: ir.Value,
    product: ir.Value,
    inverse: ir.Value,
    scale: ir.Value,
) -> ir.Value:
    shape = sizes(slope)
    share = -shape[1] / math.prod(shape)
    shift = build.multiply(build.multiply(scale, total), share)
    curve = build.multiply(build.multiply(inverse, inverse), build.multiply(scale, product))
    # A normalisation by mean 0 and variance 1 multiplies and adds in one pass.
    ones, zeros = (build.constant([n] * shape[1], element(slope)) for n in (1, 0))
    operands = [centred, build.multiply(curve, share), shift, zeros, ones]
    line = build.emit("BatchNormalization", operands, element(slope), shape, epsilon=0.0)
    return build.add(build.multiply(slope, per_channel(build, scale, len(shape))), line)


def emit_inference(
    build: GraphBuilder,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value,
    running_variance: ir.Value,
    epsilon: float,
) -> ir.Value:
    """Append a BatchNormalization by given statistics."""
    operands = [value, *_affine(build, value, weight, bias), running_mean, running_variance]
    return build.emit("BatchNormalization", operands, element(value), sizes(value), epsilon=epsilon)


def inverse_deviation(build: GraphBuilder, variance: ir.Value, epsilon: float) -> ir.Value:
    """Return ``1 / sqrt(variance + epsilon)``."""
    return build.unary("Reciprocal", build.unary("Sqrt", build.add(variance, epsilon)))


def per_channel(build: GraphBuilder, value: ir.Value, rank: int) -> ir.Value:
    """Return a list of numbers in a shape that is broadcast along the channels, the second axis."""
    return build.reshape(value, [1, sizes(value)[0], *(1 for _ in range(rank - 2))])


def _by_batch(
    build: GraphBuilder,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    epsilon: float,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the value normalised by its own statistics, its means and its variances."""
    wide = widen(build, value)
    rank = len(sizes(value))
    axes = [0, *range(2, rank)]
    mean = build.reduce("ReduceMean", wide, axes)
    centred = build.subtract(wide, per_channel(build, mean, rank))
    variance = build.reduce("ReduceMean", build.multiply(centred, centred), axes)
    result = emit_inference(build, wide, weight, bias, mean, variance, epsilon=epsilon)
    return build.cast(result, element(value)), mean, variance


def _by_batch_at_once(
    build: GraphBuilder,
    operands: Sequence[ir.Value],
    running: Sequence[ir.Value],
    epsilon: float,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Do the same by one operator, which has no form without running statistics.

    With a momentum of zero it returns the batch's.
    """
    value = operands[0]
    stats = (element(value), [sizes(value)[1]])
    old = [build.cast(stat, stats[0]) for stat in running]
    result, mean, variance = build.emit_several(
        "BatchNormalization",
        [*operands, *old],
        [(element(value), sizes(value)), stats, stats],
        epsilon=epsilon,
        momentum=0.0,
        training_mode=1,
    )
    return result, mean, variance


def _affine(
    build: GraphBuilder, value: ir.Value, weight: ir.Value | None, bias: ir.Value | None
) -> list[ir.Value]:
    """Return scale and shift per channel, which BatchNormalization wants in any case."""
    channels, dtype = sizes(value)[1], element(value)
    return [
        build.constant([default] * channels, dtype)
        if parameter is None
        else build.cast(parameter, dtype)
        for parameter, default in ((weight, 1), (bias, 0))
    ]


def _blend(
    build: GraphBuilder, old: ir.Value, new: ir.Value, forgotten: float, taken: float
) -> ir.Value:
    old_share = build.multiply(old, 1 - forgotten)
    return build.add(old_share, build.multiply(build.cast(new, element(old)), taken))


def _empty(context: Context) -> list[ir.Value | None]:
    """Return the statistics that torch leaves out: lists without elements."""
    outcomes = context.results[1:3]
    return [
        None if outcome is None else context.build.full(outcome.shape, 0, outcome.dtype)
        for outcome in outcomes
    ]


def _mutation(context: Context) -> ModelError:
    return ModelError(
        f"{context.operator} in training mode updates its running statistics in place: "
        "make the graph functional before it is translated"
    )
