"""Poolings as onnx's inference must see them so that it finds the shapes that onnxruntime computes.

onnx and onnxruntime round differently in two places. With ``ceil_mode`` a last window that would begin in the
padding behind the data is dropped by onnxruntime at every version, by onnx's inference only from version 22
on. And where ``auto_pad`` keeps sizes the same, onnxruntime pads for the kernel without its dilations, and so
computes less than onnx infers.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import integer_attribute, static_shape

__all__ = ["POOLS", "floor_attributes"]

POOLS: Final = frozenset({"AveragePool", "LpPool", "MaxPool"})


def floor_attributes(node: ir.Node) -> dict[str, list[int]] | None:
    """Return attributes with which a pooling that rounds down makes the shape that this one has.

    1. With ``ceil_mode``, the padding behind the data is longer by what completes a window, and never so long
       that a window could begin in it. That holds for every size of the data.
    2. With dilations and an ``auto_pad`` of ``SAME_UPPER`` or ``SAME_LOWER``, the padding is onnxruntime's, which
       depends on the sizes.

    Args:
        node: A node of an operator in ``POOLS``.

    Returns:
        What takes the place of its ``ceil_mode``, ``auto_pad`` and ``pads``; None where onnx infers right.
    """
    kernel = _integers(node, "kernel_shape", [])
    rank = len(kernel)
    strides = _integers(node, "strides", [1] * rank)
    dilations = _integers(node, "dilations", [1] * rank)
    mode = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else "NOTSET"
    pads = _integers(node, "pads", [0] * (2 * rank)) if mode == "NOTSET" else [0] * (2 * rank)
    if not rank or (len(strides), len(dilations), len(pads)) != (rank, rank, 2 * rank):
        return None
    if mode.startswith("SAME"):
        same = _same_pads(node, kernel, strides)
        # Case 2.
        return {"pads": same} if same is not None and set(dilations) != {1} else None
    if not integer_attribute(node, "ceil_mode", 0):
        return None
    # Case 1.
    reach = [(size - 1) * dilation for size, dilation in zip(kernel, dilations, strict=True)]
    behind = [
        min(pad + stride - 1, most)
        for pad, stride, most in zip(pads[rank:], strides, reach, strict=True)
    ]
    return {"pads": [*pads[:rank], *behind]}


def _same_pads(node: ir.Node, kernel: list[int], strides: list[int]) -> list[int] | None:
    """Return the padding that onnxruntime adds to keep sizes; None where the sizes are not known."""
    shape = static_shape(node.inputs[0])
    if shape is None or len(shape) != len(kernel) + 2:
        return None
    needed = [
        max((-(-size // stride) - 1) * stride + width - size, 0)
        for size, width, stride in zip(shape[2:], kernel, strides, strict=True)
    ]
    return [0] * len(kernel) + needed


def _integers(node: ir.Node, name: str, default: list[int]) -> list[int]:
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else list(attribute.as_ints())
