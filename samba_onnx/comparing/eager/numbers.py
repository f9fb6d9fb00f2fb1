"""Values as arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray

from samba_onnx.tensor import SambaTensor


def to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's values; of bfloat16 in the type that stands for it in numpy.

    Args:
        tensor: Any tensor with values.
    """
    plain = (tensor.torch_tensor() if isinstance(tensor, SambaTensor) else tensor).detach().cpu()
    if plain.dtype == torch.bfloat16:
        return plain.float().numpy().astype(ml_dtypes.bfloat16)
    return plain.resolve_conj().resolve_neg().numpy()


def zeros(value: ir.Value) -> NDArray[Any]:
    """Return an array of zeros of a value's type and sizes; a float32 where these are not known.

    Args:
        value: A value of an ONNX graph, of static sizes.
    """
    shape = () if value.shape is None else tuple(value.shape.numpy())
    return np.zeros(shape, np.float32 if value.dtype is None else value.dtype.numpy())
