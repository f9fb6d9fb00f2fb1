"""Values as arrays, and how far two of them are apart."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray

from samba_onnx.facts.dtypes import dtype_name
from samba_onnx.facts.tolerances import of_largest
from samba_onnx.tensor import SambaTensor


def difference(actual: NDArray[Any], tensor: torch.Tensor) -> float:
    """Return the largest error as a fraction of the largest number; infinite if none is defined.

    Args:
        actual: What the engine computed.
        tensor: What torch computed.
    """
    expected = to_array(tensor)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return math.inf
    if not expected.size:
        return 0.0
    if expected.dtype.kind in "biu":
        return 0.0 if np.array_equal(actual, expected) else math.inf
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    left, right = actual.astype(kind), expected.astype(kind)
    known = np.isfinite(right)
    if not np.array_equal(left[~known], right[~known], equal_nan=True):
        return math.inf
    if not known.any():
        return 0.0
    error = np.abs(left[known] - right[known]).max()
    scale = np.abs(right[known]).max()
    return float(error / max(scale, np.finfo(np.float32).tiny)) if error else 0.0


def tolerance_of(tensor: torch.Tensor) -> float:
    """Return how far a tensor may be from torch's, as a fraction of its largest number.

    Args:
        tensor: What torch computed; its data type decides.
    """
    return of_largest(dtype_name(tensor.dtype))


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
