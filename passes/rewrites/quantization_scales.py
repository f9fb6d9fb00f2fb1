"""Scales and zero points of quantised tensors: whether they fit, and how they spread over a tensor."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.lazy_weights import Array

__all__ = ["exact_numbers", "scales_fit", "spread"]


def exact_numbers(tensor: ir.TensorProtocol) -> Array:
    """Return a tensor's content so that differences are exact: int64, or float32 of eight bits."""
    # Differences of int64 cannot overflow for quantised integers; a float of eight bits is exact in
    # float32.
    return tensor.numpy().astype(np.int64 if tensor.dtype.is_integer() else np.float32)


def scales_fit(scale: tuple[int, ...], shape: tuple[int, ...], axis: int, block: int) -> bool:
    """Return whether scales are one, one per place of the axis, or one per block along it.

    Args:
        scale: Shape of the scales.
        shape: Shape of what they scale.
        axis: The axis; from the end where negative.
        block: Places along the axis that share a scale; 0 for no blocks.
    """
    if scale in ((), (1,)) and not block:
        return True
    if not -len(shape) <= axis < len(shape):
        return False
    place = axis % len(shape)
    if not block:
        return scale == (shape[place],)
    # The last block may be cut short.
    blocks = -(-shape[place] // block)
    return block > 0 and scale == (*shape[:place], blocks, *shape[place + 1 :])


def spread(array: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """Return scales or zero points that fit, in a shape that broadcasts to that of the tensor.

    Args:
        array: The scales or zero points.
        shape: Shape of what they scale.
        axis: The axis; from the end where negative.
        block: Places along the axis that share a scale; 0 for no blocks.
    """
    if block:
        place = axis % len(shape)
        whole = np.repeat(array, block, axis=place)
        # The last block is repeated as a whole, and cut off at the axis' end.
        return whole[(*[slice(None)] * place, slice(shape[place]))]
    if array.size == 1:
        return array.reshape(())
    return array.reshape([-1 if place == axis % len(shape) else 1 for place in range(len(shape))])
