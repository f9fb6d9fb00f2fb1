"""Limits that a list of data types, attributes or ranks cannot express, by name.

Each function looks at a node whose types, shapes and static operands were already found in order
and returns what is wrong with it, to follow the operator's name in a sentence, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.targets.constants import constant_tensor

MAX_BYTES = 1 << 16
"""Operands above this size are not read: a limit concerns axes and flags, never weights."""


def _small_constant(node: ir.Node, position: int) -> np.ndarray | None:
    """Return the value of a small constant operand; None if there is none that can be read."""
    value = node.inputs[position] if position < len(node.inputs) else None
    tensor = constant_tensor(value)
    # The size is asked of the tensor's type and shape, before any of its external data is read.
    if tensor is None or tensor.nbytes > MAX_BYTES:
        return None
    try:
        return tensor.numpy()
    except (OSError, ValueError, TypeError, RuntimeError):  # its external data cannot be read
        return None


def _has(node: ir.Node, position: int) -> bool:
    return position < len(node.inputs) and node.inputs[position] is not None


def forward_steps(node: ir.Node) -> str | None:
    """Slice: a step walks forward. No program or document shows a reversed copy."""
    if not _has(node, 4):
        return None
    steps = _small_constant(node, 4)
    if steps is None:
        return "has steps that cannot be read"
    # Zero is invalid in ONNX; it is refused here with the negative steps rather than taken for
    # supported.
    if np.any(steps < 1):
        return f"walks backwards (steps {steps.tolist()})"
    return None


def inference_mode(node: ir.Node) -> str | None:
    """Dropout: only without training mode, where it copies its input."""
    if not _has(node, 2):
        return None
    training = _small_constant(node, 2)
    if training is None:
        return "has a training mode that cannot be read"
    # Without the operand, or with a false one, ONNX defines Dropout to return its input.
    return "draws random numbers in training mode" if np.any(training) else None


def single_row(node: ir.Node) -> str | None:
    """TopK: the vendor does not support more than one row."""
    value = node.inputs[0]
    if value is None or value.shape is None:
        return "has an unknown shape"
    # Ranks and static dimensions are checked before limits, so that no dimension is lost here.
    shape = [dim for dim in value.shape if isinstance(dim, int)]
    attribute = node.attributes.get("axis")
    axis = attribute.value if attribute is not None else -1
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return f"has the axis {axis!r}, which its input lacks"
    # An empty axis has been refused already; the maximum only guards the division where a caller
    # did not.
    rows = math.prod(shape) // max(shape[axis], 1)
    return f"searches {rows} rows; the RDU searches one" if rows > 1 else None


@dataclass(frozen=True)
class Limit:
    """A limit that target files state by its name."""

    description: str
    """For the operator table: what is supported."""
    check: Callable[[ir.Node], str | None]
    """Returns what is wrong with a node, to follow the operator's name, or None."""


LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        "forward_steps": Limit("steps of at least 1", forward_steps),
        "inference_mode": Limit("inference only, where it copies its input", inference_mode),
        "single_row": Limit("one row to search", single_row),
    }
)
"""Limits by the names that target files use."""
