"""Normalisation over the axes of each sample, forward: layers, groups, instances, root mean square."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch

from samba_onnx.export.operators.batch_normalization import (
    emit_inference,
    inverse_deviation,
    per_channel,
)
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import as_stated, widen
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes
from samba_onnx.export.translation.element_types import torch_type


@translates("layer_norm")
def layer_norm(
    context: Context,
    value: ir.Value,
    normalized_shape: Sequence[int],
    weight: ir.Value | None,
    bias: ir.Value | None,
    epsilon: float,
    _cudnn: bool,
) -> ir.Value:
    """Write a layer normalisation whole."""
    axis = len(sizes(value)) - len(normalized_shape)
    operands = _affine(context.build, value, normalized_shape, weight, bias)
    result = context.result
    return context.build.emit(
        "LayerNormalization", operands, result.dtype, result.shape, axis=axis, epsilon=epsilon
    )


@translates("native_layer_norm")
def native_layer_norm(
    context: Context,
    value: ir.Value,
    normalized_shape: Sequence[int],
    weight: ir.Value | None,
    bias: ir.Value | None,
    epsilon: float,
) -> list[ir.Value | None]:
    """Write a layer normalisation that returns its means and inverse deviations, too."""
    build, shape = context.build, sizes(value)
    axis = len(shape) - len(normalized_shape)
    wide = widen(build, value)
    operands = _affine(build, wide, normalized_shape, weight, bias)
    stats_shape = [*shape[:axis], *(1 for _ in normalized_shape)]
    stats = (ir.DataType.FLOAT, stats_shape)
    outputs = [(element(wide), shape), stats, stats]
    results = build.emit_several(
        "LayerNormalization", operands, outputs, axis=axis, epsilon=epsilon, stash_type=1
    )
    return as_stated(context, results)


@translates("group_norm")
def group_norm(
    context: Context,
    value: ir.Value,
    groups: int,
    weight: ir.Value | None,
    bias: ir.Value | None,
    epsilon: float,
    _cudnn: bool,
) -> ir.Value:
    """Write a normalisation of groups of channels whole."""
    build, shape = context.build, sizes(value)
    # Scale and shift belong to the operator: a type of 16 bits is rounded to once, behind them.
    split = build.reshape(widen(build, value), [shape[0], groups, math.prod(shape[1:]) // groups])
    normal = build.reshape(_instance(build, split, None, None, epsilon), shape)
    wide = (None if operand is None else widen(build, operand) for operand in (weight, bias))
    return build.cast(_scaled(build, normal, *wide), context.result.dtype)


@translates("native_group_norm")
def native_group_norm(
    context: Context,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    batch: int,
    channels: int,
    plane: int,
    groups: int,
    epsilon: float,
) -> list[ir.Value | None]:
    """Write a normalisation of groups of channels that returns its statistics, too."""
    build = context.build
    wide = widen(build, value)
    split = build.reshape(wide, [batch, groups, channels // groups * plane])
    mean = build.reduce("ReduceMean", split, [2], keep=True)
    centred = build.subtract(split, mean)
    variance = build.reduce("ReduceMean", build.multiply(centred, centred), [2], keep=True)
    inverse = inverse_deviation(build, variance, epsilon)
    normal = build.reshape(build.multiply(centred, inverse), sizes(value))
    result = _scaled(build, normal, weight, bias)
    pair = (build.reshape(stat, [batch, groups]) for stat in (mean, inverse))
    return as_stated(context, [result, *pair])


@translates("instance_norm")
def instance_norm(
    context: Context,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_variance: ir.Value | None,
    use_input_stats: bool,
    momentum: float,
    epsilon: float,
    _cudnn: bool,
) -> ir.Value:
    """Write a normalisation of every plane, or of every channel by running statistics."""
    if not use_input_stats and running_mean is not None and running_variance is not None:
        stats = (running_mean, running_variance)
        return emit_inference(context.build, value, weight, bias, *stats, epsilon)
    return _instance(context.build, value, weight, bias, epsilon)


@translates("rms_norm")
def rms_norm(
    context: Context,
    value: ir.Value,
    normalized_shape: Sequence[int],
    weight: ir.Value | None,
    epsilon: float | None,
) -> ir.Value:
    """Write a division by the root mean square."""
    return _root_mean_square(context.build, value, normalized_shape, weight, epsilon)[0]


@translates("_fused_rms_norm")
def fused_rms_norm(
    context: Context,
    value: ir.Value,
    normalized_shape: Sequence[int],
    weight: ir.Value | None,
    epsilon: float | None,
) -> list[ir.Value | None]:
    """Write a division by the root mean square that returns the inverse root, too."""
    results = _root_mean_square(context.build, value, normalized_shape, weight, epsilon)
    return as_stated(context, results)


def _root_mean_square(
    build: GraphBuilder,
    value: ir.Value,
    normalized_shape: Sequence[int],
    weight: ir.Value | None,
    epsilon: float | None,
) -> tuple[ir.Value, ir.Value]:
    wide = widen(build, value)
    axes = range(len(sizes(value)) - len(normalized_shape), len(sizes(value)))
    square = build.reduce("ReduceMean", build.multiply(wide, wide), axes, keep=True)
    if epsilon is None:
        epsilon = torch.finfo(torch_type(element(wide))).eps
    inverse = inverse_deviation(build, square, epsilon)
    result = build.multiply(wide, inverse)
    if weight is not None:
        result = build.multiply(result, weight)
    return build.cast(result, element(value)), inverse


def _affine(
    build: GraphBuilder,
    value: ir.Value,
    shape: Sequence[int],
    weight: ir.Value | None,
    bias: ir.Value | None,
) -> list[ir.Value | None]:
    """Return the operands of a LayerNormalization, whose scale is not optional."""
    dtype = element(value)
    scale = build.full(shape, 1, dtype) if weight is None else build.cast(weight, dtype)
    return [value, scale, None if bias is None else build.cast(bias, dtype)]


def _instance(
    build: GraphBuilder,
    value: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    epsilon: float,
) -> ir.Value:
    dtype, channels = element(value), sizes(value)[1]
    scale = build.full([channels], 1, dtype) if weight is None else build.cast(weight, dtype)
    shift = build.full([channels], 0, dtype) if bias is None else build.cast(bias, dtype)
    operands = [value, scale, shift]
    return build.emit("InstanceNormalization", operands, dtype, sizes(value), epsilon=epsilon)


def _scaled(
    build: GraphBuilder, value: ir.Value, weight: ir.Value | None, bias: ir.Value | None
) -> ir.Value:
    """Multiply and shift each channel."""
    rank = len(sizes(value))
    if weight is not None:
        value = build.multiply(value, per_channel(build, weight, rank))
    if bias is not None:
        value = build.add(value, per_channel(build, bias, rank))
    return value
