"""Element types of tensors: ONNX's name, packed size, numpy's dtype and safetensors' name.

One table for everything that lays out, reads or checks tensor bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ELEMENT_TYPES",
    "ElementType",
    "pack",
    "packed_bytes",
    "tensor_element",
    "type_problem",
    "unpack",
]

OPAQUE = "U8"
"""safetensors' dtype for elements that it has no name for: the packed bytes as they are."""


@dataclass(frozen=True)
class ElementType:
    """What is known about one element type."""

    name: str
    """As in ``tensor(name)``."""
    bits: int
    """Packed size of one element."""
    dtype_name: str
    """Name of the dtype in numpy or, where numpy has none, in ml_dtypes."""
    safetensors: str
    """Its name in a safetensors header; ``U8`` with the real type in ``__metadata__`` for types
    that not every supported version of that library can name."""

    @property
    def numpy(self) -> np.dtype:
        """What an array of it looks like; elements of fewer than 8 bits take a byte each there."""
        import ml_dtypes  # here and below: looking into a PEF needs no arrays, and pays for none
        import numpy as np

        return np.dtype(getattr(ml_dtypes, self.dtype_name, self.dtype_name))

    @property
    def packs(self) -> bool:
        """Whether several elements share a byte in a file."""
        return self.bits < 8


ELEMENT_TYPES: dict[str, ElementType] = {
    name: ElementType(name, bits, dtype, safetensors)
    for name, bits, dtype, safetensors in (
        ("float", 32, "float32", "F32"),
        ("double", 64, "float64", "F64"),
        ("float16", 16, "float16", "F16"),
        ("bfloat16", 16, "bfloat16", "BF16"),
        ("bool", 8, "bool", "BOOL"),
        ("uint8", 8, "uint8", "U8"),
        ("int8", 8, "int8", "I8"),
        ("uint16", 16, "uint16", "U16"),
        ("int16", 16, "int16", "I16"),
        ("uint32", 32, "uint32", "U32"),
        ("int32", 32, "int32", "I32"),
        ("uint64", 64, "uint64", "U64"),
        ("int64", 64, "int64", "I64"),
        ("complex64", 64, "complex64", OPAQUE),
        ("complex128", 128, "complex128", OPAQUE),
        ("float8e4m3fn", 8, "float8_e4m3fn", "F8_E4M3"),
        ("float8e5m2", 8, "float8_e5m2", "F8_E5M2"),
        ("float8e4m3fnuz", 8, "float8_e4m3fnuz", OPAQUE),
        ("float8e5m2fnuz", 8, "float8_e5m2fnuz", OPAQUE),
        ("float8e8m0", 8, "float8_e8m0fnu", OPAQUE),
        ("float4e2m1", 4, "float4_e2m1fn", OPAQUE),
        ("uint4", 4, "uint4", OPAQUE),
        ("int4", 4, "int4", OPAQUE),
        ("uint2", 2, "uint2", OPAQUE),
        ("int2", 2, "int2", OPAQUE),
    )
}
"""Every element type of fixed size, by ONNX's name."""

_TENSOR = re.compile(r"tensor\(([a-z0-9]+)\)")
_WRAPPER = re.compile(r"(seq|optional)\((.+)\)|map\([a-z0-9]+,(.+)\)", re.DOTALL)
_LEAF = re.compile(r"(?:tensor|sparse_tensor)\(([a-z0-9]+)\)")
_DEEPEST_TYPE = 16


def tensor_element(type_text: str) -> ElementType | None:
    """Return the element type of ``tensor(...)``; None for strings and for anything else."""
    match = _TENSOR.fullmatch(type_text)
    return ELEMENT_TYPES.get(match.group(1)) if match else None


def type_problem(type_text: str) -> str | None:
    """Return what is wrong with a type in ONNX's text form, or None.

    The empty text stands for a type that nobody knows before the value exists.
    """
    inner = type_text
    for _ in range(_DEEPEST_TYPE):
        leaf = _LEAF.fullmatch(inner)
        if not inner or (leaf and (leaf.group(1) == "string" or leaf.group(1) in ELEMENT_TYPES)):
            return None
        wrapper = _WRAPPER.fullmatch(inner)
        if not wrapper:
            break
        inner = wrapper.group(2) or wrapper.group(3)
    return f"{type_text!r} is no ONNX type"


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
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & (2**element.bits - 1)
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
        sign = np.uint8(1 << (element.bits - 1))
        flat = ((flat ^ sign) - sign).astype(np.uint8)
    array: np.ndarray = flat.view(element.numpy).reshape(tuple(shape))
    return array
