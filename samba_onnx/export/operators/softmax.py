"""Softmax and its logarithm, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from samba_onnx.export.operators.class_losses import AT_LABELS, AtLabels
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import HALVES, widen
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes


@translates("_softmax", "softmax.int", "special_softmax")
def softmax(context: Context, value: ir.Value, axis: int, _type: Any = None) -> ir.Value:
    """Write a softmax along an axis, in the type of its result."""
    return _along(context, "Softmax", value, axis)


@translates("_log_softmax", "log_softmax.int", "special_log_softmax")
def log_softmax(context: Context, value: ir.Value, axis: int, _type: Any = None) -> ir.Value:
    """Write the logarithm of a softmax along an axis, in the type of its result."""
    return _along(context, "LogSoftmax", value, axis)


@translates("_safe_softmax")
def safe_softmax(context: Context, value: ir.Value, axis: int, _type: Any = None) -> ir.Value:
    """Write a softmax that is zero where everything along the axis is masked by -inf."""
    build = context.build
    result = _along(context, "Softmax", value, axis)
    largest = build.reduce("ReduceMax", value, [axis] if sizes(value) else [], keep=True)
    masked = build.compare("Equal", largest, float("-inf"))
    return build.where(masked, build.constant(0, context.result.dtype), result)


@translates("_softmax_backward_data")
def softmax_backward(
    context: Context, gradient: ir.Value, output: ir.Value, axis: int, _type: Any
) -> ir.Value:
    """Write ``output * (gradient - sum(gradient * output))``."""
    build = context.build
    # Sums of narrow numbers would be rounded at every step.
    slope, chances = widen(build, gradient), widen(build, output)
    product = build.multiply(slope, chances)
    rest = build.subtract(product, build.multiply(chances, _sum(build, product, axis)))
    return build.cast(rest, context.result.dtype)


@translates("_log_softmax_backward_data")
def log_softmax_backward(
    context: Context, gradient: ir.Value, output: ir.Value, axis: int, _type: Any
) -> ir.Value:
    """Write ``gradient - exp(output) * sum(gradient)``."""
    build = context.build
    placed = gradient.meta.get(AT_LABELS)
    plain = len(sizes(output)) == 2 and element(output) == context.result.dtype not in HALVES
    if isinstance(placed, AtLabels) and plain:
        return _from_labels(build, placed, output)
    slope, logarithms = widen(build, gradient), widen(build, output)
    chances = build.unary("Exp", logarithms)
    rest = build.subtract(slope, build.multiply(chances, _sum(build, slope, axis)))
    return build.cast(rest, context.result.dtype)


def _from_labels(build: GraphBuilder, placed: AtLabels, output: ir.Value) -> ir.Value:
    """Write a gradient that comes from one number per row, without ever filling rows with zeros."""
    rows = sizes(output)[0]
    numbers = build.constant(np.arange(rows).reshape(rows, 1), ir.DataType.INT64)
    places = build.concat([numbers, build.reshape(placed.labels, [rows, 1])], 1)
    ones = build.constant(np.full(rows, -1), element(output))
    inputs = [build.unary("Exp", output), places, ones]
    rest = build.emit("ScatterND", inputs, element(output), sizes(output), reduction="add")
    slope = build.reshape(build.unary("Neg", placed.numbers), [rows, 1])
    return build.multiply(rest, slope)


def _along(context: Context, op_type: str, value: ir.Value, axis: int) -> ir.Value:
    build, shape = context.build, context.result.shape
    listed = build.cast(value, context.result.dtype)
    # A number has no axis to normalise along.
    if not shape:
        listed = build.reshape(listed, [1])
    return build.reshape(build.unary(op_type, listed, axis=axis), shape)


def _sum(build: GraphBuilder, value: ir.Value, axis: int) -> ir.Value:
    return build.reduce("ReduceSum", value, [axis] if sizes(value) else [], keep=True)
