"""Arrays of the types and sizes that values of a graph have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray


def zeros(value: ir.Value) -> NDArray[Any]:
    """Return an array of zeros of a value's type and sizes; a float32 where these are not known.

    Args:
        value: A value of an ONNX graph, of static sizes.
    """
    shape = () if value.shape is None else tuple(value.shape.numpy())
    return np.zeros(shape, np.float32 if value.dtype is None else value.dtype.numpy())
