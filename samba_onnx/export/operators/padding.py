"""Padding by constants, reflection, repetition of the edge and around the corner."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, Scalar, sizes

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@translates("constant_pad_nd")
def constant_pad(
    context: Context, value: ir.Value, amounts: Sequence[int], content: Scalar = 0
) -> ir.Value:
    """Write padding by a number; negative amounts take away."""
    return _pad(context.build, value, amounts, "constant", content)


@translates("pad")
def pad(
    context: Context,
    value: ir.Value,
    amounts: Sequence[int],
    mode: str = "constant",
    content: float | None = None,
) -> ir.Value:
    """Write padding in a mode of that name."""
    return _pad(context.build, value, amounts, _MODES[mode], content or 0)


@translates("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(context: Context, value: ir.Value, amounts: Sequence[int]) -> ir.Value:
    """Write padding by the mirror image."""
    return _pad(context.build, value, amounts, "reflect")


@translates("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(context: Context, value: ir.Value, amounts: Sequence[int]) -> ir.Value:
    """Write padding by the element at the edge."""
    return _pad(context.build, value, amounts, "edge")


@translates("_pad_circular")
def circular_pad(context: Context, value: ir.Value, amounts: Sequence[int]) -> ir.Value:
    """Write padding by the elements of the other end."""
    return _pad(context.build, value, amounts, "wrap")


@translates("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward")
def reflection_pad_backward(
    context: Context, gradient: ir.Value, value: ir.Value, amounts: Sequence[int]
) -> ir.Value:
    """Write the gradient: borders are turned around and added to what they mirror."""
    return _pad_gradient(context.build, gradient, sizes(value), amounts, mirrored=True)


@translates(
    "replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"
)
def replication_pad_backward(
    context: Context, gradient: ir.Value, value: ir.Value, amounts: Sequence[int]
) -> ir.Value:
    """Write the gradient: borders are summed and added to the edge."""
    return _pad_gradient(context.build, gradient, sizes(value), amounts, mirrored=False)


def _pad(
    build: GraphBuilder,
    value: ir.Value,
    amounts: Sequence[int],
    mode: str,
    content: Scalar = 0,
) -> ir.Value:
    """Pad as torch states it: pairs of amounts, last axis first."""
    rank = len(sizes(value))
    before, after = [0] * rank, [0] * rank
    for index, amount in enumerate(amounts):
        (after if index % 2 else before)[rank - 1 - index // 2] = amount
    if mode != "constant":
        # Borders are copies of the whole value's elements, so that taking away comes last.
        front, back = ([max(amount, 0) for amount in side] for side in (before, after))
        value = build.pad(value, front, back, mode=mode)
        before, after = ([min(amount, 0) for amount in side] for side in (before, after))
    return build.pad(value, before, after, content)


def _pad_gradient(
    build: GraphBuilder,
    gradient: ir.Value,
    shape: Sequence[int],
    amounts: Sequence[int],
    *,
    mirrored: bool,
) -> ir.Value:
    for index in range(len(amounts) // 2):
        axis = len(shape) - 1 - index
        before, after = amounts[2 * index : 2 * index + 2]
        gradient = _fold_axis(build, gradient, axis, shape[axis], before, after, mirrored=mirrored)
    return gradient


def _fold_axis(
    build: GraphBuilder,
    gradient: ir.Value,
    axis: int,
    size: int,
    before: int,
    after: int,
    *,
    mirrored: bool,
) -> ir.Value:
    """Add what was padded along an axis to the elements that it was copied from."""
    end = sizes(gradient)[axis]
    front, back = max(before, 0), max(after, 0)
    inner = build.slice(gradient, axis, front, end - back)
    total = _placed(build, inner, axis, max(-before, 0), size)
    edge = int(mirrored)
    if front:
        border = _folded(build, build.slice(gradient, axis, 0, front), axis, mirrored=mirrored)
        total = build.add(total, _placed(build, border, axis, edge, size))
    if back:
        border = _folded(
            build, build.slice(gradient, axis, end - back, end), axis, mirrored=mirrored
        )
        start = size - edge - sizes(border)[axis]
        total = build.add(total, _placed(build, border, axis, start, size))
    return total


def _folded(build: GraphBuilder, border: ir.Value, axis: int, *, mirrored: bool) -> ir.Value:
    if not mirrored:
        return build.reduce("ReduceSum", border, [axis], keep=True)
    length = sizes(border)[axis]
    return build.slice(border, axis, length - 1, -length - 1, -1) if length > 1 else border


def _placed(build: GraphBuilder, part: ir.Value, axis: int, start: int, size: int) -> ir.Value:
    """Put a part at a position of an axis of zeros."""
    before, after = [0] * len(sizes(part)), [0] * len(sizes(part))
    before[axis] = start
    after[axis] = size - start - sizes(part)[axis]
    return build.pad(part, before, after)
