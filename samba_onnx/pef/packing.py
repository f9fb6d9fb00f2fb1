"""Elements of fewer than 8 bits, which share bytes in files and in device memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_onnx.errors import UsageError
from samba_onnx.facts.dtypes import ElementType

if TYPE_CHECKING:
    import numpy as np

__all__ = ["pack", "packed_bytes", "unpack"]


def packed_bytes(element: ElementType, shape: Sequence[int]) -> int:
    """Return the size in bytes of a tensor as files hold it.

    Args:
        element: The element type.
        shape: Dimensions, all known.

    Returns:
        The number of bytes; elements of 2 or 4 bits share bytes, the last one is filled up.
    """
    return (math.prod(shape) * element.bits + 7) // 8


def pack(array: np.ndarray, element: ElementType) -> np.ndarray:
    """Pack elements of 2 or 4 bits, first element in the lowest bits, as ONNX does.

    Args:
        array: Any shape, dtype ``element.numpy``.
        element: A type for which ``packs`` holds.

    Returns:
        One-dimensional uint8 array.
    """
    import numpy as np

    per_byte = 8 // element.bits
    # Masked, because `ml_dtypes` keeps a sign in the upper bits of a byte.
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & (2**element.bits - 1)
    # The last byte is filled up with zeros: the same tensor always has the same bytes.
    padded = np.zeros(-(-flat.size // per_byte) * per_byte, np.uint8)
    padded[: flat.size] = flat
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(element.bits)
    packed: np.ndarray = np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)
    return packed.astype(np.uint8)


def unpack(packed: np.ndarray, element: ElementType, shape: Sequence[int]) -> np.ndarray:
    """Undo ``pack``.

    Args:
        packed: One-dimensional uint8 array.
        element: A type for which ``packs`` holds.
        shape: The shape to restore.

    Returns:
        Array of ``shape`` and dtype ``element.numpy``; a copy, never a view.

    Raises:
        UsageError: ``packed`` has another size than the shape needs.
    """
    import numpy as np

    if packed.size != packed_bytes(element, shape):
        raise UsageError(f"{packed.size} packed bytes do not make a {element.name} of {shape}")
    shifts = np.arange(8 // element.bits, dtype=np.uint8) * np.uint8(element.bits)
    bits = (packed[:, None] >> shifts) & np.uint8(2**element.bits - 1)
    flat = bits.reshape(-1)[: math.prod(shape)]
    if element.name.startswith("int"):  # ml_dtypes keeps the sign in the unused upper bits
        # Flipping the sign bit and subtracting it extends the sign without a branch.
        sign = np.uint8(1 << (element.bits - 1))
        flat = ((flat ^ sign) - sign).astype(np.uint8)
    array: np.ndarray = flat.view(element.numpy).reshape(tuple(shape))
    return array
