"""Values while a graph runs: tensors, and what is known without looking at any tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor

from samba_onnx.errors import ModelError
from samba_onnx.tensor.dtypes import TORCH_TYPES

__all__ = [
    "Array",
    "Host",
    "Value",
    "stored_tensor",
    "tensor_of",
    "to_numpy",
    "torch_dtype",
]

Array: TypeAlias = NDArray[Any]


def torch_dtype(dtype: ir.DataType | int) -> torch.dtype:
    """Return torch's name of an ONNX data type.

    Args:
        dtype: Any, also as the number that attributes hold.

    Raises:
        ModelError: torch has no such type.
    """
    try:
        return TORCH_TYPES[dtype]
    except KeyError:
        raise ModelError(
            f"data type {ir.DataType(dtype).name} has no counterpart in torch: "
            "train the model before it is quantised, or without this value"
        ) from None


@dataclass(frozen=True, eq=False)
class Host:
    """A value that is known when the graph is traced: a constant, or computed from shapes."""

    array: Array

    def tensor(self) -> Tensor:
        """Return it as a tensor, made anew so that a tracer sees where it comes from."""
        return tensor_of(self.array)


Value: TypeAlias = "Tensor | Host | list[Any] | None"
"""A list is a sequence; None is what was left out, or an empty optional."""


def tensor_of(array: Array) -> Tensor:
    """Return the content of an array as a new tensor.

    Args:
        array: Numbers of a type that torch has; of any shape.

    Raises:
        ModelError: torch has no such type.
    """
    dtype = _dtype_of(array)
    flat = array.reshape(-1)
    if flat.size and (flat[0] == flat).all():  # an operator of its own, and no constant
        return torch.full(array.shape, flat[0].item(), dtype=dtype)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.tensor(array.astype(np.float32).tolist(), dtype=dtype).reshape(array.shape)
    return torch.tensor(array.tolist(), dtype=dtype).reshape(array.shape)


def _dtype_of(array: Array) -> torch.dtype:
    # Kinds of numpy: object, bytes, text, and variable text.
    if array.dtype.kind in "OSUT":
        raise ModelError("texts cannot be trained on: prepare them before they reach the model")
    return torch_dtype(ir.DataType.from_numpy(array.dtype))


def stored_tensor(tensor: ir.TensorProtocol) -> Tensor:
    """Return the content of an initializer as a tensor with memory of its own.

    Args:
        tensor: An initializer's tensor, of an element type that torch has.

    Raises:
        ModelError: torch has no such type.
    """
    dtype = torch_dtype(tensor.dtype)
    # A copy, since the file is mapped and read-only; C order, because a view of bits needs it.
    array = np.array(tensor.numpy(), order="C")
    if dtype == torch.bfloat16:
        # numpy has no bfloat16, and torch refuses the one of `ml_dtypes`: bits go through int16.
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: Tensor) -> Array:
    """Return the content of a tensor of any type as an array.

    Args:
        tensor: On any device; not changed.
    """
    content = tensor.detach().cpu().contiguous()
    if content.dtype == torch.bfloat16:
        return content.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return np.asarray(content.numpy())
