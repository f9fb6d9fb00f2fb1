"""Losses between numbers, forward: squares, absolute values, binary and other likelihoods."""

from __future__ import annotations

import math

import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes

NONE, MEAN, SUM = 0, 1, 2
"""What torch's ``reduction`` stands for."""

_SMALLEST_LOGARITHM = -100.0
"""Below which torch cuts logarithms of probabilities off."""


def reduced(build: GraphBuilder, value: ir.Value, reduction: int) -> ir.Value:
    """Return the losses themselves, their mean or their sum."""
    if reduction == NONE:
        return value
    return build.reduce("ReduceMean" if reduction == MEAN else "ReduceSum", value)


@translates("mse_loss")
def mse_loss(context: Context, value: ir.Value, target: ir.Value, reduction: int) -> ir.Value:
    """Write the squares of the differences."""
    build = context.build
    difference = _difference(context, value, target)
    return reduced(build, build.multiply(difference, difference), reduction)


@translates("l1_loss")
def l1_loss(context: Context, value: ir.Value, target: ir.Value, reduction: int) -> ir.Value:
    """Write the absolute values of the differences."""
    build = context.build
    return reduced(build, build.unary("Abs", _difference(context, value, target)), reduction)


@translates("smooth_l1_loss")
def smooth_l1_loss(
    context: Context, value: ir.Value, target: ir.Value, reduction: int, beta: float
) -> ir.Value:
    """Write absolute differences, with squares in place of those below ``beta``."""
    build = context.build
    distance = build.unary("Abs", _difference(context, value, target))
    if beta == 0:
        return reduced(build, distance, reduction)
    square = build.multiply(build.multiply(distance, distance), 0.5 / beta)
    line = build.subtract(distance, 0.5 * beta)
    near = build.compare("Less", distance, beta)
    return reduced(build, build.where(near, square, line), reduction)


@translates("huber_loss")
def huber_loss(
    context: Context, value: ir.Value, target: ir.Value, reduction: int, delta: float
) -> ir.Value:
    """Write half the squares of differences, with lines in place of those above ``delta``."""
    build = context.build
    distance = build.unary("Abs", _difference(context, value, target))
    square = build.multiply(build.multiply(distance, distance), 0.5)
    line = build.multiply(build.subtract(distance, 0.5 * delta), delta)
    near = build.compare("Less", distance, delta)
    return reduced(build, build.where(near, square, line), reduction)


@translates("binary_cross_entropy")
def binary_cross_entropy(
    context: Context,
    value: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
) -> ir.Value:
    """Write the negative logarithm of the probability of a label of 0 or 1."""
    build = context.build
    yes = build.binary("Max", build.unary("Log", value), _SMALLEST_LOGARITHM)
    no = build.binary("Max", _log1p(build, build.unary("Neg", value)), _SMALLEST_LOGARITHM)
    first = build.multiply(build.subtract(target, 1.0), no)
    loss = build.subtract(first, build.multiply(target, yes))
    if weight is not None:
        loss = build.multiply(loss, weight)
    return reduced(build, loss, reduction)


@translates("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    context: Context,
    value: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    positive_weight: ir.Value | None,
    reduction: int,
) -> ir.Value:
    """Write the same of a probability that is the sigmoid of the value."""
    build = context.build
    surprise = build.unary("Softplus", build.unary("Neg", value))
    if positive_weight is not None:
        extra = build.multiply(target, build.subtract(positive_weight, 1.0))
        surprise = build.multiply(surprise, build.add(extra, 1.0))
    other = build.multiply(build.binary("Sub", 1.0, target), value)
    loss = build.add(other, surprise)
    if weight is not None:
        loss = build.multiply(loss, weight)
    return reduced(build, loss, reduction)


@translates("soft_margin_loss")
def soft_margin_loss(
    context: Context, value: ir.Value, target: ir.Value, reduction: int
) -> ir.Value:
    """Write ``log(1 + exp(-target * value))``."""
    build = context.build
    margin = build.unary("Neg", build.multiply(value, target))
    return reduced(build, build.unary("Softplus", margin), reduction)


@translates("kl_div")
def kl_div(
    context: Context,
    value: ir.Value,
    target: ir.Value,
    reduction: int,
    log_target: bool,
) -> ir.Value:
    """Write the divergence of probabilities from others that are given by their logarithms."""
    build = context.build
    if log_target:
        gap = build.subtract(target, value)
        return reduced(build, build.multiply(build.unary("Exp", target), gap), reduction)
    certain = build.multiply(target, build.unary("Log", target))
    absent = build.compare("Equal", target, 0.0)
    certain = build.where(absent, build.constant(0, element(target)), certain)
    return reduced(build, build.subtract(certain, build.multiply(target, value)), reduction)


@translates("poisson_nll_loss")
def poisson_nll_loss(
    context: Context,
    value: ir.Value,
    target: ir.Value,
    log_input: bool,
    full: bool,
    epsilon: float,
    reduction: int,
) -> ir.Value:
    """Write the negative logarithm of the probability of a count."""
    build = context.build
    value = build.cast(value, context.result.dtype)
    target = build.cast(target, element(value))
    if log_input:
        loss = build.subtract(build.unary("Exp", value), build.multiply(target, value))
    else:
        logarithm = build.unary("Log", build.add(value, epsilon))
        loss = build.subtract(value, build.multiply(target, logarithm))
    if full:
        loss = build.add(loss, _stirling(build, target))
    return reduced(build, loss, reduction)


def _difference(context: Context, value: ir.Value, target: ir.Value) -> ir.Value:
    return context.build.binary("Sub", value, target, context.result.dtype)


def _log1p(build: GraphBuilder, value: ir.Value) -> ir.Value:
    """Return ``log(1 + value)``, right also for small values.

    What rounding takes from the sum is made up for by the quotient of the value and what was added.
    """
    total = build.add(value, 1.0)
    added = build.subtract(total, 1.0)
    nothing = build.compare("Equal", added, 0.0)
    ratio = build.divide(value, build.where(nothing, build.constant(1, element(value)), added))
    exact = build.multiply(build.unary("Log", total), ratio)
    return build.where(nothing, value, exact)


def _stirling(build: GraphBuilder, count: ir.Value) -> ir.Value:
    """Return an approximation of ``log(count!)``; zero for counts up to one."""
    logarithm = build.unary("Log", count)
    main = build.subtract(build.multiply(count, logarithm), count)
    root = build.add(build.multiply(logarithm, 0.5), 0.5 * math.log(2 * math.pi))
    small = build.compare("LessOrEqual", count, 1.0)
    return build.where(small, build.constant(0, element(count)), build.add(main, root))


def mean_share(value: ir.Value, reduction: int) -> float:
    """Return what each loss counts for in the result."""
    return 1 / max(math.prod(sizes(value)), 1) if reduction == MEAN else 1.0
