"""Element types of tensors: ONNX's name and number, packed size, numpy's, torch's and safetensors' name.

One table for everything that names, converts, lays out or checks tensors. Three spellings occur:

``tensor(float)``
    ONNX's text form of a type, in manifests and schemas; its name of the element type is ``float``.
``float32``
    The plain name, in target files, reports and tolerances: numpy's and torch's, where they have one.
``F32``
    safetensors' name, in headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ELEMENT_TYPES",
    "OPAQUE",
    "SAFETENSORS_TYPES",
    "ElementType",
    "dtype_name",
    "plain_name",
    "tensor_element",
    "tensor_text",
    "type_problem",
]

OPAQUE: Final = "U8"
"""safetensors' dtype for elements that it has no name for: the packed bytes as they are."""


@dataclass(frozen=True)
class ElementType:
    """What is known about one element type."""

    name: str
    """The name that ONNX has for it, as in ``tensor(name)``."""
    number: int
    """In ``TensorProto.DataType``."""
    bits: int
    """Packed size of one element."""
    dtype_name: str
    """Name in numpy or, where numpy has none, in ml_dtypes; torch's is the same where it has one."""
    safetensors: str
    """Its name in a safetensors header; ``U8`` with the real type in ``__metadata__`` for types
    that not every supported version of that library can name."""
    torch_computes: bool
    """Whether torch has operators on it, so that graphs of it are exported and imported."""

    floating: bool
    """Whether it is a floating-point type; complex types are none."""

    @property
    def numpy(self) -> np.dtype:
        """What an array of it looks like; elements of fewer than 8 bits take a byte each there."""
        import ml_dtypes  # here: looking into a PEF needs no arrays, and pays for none
        import numpy as np

        return np.dtype(getattr(ml_dtypes, self.dtype_name, self.dtype_name))

    @property
    def packs(self) -> bool:
        """Whether several elements share a byte in a file."""
        return self.bits < 8

    @property
    def text(self) -> str:
        """ONNX's text form of a tensor of it: ``tensor(float)``."""
        return tensor_text(self.name)


ELEMENT_TYPES: Final[Mapping[str, ElementType]] = MappingProxyType(
    {
        row[0]: ElementType(*row)
        for row in (
            ("float", 1, 32, "float32", "F32", True, True),
            ("double", 11, 64, "float64", "F64", True, True),
            ("float16", 10, 16, "float16", "F16", True, True),
            ("bfloat16", 16, 16, "bfloat16", "BF16", True, True),
            ("bool", 9, 8, "bool", "BOOL", True, False),
            ("uint8", 2, 8, "uint8", "U8", True, False),
            ("int8", 3, 8, "int8", "I8", True, False),
            ("uint16", 4, 16, "uint16", "U16", True, False),
            ("int16", 5, 16, "int16", "I16", True, False),
            ("uint32", 12, 32, "uint32", "U32", True, False),
            ("int32", 6, 32, "int32", "I32", True, False),
            ("uint64", 13, 64, "uint64", "U64", True, False),
            ("int64", 7, 64, "int64", "I64", True, False),
            # safetensors knows no complex128, and only its newer versions know complex64.
            ("complex64", 14, 64, "complex64", OPAQUE, True, False),
            ("complex128", 15, 128, "complex128", OPAQUE, True, False),
            ("float8e4m3fn", 17, 8, "float8_e4m3fn", "F8_E4M3", False, True),
            ("float8e5m2", 19, 8, "float8_e5m2", "F8_E5M2", False, True),
            # From here on nothing has a name in all supported versions of safetensors: bytes are
            # stored.
            ("float8e4m3fnuz", 18, 8, "float8_e4m3fnuz", OPAQUE, False, True),
            ("float8e5m2fnuz", 20, 8, "float8_e5m2fnuz", OPAQUE, False, True),
            ("float8e8m0", 24, 8, "float8_e8m0fnu", OPAQUE, False, True),
            ("float4e2m1", 23, 4, "float4_e2m1fn", OPAQUE, False, True),
            ("uint4", 21, 4, "uint4", OPAQUE, False, False),
            ("int4", 22, 4, "int4", OPAQUE, False, False),
            ("uint2", 25, 2, "uint2", OPAQUE, False, False),
            ("int2", 26, 2, "int2", OPAQUE, False, False),
        )
    }
)
"""Every element type of fixed size, by ONNX's name."""

SAFETENSORS_TYPES: Final[Mapping[str, ElementType]] = MappingProxyType(
    {
        element.safetensors: element
        for element in ELEMENT_TYPES.values()
        # uint8 is what `U8` means unless the header's metadata says otherwise.
        if element.safetensors != OPAQUE or element.name == "uint8"
    }
)
"""Element types by safetensors' names for them."""

_TENSOR = re.compile(r"tensor\(([a-z0-9]+)\)")
_WRAPPER = re.compile(r"(seq|optional)\((.+)\)|map\([a-z0-9]+,(.+)\)", re.DOTALL)
_LEAF = re.compile(r"(?:tensor|sparse_tensor)\(([a-z0-9]+)\)")
# A type comes from a manifest, and a text of brackets could otherwise keep the reader busy.
_DEEPEST_TYPE = 16
_PLAIN_NAMES: Final[Mapping[str, str]] = MappingProxyType({"float": "float32", "double": "float64"})


def tensor_text(element: str) -> str:
    """Return ONNX's text form of a tensor type.

    Args:
        element: ONNX's name of the element type, as ``float`` or ``FLOAT``.

    Returns:
        ``tensor(float)``.
    """
    return f"tensor({element.lower()})"


def plain_name(element: str) -> str:
    """Return an element type's name as target files, reports and messages use it.

    Args:
        element: ONNX's name of the element type, as ``float`` or ``FLOAT``.

    Returns:
        ``float32``; other names are the same, in small letters.
    """
    return _PLAIN_NAMES.get(element.lower(), element.lower())


def dtype_name(dtype: object) -> str:
    """Return the plain name of torch's or numpy's data type.

    Args:
        dtype: ``torch.float32`` or ``numpy.dtype("float32")``.
    """
    return str(dtype).removeprefix("torch.")


def tensor_element(type_text: str) -> ElementType | None:
    """Return the element type of a type in ONNX's text form.

    Args:
        type_text: As ``tensor(float)``.

    Returns:
        The element type; None for strings and for anything else.
    """
    match = _TENSOR.fullmatch(type_text)
    return ELEMENT_TYPES.get(match.group(1)) if match else None


def type_problem(type_text: str) -> str | None:
    """Return what is wrong with a type in ONNX's text form, or None.

    Args:
        type_text: A type; the empty text stands for one that nobody knows before the value exists.
    """
    inner = type_text
    # A loop over layers: recursion would end in a RecursionError for a hostile text.
    for _ in range(_DEEPEST_TYPE):
        leaf = _LEAF.fullmatch(inner)
        if not inner or (leaf and (leaf.group(1) == "string" or leaf.group(1) in ELEMENT_TYPES)):
            return None
        wrapper = _WRAPPER.fullmatch(inner)
        if not wrapper:
            break
        inner = wrapper.group(2) or wrapper.group(3)
    return f"{type_text!r} is no ONNX type"
