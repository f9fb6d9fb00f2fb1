"""Operators that look at memory, as torch has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.errors import ModelError
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.operators.shapes import picked, replaced
from samba_onnx.export.translation.builder import sizes


@translates("as_strided", "as_strided_copy")
def as_strided(
    context: Context,
    value: ir.Value,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int | None = None,
) -> ir.Value:
    """Write a Gather of what lies at those places of the value's memory."""
    stored = context.build.transpose(value, _memory_order(context, value))
    return picked(context, stored, _strided_places(shape, strides, _start(context, offset)))


def _memory_order(context: Context, value: ir.Value) -> list[int]:
    """Return a value's axes in the order in which torch's memory has them."""
    shape = sizes(value)
    if context.layout is None:
        return list(range(len(shape)))
    strides = context.layout.strides
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    step = 1
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != step:
            raise ModelError(
                "it reads the memory behind a tensor that has only a part of it: call contiguous() "
                "on that tensor first"
            )
        step *= shape[axis]
    return order


def _start(context: Context, offset: int | None) -> int:
    """Return where the first place is, counted from where the value begins in memory."""
    if offset is None:
        return 0
    return offset - (context.layout.offset if context.layout else 0)


def _strided_places(shape: Sequence[int], strides: Sequence[int], offset: int) -> NDArray[np.int64]:
    places = np.full(tuple(shape), offset, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = np.arange(size) * stride
        places = places + steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return places


@translates("as_strided_scatter")
def as_strided_scatter(
    context: Context,
    value: ir.Value,
    source: ir.Value,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int | None = None,
) -> ir.Value:
    """Write a value with what lies at some places of its memory replaced."""
    order = _memory_order(context, value)
    stored = context.build.transpose(value, order)
    places = _strided_places(shape, strides, _start(context, offset))
    mixed = replaced(context, stored, places, source)
    return context.build.transpose(mixed, np.argsort(order).tolist())
