"""Quantisation; its rounding has no gradient, the way back has one."""

from __future__ import annotations

import torch
from torch import Tensor

from samba_onnx.importing.operators.registry import Node, computes
from samba_onnx.importing.values import torch_dtype


def _spread(node: Node, operand: Tensor, value: Tensor) -> Tensor:
    """Bring a scale or zero point to a shape that broadcasts: per tensor, axis or block."""
    if operand.dim() == 0 or operand.numel() == 1:
        return operand.reshape(())
    axis, block = node.integer("axis", 1) % value.dim(), node.integer("block_size")
    if block:
        return operand.repeat_interleave(block, axis).narrow(axis, 0, value.shape[axis])
    sizes = [1] * value.dim()
    sizes[axis] = operand.shape[0]
    return operand.reshape(sizes)


@computes("DequantizeLinear")
def dequantize(node: Node, value: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Return numbers in the type of the scale."""
    wide = value.to(torch.int32)
    if zero is not None:
        wide = wide - _spread(node, zero.to(torch.int32), value)
    return wide.to(scale.dtype) * _spread(node, scale, value)


@computes("QuantizeLinear")
def quantize(node: Node, value: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Round to integers of few bits."""
    kind = node.integer("output_dtype")
    dtype = torch_dtype(kind) if kind else torch.uint8 if zero is None else zero.dtype
    limits = torch.iinfo(dtype)
    steps = torch.round(value / _spread(node, scale, value))
    if zero is not None:
        steps = steps + _spread(node, zero.to(steps.dtype), value)
    return torch.clamp(steps, limits.min, limits.max).to(dtype)


@computes("DynamicQuantizeLinear")
def quantize_dynamically(node: Node, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Round to 8 bits over the range of the content; return scale and zero point too."""
    del node
    low, high = value.amin().clamp(max=0.0), value.amax().clamp(min=0.0)
    scale = (high - low) / 255
    zero = torch.clamp(torch.round(-low / scale), 0, 255)
    steps = torch.clamp(torch.round(value / scale) + zero, 0, 255)
    return steps.to(torch.uint8), scale, zero.to(torch.uint8)
