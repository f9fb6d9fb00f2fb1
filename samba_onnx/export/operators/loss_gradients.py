"""The backward operators of losses."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.export.operators.class_losses import (
    AT_LABELS,
    AtLabels,
    class_axis,
    labels,
    with_classes,
)
from samba_onnx.export.operators.losses import MEAN, mean_share
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes

_SMALLEST_VARIANCE = 1e-12
"""Below which torch does not let the denominator of a probability's gradient fall."""


@translates("mse_loss_backward")
def mse_loss_backward(
    context: Context, gradient: ir.Value, value: ir.Value, target: ir.Value, reduction: int
) -> ir.Value:
    """Write twice the differences."""
    build = context.build
    share = build.multiply(gradient, 2 * mean_share(value, reduction))
    return build.multiply(build.subtract(value, target), share)


@translates("smooth_l1_loss_backward")
def smooth_l1_loss_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    target: ir.Value,
    reduction: int,
    beta: float,
) -> ir.Value:
    """Write the differences in units of ``beta``, cut off at one."""
    build = context.build
    difference = build.subtract(value, target)
    if beta == 0:
        slope = build.unary("Sign", difference)
    else:
        slope = _clipped(build, build.multiply(difference, 1 / beta), 1.0)
    return build.multiply(slope, build.multiply(gradient, mean_share(value, reduction)))


@translates("huber_loss_backward")
def huber_loss_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    target: ir.Value,
    reduction: int,
    delta: float,
) -> ir.Value:
    """Write the differences, cut off at ``delta``."""
    build = context.build
    slope = _clipped(build, build.subtract(value, target), delta)
    return build.multiply(slope, build.multiply(gradient, mean_share(value, reduction)))


@translates("binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
) -> ir.Value:
    """Write the differences by the variance of the label."""
    build = context.build
    variance = build.multiply(build.binary("Sub", 1.0, value), value)
    floor = build.binary("Max", variance, _SMALLEST_VARIANCE)
    share = build.multiply(gradient, mean_share(value, reduction))
    slope = build.divide(build.multiply(share, build.subtract(value, target)), floor)
    return slope if weight is None else build.multiply(slope, weight)


@translates("soft_margin_loss_backward")
def soft_margin_loss_backward(
    context: Context, gradient: ir.Value, value: ir.Value, target: ir.Value, reduction: int
) -> ir.Value:
    """Write ``-target / (1 + exp(target * value))``."""
    build = context.build
    grown = build.add(build.unary("Exp", build.multiply(target, value)), 1.0)
    slope = build.unary("Neg", build.divide(target, grown))
    return build.multiply(slope, build.multiply(gradient, mean_share(value, reduction)))


@translates("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
    ignore_index: int,
    total_weight: ir.Value,
) -> ir.Value:
    """Write, at each label's class, minus what the label counts for; zero everywhere else."""
    build = context.build
    label, counted = labels(build, target, ignore_index)
    slope = build.unary("Neg", gradient)
    if reduction == MEAN:
        slope = build.divide(slope, total_weight)
    if weight is not None:
        slope = build.multiply(slope, build.gather(build.cast(weight, element(value)), label, 0))
    # Chosen, not multiplied: where no label counts, the slope is infinite, and torch's gradient zero.
    slope = build.where(counted, slope, build.constant(0, element(value)))
    axis = class_axis(value)
    shape = [-1 if other == axis else 1 for other in range(len(sizes(value)))]
    classes = np.arange(sizes(value)[axis], dtype=np.int32).reshape(shape)
    narrow = build.cast(with_classes(build, label, value), ir.DataType.INT32)
    hit = build.compare("Equal", narrow, build.constant(classes, ir.DataType.INT32))
    zero = build.constant(0, element(value))
    result = build.where(hit, with_classes(build, slope, value), zero)
    result.meta[AT_LABELS] = AtLabels(label, slope)
    return result


def _clipped(build: GraphBuilder, value: ir.Value, limit: float) -> ir.Value:
    bounds = (build.constant(bound, element(value)) for bound in (-limit, limit))
    return build.emit("Clip", [value, *bounds], element(value), sizes(value))
