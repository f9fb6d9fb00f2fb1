"""Weights that are rearranged when somebody reads them, and not before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.families import REARRANGING
from samba_onnx.passes.rewrites.rewriting import integers

Array = NDArray[Any]
Arrange = Callable[[Sequence[Array]], Array]

LAYOUT = REARRANGING
"""Operators that rearrange all of one operand."""


def lazy_tensor(
    arrange: Arrange, sources: Sequence[ir.TensorProtocol], shape: tuple[int, ...]
) -> ir.LazyTensor:
    """Return a tensor that is computed from ``sources`` each time that it is read.

    Args:
        arrange: Makes the content from that of the sources, in any shape; moves elements, computes
            nothing.
        sources: Tensors of one type, usually still in the model's file.
        shape: Shape of the result.
    """

    def compute() -> ir.TensorProtocol:
        # Sources are read now, one result at a time, and are not kept.
        array = arrange([source.numpy() for source in sources])
        return ir.Tensor(np.ascontiguousarray(array).reshape(shape))

    return ir.LazyTensor(compute, dtype=sources[0].dtype, shape=ir.Shape(shape))


def arrangement(node: ir.Node, shape: tuple[int, ...]) -> Arrange | None:
    """Return how a node arranges its operands; None when it is no rearrangement.

    Args:
        node: A node of the default domain whose operands are initializers.
        shape: Shape of its output.
    """
    if node.op_type == "Transpose":
        # Without an order, axes are reversed, as numpy does it.
        permutation = node.attributes.get("perm")
        order = None if permutation is None else tuple(permutation.as_ints())
        return lambda arrays: arrays[0].transpose(order)
    if node.op_type in LAYOUT:
        return lambda arrays: arrays[0]  # in the order of its elements; the tensor has the shape
    if node.op_type == "Concat":
        axis = node.attributes["axis"].as_int()
        return lambda arrays: np.concatenate(list(arrays), axis=axis)
    if node.op_type == "Slice":
        bounds = _bounds(node, len(shape))
        return None if bounds is None else lambda arrays: arrays[0][bounds]
    return None


def _bounds(node: ir.Node, rank: int) -> tuple[slice, ...] | None:
    """Return a forward Slice as Python slices; None for another one, also of before version 10."""
    # Before version 10 bounds are attributes.
    if len(node.inputs) < 3:
        return None
    starts, stops, axes, steps = (*(integers(value) for value in node.inputs[1:]), None, None)[:4]
    if starts is None or stops is None:
        return None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(axes) if steps is None else steps
    # Python's slices would need other bounds for a step backwards.
    if any(step < 1 for step in steps):
        return None
    bounds = [slice(None)] * rank
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        bounds[axis] = slice(start, stop, step)
    return tuple(bounds)
