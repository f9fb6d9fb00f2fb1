"""Data types in torch's, ONNX's and numpy's words."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import onnx_ir as ir
import torch

from samba_onnx.errors import ModelError
from samba_onnx.tensor.dtypes import TORCH_TYPES

_TO_ONNX: Final = MappingProxyType(
    {dtype: ir.DataType(number) for number, dtype in TORCH_TYPES.items()}
)


def onnx_type(dtype: torch.dtype) -> ir.DataType:
    """Return ONNX's name of a torch data type.

    Args:
        dtype: A data type of torch, which ONNX may lack.

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
        dtype: A data type of ONNX, which torch may lack.

    Raises:
        ModelError: torch has no such type.
    """
    try:
        return TORCH_TYPES[dtype]
    except KeyError:
        raise ModelError(
            f"{dtype} has no counterpart in torch: convert such tensors first"
        ) from None
