"""The backward operators of normalisations over the axes of each sample."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.spatial import as_stated, widen
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes


@translates("native_layer_norm_backward")
def native_layer_norm_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    normalized_shape: Sequence[int],
    mean: ir.Value,
    inverse: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    mask: Sequence[bool],
) -> list[ir.Value | None]:
    """Write the gradients of input, weight and bias, those that ``mask`` asks for."""
    build = context.build
    slope, data = widen(build, gradient), widen(build, value)
    rank = len(sizes(data))
    first = rank - len(normalized_shape)
    inverse = build.cast(inverse, element(data))
    normal: ir.Value | None = None
    if mask[0] or mask[1]:
        normal = build.multiply(build.subtract(data, mean), inverse)
    results: list[ir.Value | None] = [None, None, None]
    if mask[0] and normal is not None:
        inner = slope if weight is None else build.multiply(slope, weight)
        results[0] = _centred(build, inner, normal, inverse, range(first, rank))
    if mask[1] and normal is not None:
        results[1] = build.reduce("ReduceSum", build.multiply(slope, normal), range(first))
    if mask[2]:
        results[2] = build.reduce("ReduceSum", slope, range(first))
    return as_stated(context, results)


@translates("native_group_norm_backward")
def native_group_norm_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    mean: ir.Value,
    inverse: ir.Value,
    weight: ir.Value | None,
    batch: int,
    channels: int,
    plane: int,
    groups: int,
    mask: Sequence[bool],
) -> list[ir.Value | None]:
    """Write the gradients of input, weight and bias, those that ``mask`` asks for."""
    build = context.build
    shape = [batch, groups, channels // groups, plane]
    slope, data = (build.reshape(widen(build, item), shape) for item in (gradient, value))
    centre, width = (
        build.reshape(build.cast(stat, element(data)), [batch, groups, 1, 1])
        for stat in (mean, inverse)
    )
    normal = build.multiply(build.subtract(data, centre), width)
    results: list[ir.Value | None] = [None, None, None]
    if mask[0]:
        inner = slope
        if weight is not None:
            inner = build.multiply(slope, build.reshape(weight, [1, *shape[1:3], 1]))
        results[0] = build.reshape(_centred(build, inner, normal, width, [2, 3]), sizes(value))
    if mask[1]:
        total = build.reduce("ReduceSum", build.multiply(slope, normal), [0, 3])
        results[1] = build.reshape(total, [channels])
    if mask[2]:
        results[2] = build.reshape(build.reduce("ReduceSum", slope, [0, 3]), [channels])
    return as_stated(context, results)


@translates("_fused_rms_norm_backward")
def rms_norm_backward(
    context: Context,
    gradient: ir.Value,
    value: ir.Value,
    normalized_shape: Sequence[int],
    inverse: ir.Value,
    weight: ir.Value | None,
    mask: Sequence[bool],
) -> list[ir.Value | None]:
    """Write the gradients of input and weight, those that ``mask`` asks for."""
    build = context.build
    slope, data = widen(build, gradient), widen(build, value)
    rank = len(sizes(data))
    first = rank - len(normalized_shape)
    width = build.cast(inverse, element(data))
    normal = build.multiply(data, width)
    results: list[ir.Value | None] = [None, None]
    if mask[0]:
        inner = slope if weight is None else build.multiply(slope, weight)
        both = build.multiply(inner, normal)
        shared = build.reduce("ReduceMean", both, range(first, rank), keep=True)
        rest = build.subtract(inner, build.multiply(normal, shared))
        results[0] = build.multiply(rest, width)
    if mask[1]:
        results[1] = build.reduce("ReduceSum", build.multiply(slope, normal), range(first))
    return as_stated(context, results)


def _centred(
    build: GraphBuilder,
    inner: ir.Value,
    normal: ir.Value,
    inverse: ir.Value,
    axes: Sequence[int],
) -> ir.Value:
    """Return ``inverse * (inner - mean(inner) - normal * mean(inner * normal))``."""
    level = build.reduce("ReduceMean", inner, axes, keep=True)
    shared = build.reduce("ReduceMean", build.multiply(inner, normal), axes, keep=True)
    rest = build.subtract(build.subtract(inner, level), build.multiply(normal, shared))
    return build.multiply(rest, inverse)
