"""Which operands are constants at compile time."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.convenience import get_const_tensor


def constant_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of a value that no caller can change, without reading its content.

    Args:
        value: An operand; None for one that was left out.

    Returns:
        The tensor of an initializer or Constant node. None for anything else, and for an
        initializer that is also a graph input, whose content the caller may replace.
    """
    # Since IR version 4 an initializer that is also an input is a default that each run may
    # override.
    if value is None or value.is_graph_input():
        return None
    try:
        return get_const_tensor(value)
    except (ValueError, TypeError):  # a malformed Constant node: the checker reports it
        return None
