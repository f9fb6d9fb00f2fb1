"""Data types in torch's, ONNX's and numpy's words."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import onnx_ir as ir
import torch

from samba_onnx.errors import ModelError

_PAIRS = (
    (torch.float32, ir.DataType.FLOAT),
    (torch.float64, ir.DataType.DOUBLE),
    (torch.float16, ir.DataType.FLOAT16),
    (torch.bfloat16, ir.DataType.BFLOAT16),
    (torch.int64, ir.DataType.INT64),
    (torch.int32, ir.DataType.INT32),
    (torch.int16, ir.DataType.INT16),
    (torch.int8, ir.DataType.INT8),
    (torch.uint8, ir.DataType.UINT8),
    (torch.uint16, ir.DataType.UINT16),
    (torch.uint32, ir.DataType.UINT32),
    (torch.uint64, ir.DataType.UINT64),
    (torch.bool, ir.DataType.BOOL),
    (torch.complex64, ir.DataType.COMPLEX64),
    (torch.complex128, ir.DataType.COMPLEX128),
)

FLOATING: Final = frozenset(
    {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
)
"""Data types with a fraction."""

_TO_ONNX: Final = MappingProxyType(dict(_PAIRS))
_TO_TORCH: Final = MappingProxyType({onnx: ours for ours, onnx in _PAIRS})


def onnx_type(dtype: torch.dtype) -> ir.DataType:
    """Return ONNX's name of a torch data type.

    Args:
        dtype: Any.

    Raises:
        ModelError: ONNX has no such type.
    """
    try:
        return _TO_ONNX[dtype]
    except KeyError:
        raise ModelError(
            f"{dtype} has no counterpart in ONNX: convert such tensors to another dtype first"
        ) from None


def torch_type(dtype: ir.DataType) -> torch.dtype:
    """Return torch's name of an ONNX data type.

    Args:
        dtype: Any.

    Raises:
        ModelError: torch has no such type.
    """
    try:
        return _TO_TORCH[dtype]
    except KeyError:
        raise ModelError(
            f"{dtype} has no counterpart in torch: convert such tensors first"
        ) from None
