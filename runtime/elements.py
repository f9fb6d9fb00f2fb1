"""How tensor elements lie in device memory, beside the numpy arrays of the host.

The host sees numpy arrays, with :mod:`ml_dtypes` where numpy has no type of its own: one element,
one item. onnxruntime knows numpy's own types only and takes the others by address; elements that
are smaller than a byte are packed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from samba_onnx.facts.dtypes import ElementType
from samba_onnx.pef.packing import pack, packed_bytes, unpack

Array = npt.NDArray[Any]
INTEGER_KINDS: Final = "iu"
"""numpy's kinds of integers."""


def is_native(element: ElementType) -> bool:
    """Return whether numpy itself has the type, so that onnxruntime takes and returns arrays."""
    # The types of ml_dtypes are known to numpy, too, but as a user's: for them it is 2.
    return element.numpy.isbuiltin == 1


def storage_dtype(element: ElementType) -> np.dtype[Any]:
    """Return the numpy type whose items hold one element, or several packed ones."""
    if is_native(element):
        return element.numpy
    return np.dtype(np.uint16 if element.bits == 16 else np.uint8)


def moved_bytes(array: Array, element: ElementType) -> int:
    """Return how many bytes pass over the link when an array does.

    Args:
        array: Host array whose dtype is ``element.numpy``.
        element: Type of the array's elements; those smaller than a byte pass packed.
    """
    return packed_bytes(element, array.shape)


def to_items(array: Array, element: ElementType) -> Array:
    """Return the storage items of a host array.

    Args:
        array: Host array whose dtype is ``element.numpy``, of any shape.
        element: Type of the array's elements.

    Returns:
        Items of ``storage_dtype``: of the array's own shape, or a flat array where several elements
        share a byte. May share the array's memory.
    """
    if is_native(element):
        return array
    if element.packs:
        return pack(array, element)
    return np.asarray(array).view(storage_dtype(element))


def from_items(items: Array, element: ElementType, shape: Sequence[int]) -> Array:
    """Return a fresh host array from storage items; the inverse of :func:`to_items`.

    Args:
        items: Items of ``storage_dtype``.
        element: The type.
        shape: The shape of the host array.

    Returns:
        An array of ``element.numpy`` that shares no memory with ``items``.
    """
    if element.packs:
        return unpack(items, element, shape)
    # A copy: the items may be those in device memory, which the next run overwrites.
    return items.copy().view(element.numpy).reshape(tuple(shape))
