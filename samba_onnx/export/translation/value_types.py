"""What a value of a graph with static shapes and types is like."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from samba_onnx.errors import InternalError
from samba_onnx.tensor.dtypes import FLOATING


def sizes(value: ir.Value) -> tuple[int, ...]:
    """Return the shape of a value that a builder made."""
    if value.shape is None:
        raise InternalError(f"value {value.name!r} has no shape: please report this")
    return tuple(value.shape.numpy())


def element(value: ir.Value) -> ir.DataType:
    """Return the type of a value that a builder made."""
    if value.dtype is None:
        raise InternalError(f"value {value.name!r} has no type: please report this")
    return value.dtype


def is_floating(value: ir.Value) -> bool:
    """Return whether a value's type has a fraction."""
    return element(value) in FLOATING


def count(value: ir.Value) -> int:
    """Return the number of elements of a value."""
    return math.prod(sizes(value))


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that shapes are broadcast to."""
    return tuple(np.broadcast_shapes(*map(tuple, shapes)))
