"""Which outputs of a model are on a grid of quantised numbers, and how far its neighbours are apart."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.families import MOVING, QUANTISING
from samba_onnx.program.dataflow import name_of

__all__ = ["output_steps", "zero_point"]

# Concat joins values of several grids, and Pad may fill in a number that is on none.
_MOVES: Final = MOVING - {"Concat", "Pad"}
"""Operators whose results are elements of their first operand, or zeros, which every grid has."""


def output_steps(model: ir.Model) -> dict[str, float]:
    """Return the distance of neighbouring numbers of outputs that a DequantizeLinear computes.

    Args:
        model: As its tool wrote it; it is looked at, not changed.

    Returns:
        By name of the output; outputs that are on no grid are missing, and those whose scale is computed or one
        per channel.
    """
    steps = {name_of(value): _step(value) for value in model.graph.outputs}
    return {name: step for name, step in steps.items() if step is not None}


def zero_point(value: ir.Value) -> float | None:
    """Return what stands for zero among the integers of a value that a quantisation rounded.

    Args:
        value: Any value of a model.

    Returns:
        The zero point; None where no quantisation made the value, or it has several zero points, or one
        that is computed.
    """
    node = _quantising(value)
    if node is None:
        return None
    place = QUANTISING[node.op_type]
    zero = node.inputs[place] if len(node.inputs) > place else None
    # An operand that is left out stands for 0.
    if zero is None:
        return 0.0
    tensor = ir.convenience.get_const_tensor(zero)
    if tensor is None or tensor.size != 1:
        return None
    return float(tensor.numpy().reshape(-1)[0].astype(np.float64))


def _quantising(value: ir.Value) -> ir.Node | None:
    node = value.producer()
    while node is not None and node.domain == "" and node.op_type in _MOVES and node.inputs[0]:
        node = node.inputs[0].producer()
    return node if node is not None and not node.domain and node.op_type in QUANTISING else None


def _step(value: ir.Value) -> float | None:
    node = value.producer()
    while node is not None and node.domain == "" and node.op_type in _MOVES and node.inputs[0]:
        node = node.inputs[0].producer()
    if node is None or node.op_type != "DequantizeLinear" or len(node.inputs) < 2:
        return None
    scale = node.inputs[1]
    tensor = None if scale is None else ir.convenience.get_const_tensor(scale)
    # With a scale for each channel there are several grids, and one that is computed is not known.
    if tensor is None or tensor.size != 1 or not tensor.dtype.is_floating_point():
        return None
    step = float(tensor.numpy().reshape(-1)[0].astype(np.float64))
    return step if np.isfinite(step) and step > 0 else None
