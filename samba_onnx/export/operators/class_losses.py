"""Losses of a choice among classes, forward: negative log-likelihood and cross entropy."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from samba_onnx.export.operators.losses import MEAN, NONE, reduced
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, element, is_floating, sizes

LOGGER: Final = logging.getLogger(__name__)

AT_LABELS = "samba::at_labels"
"""Key of ``AtLabels`` in the metadata of a value."""


@dataclass(frozen=True)
class AtLabels:
    """Where a gradient of scores is not zero: for each row at its label's class."""

    labels: ir.Value
    numbers: ir.Value
    """What is there, for each row; zero where a label does not count."""


def class_axis(value: ir.Value) -> int:
    """Return the axis of the classes: the second, or the only one."""
    return min(len(sizes(value)) - 1, 1)


def labels(build: GraphBuilder, target: ir.Value, ignore_index: int) -> tuple[ir.Value, ir.Value]:
    """Return labels, those to ignore as class 0, and which of them count."""
    target = build.cast(target, ir.DataType.INT64)
    counted = build.logical_not(build.compare("Equal", target, ignore_index))
    # Class 0 is always there to be read; what is ignored has no weight.
    return build.where(counted, target, build.constant(0, ir.DataType.INT64)), counted


def per_label(
    build: GraphBuilder,
    weight: ir.Value | None,
    label: ir.Value,
    counted: ir.Value,
    dtype: ir.DataType,
) -> ir.Value:
    """Return the weight of each label's class; zero where the label does not count."""
    if weight is None:
        return build.cast(counted, dtype)
    chosen = build.gather(build.cast(weight, dtype), label, 0)
    return build.where(counted, chosen, build.constant(0, dtype))


def with_classes(build: GraphBuilder, value: ir.Value, scores: ir.Value) -> ir.Value:
    """Give a value that has an element per label the axis of classes, of size one."""
    shape = list(sizes(scores))
    shape[class_axis(scores)] = 1
    return build.reshape(value, shape) if sizes(value) else value


@translates("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(
    context: Context,
    value: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
    ignore_index: int,
) -> list[ir.Value | None]:
    """Write the loss and the sum of the weights that it is a mean by."""
    build = context.build
    loss, weights = _negative_log_likelihood(build, value, target, weight, ignore_index)
    total = build.reduce("ReduceSum", weights)
    if reduction == NONE:
        # Of a batch, torch does not sum weights that it has no use for.
        return [loss, build.constant(0, element(value)) if sizes(loss) else total]
    return [_weighted(build, loss, total, reduction), total]


@translates("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(
    context: Context,
    value: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
    ignore_index: int,
) -> ir.Value:
    """Write the loss whole."""
    build = context.build
    loss, weights = _negative_log_likelihood(build, value, target, weight, ignore_index)
    return _weighted(build, loss, build.reduce("ReduceSum", weights), reduction)


@translates("cross_entropy_loss")
def cross_entropy_loss(
    context: Context,
    value: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
    ignore_index: int,
    label_smoothing: float,
) -> ir.Value:
    """Write the cross entropy of scores with labels, or with probabilities of the classes."""
    build, axis = context.build, class_axis(value)
    logarithms = build.unary("LogSoftmax", value, axis=axis)
    classes = sizes(value)[axis]
    if is_floating(target):
        return _by_probabilities(
            build=build,
            logarithms=logarithms,
            target=target,
            weight=weight,
            reduction=reduction,
            floor=label_smoothing / classes,
            label_smoothing=label_smoothing,
        )
    loss, weights = _negative_log_likelihood(build, logarithms, target, weight, ignore_index)
    if label_smoothing:
        spread = build.unary("Neg", _over_classes(build, logarithms, weight))
        counted = labels(build, target, ignore_index)[1]
        spread = build.where(counted, spread, build.constant(0, element(value)))
        share = build.multiply(spread, label_smoothing / classes)
        loss = build.add(build.multiply(loss, 1 - label_smoothing), share)
    return _weighted(build, loss, build.reduce("ReduceSum", weights), reduction)


def _by_probabilities(
    build: GraphBuilder,
    logarithms: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
    floor: float,
    label_smoothing: float,
) -> ir.Value:
    if label_smoothing:
        target = build.add(build.multiply(target, 1 - label_smoothing), floor)
    loss = build.unary("Neg", _over_classes(build, build.multiply(logarithms, target), weight))
    return reduced(build, loss, reduction)


def _over_classes(build: GraphBuilder, scores: ir.Value, weight: ir.Value | None) -> ir.Value:
    """Return the weighted sum over the classes."""
    axis = class_axis(scores)
    if weight is not None:
        shape = [1] * len(sizes(scores))
        shape[axis] = math.prod(sizes(weight))
        scores = build.multiply(scores, build.reshape(weight, shape))
    return build.reduce("ReduceSum", scores, [axis])


def _negative_log_likelihood(
    build: GraphBuilder,
    logarithms: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    ignore_index: int,
) -> tuple[ir.Value, ir.Value]:
    """Return the weighted loss per label, and its weight."""
    axis = class_axis(logarithms)
    if element(target) == ir.DataType.INT64:
        # The RDU's loss has labels of 16 bits; people look for SambaFlow's own words.
        LOGGER.info(
            'The dtype of "targets" to CrossEntropyLoss is torch.int64, however only int16 is '
            "currently supported, implicit conversion will happen"
        )
    label, counted = labels(build, target, ignore_index)
    index = with_classes(build, label, logarithms) if sizes(label) else build.reshape(label, [1])
    picked = build.emit(
        "GatherElements", [logarithms, index], element(logarithms), sizes(index), axis=axis
    )
    weights = per_label(build, weight, label, counted, element(logarithms))
    picked = build.unary("Neg", build.reshape(picked, sizes(label)))
    zero = build.constant(0, element(logarithms))
    return build.where(counted, build.multiply(picked, weights), zero), weights


def _weighted(build: GraphBuilder, loss: ir.Value, total: ir.Value, reduction: int) -> ir.Value:
    if reduction == NONE:
        return loss
    whole = build.reduce("ReduceSum", loss)
    return build.divide(whole, total) if reduction == MEAN else whole
