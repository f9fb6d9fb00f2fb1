"""Poolings as onnx's inference must see them so that it finds the shapes that onnxruntime computes.

onnx and onnxruntime round differently in two places. With ``ceil_mode`` a last window that would begin in the
padding behind the data is dropped by onnxruntime at every version, by onnx's inference only from version 22
on. And where ``auto_pad`` keeps sizes the same, onnxruntime pads for the kernel without its dilations, and takes
away where strides are longer than the window, and so computes less than onnx infers.
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
    2. With an ``auto_pad`` of ``SAME_UPPER`` or ``SAME_LOWER``, the window is one without padding that makes as
       many steps as onnxruntime, which depends on the sizes.

    Args:
        node: A node of an operator in ``POOLS``.

    Returns:
        What takes the place of its attributes of these names and of ``ceil_mode``, ``auto_pad`` and ``pads``; None
        where onnx infers right.
    """
    kernel = _integers(node, "kernel_shape", [])
    rank = len(kernel)
    strides = _integers(node, "strides", [1] * rank)
    dilations = _integers(node, "dilations", [1] * rank)
    mode = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else "NOTSET"
    pads = _integers(node, "pads", [0] * (2 * rank)) if mode == "NOTSET" else [0] * (2 * rank)
    # Attributes that contradict each other are the checker's.
    if not rank or (len(strides), len(dilations), len(pads)) != (rank, rank, 2 * rank):
        return None
    if mode.startswith("SAME"):
        # Case 2.
        return _same_window(node, kernel, strides, dilations)
    if not integer_attribute(node, "ceil_mode", 0):
        return None
    # Case 1.
    reach = [(size - 1) * dilation for size, dilation in zip(kernel, dilations, strict=True)]
    behind = [
        # By a stride less one a last window is completed; never longer than the window reaches,
        # where one could begin.
        min(pad + stride - 1, most)
        for pad, stride, most in zip(pads[rank:], strides, reach, strict=True)
    ]
    return {"pads": [*pads[:rank], *behind]}


def _same_window(
    node: ir.Node, kernel: list[int], strides: list[int], dilations: list[int]
) -> dict[str, list[int]] | None:
    """Return a window that makes as many steps; None where the sizes are not known, or there is no step."""
    shape = static_shape(node.inputs[0])
    if shape is None or len(shape) != len(kernel) + 2:
        return None
    steps = [
        _same_steps(node, size, width, stride, (width - 1) * dilation + 1)
        for size, width, stride, dilation in zip(shape[2:], kernel, strides, dilations, strict=True)
    ]
    # Not a window of this kind: onnx infers from what the model states.
    if not all(0 < number <= size for number, size in zip(steps, shape[2:], strict=True)):
        return None
    # A window of size - steps + 1 with strides of 1 makes just as many steps.
    widths = [size - number + 1 for size, number in zip(shape[2:], steps, strict=True)]
    ones = [1] * len(kernel)
    return {
        "kernel_shape": widths,
        "strides": ones,
        "dilations": ones,
        "pads": [0] * 2 * len(kernel),
    }


def _same_steps(node: ir.Node, size: int, width: int, stride: int, reach: int) -> int:
    """Return how many steps onnxruntime makes along one axis, for whose padding dilations do not count."""
    padding = (-(-size // stride) - 1) * stride + width - size
    upper = node.attributes["auto_pad"].as_string() == "SAME_UPPER"
    ahead = int(padding / 2) if upper else int((padding + 1) / 2)
    room = size + padding - reach
    if not integer_attribute(node, "ceil_mode", 0):
        return int(room / stride) + 1
    steps = -(-room // stride) + 1
    return steps - 1 if (steps - 1) * stride >= size + ahead else steps


def _integers(node: ir.Node, name: str, default: list[int]) -> list[int]:
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else list(attribute.as_ints())
