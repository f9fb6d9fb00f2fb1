"""How much memory values take."""

from __future__ import annotations

import functools

import onnx_ir as ir

from samba_onnx.facts.dtypes import ELEMENT_TYPES, ElementType
from samba_onnx.pef.packing import packed_bytes
from samba_onnx.program.dataflow import dimensions

__all__ = ["value_bytes"]


def value_bytes(value: ir.Value) -> int | None:
    """Return the size of a value in memory.

    Args:
        value: A value of the graph; for an initializer only type and shape are looked at, its
            content is not read.

    Returns:
        Bytes, elements of less than a byte packed (three int4 elements take two bytes); None where
        the type or a dimension is not known, and for strings and values that are no tensors.
    """
    # Not isinstance, which is slow on these types: they fulfil a runtime protocol.
    if type(value.type) is ir.SparseTensorType:
        return None
    dtype, shape = value.dtype, dimensions(value)
    if dtype is None and value.const_value is not None:
        dtype = value.const_value.dtype
    element = None if dtype is None else _element(dtype)
    if element is None or shape is None:
        return None
    sizes = [size for size in shape if isinstance(size, int)]
    return packed_bytes(element, sizes) if len(sizes) == len(shape) else None


@functools.cache
def _element(dtype: ir.DataType) -> ElementType | None:
    # Kept by type: every value of a graph is asked for several times.
    return ELEMENT_TYPES.get(dtype.name.lower())
