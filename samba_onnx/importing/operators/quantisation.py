"""Quantisation; its rounding has no gradient, the way back has one."""

from __future__ import annotations

import torch
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes
from samba_onnx.importing.values import torch_dtype


def _spread(node: Node, operand: Tensor, value: Tensor) -> Tensor:
    """Bring a scale or zero point to a shape that broadcasts: per tensor, axis or block."""
    # One number broadcasts everywhere; `axis` must not be looked at, as it may not exist.
    if operand.dim() == 0 or operand.numel() == 1:
        return operand.reshape(())
    axis, block = node.integer("axis", 1) % value.dim(), node.integer("block_size")
    if block:
        # The last block may be cut short.
        return operand.repeat_interleave(block, axis).narrow(axis, 0, value.shape[axis])
    sizes = [1] * value.dim()
    sizes[axis] = operand.shape[0]
    return operand.reshape(sizes)


@computes("DequantizeLinear")
def dequantize(node: Node, value: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Return numbers in the type of the scale."""
    # Differences of uint8 would wrap around; int32 holds all of 8 and 16 bits.
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
    # Half to even, as both torch and ONNX have it.
    steps = torch.round(value / _spread(node, scale, value))
    if zero is not None:
        steps = steps + _spread(node, zero.to(steps.dtype), value)
    return torch.clamp(steps, limits.min, limits.max).to(dtype)


@computes("DynamicQuantizeLinear")
def quantize_dynamically(node: Node, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Round to 8 bits over the range of the content; return scale and zero point too."""
    del node
    # Zero must be exactly representable, hence a range that has it.
    low, high = value.amin().clamp(max=0.0), value.amax().clamp(min=0.0)
    scale = (high - low) / 255
    zero = torch.clamp(torch.round(-low / scale), 0, 255)
    steps = torch.clamp(torch.round(value / scale) + zero, 0, 255)
    return steps.to(torch.uint8), scale, zero.to(torch.uint8)
