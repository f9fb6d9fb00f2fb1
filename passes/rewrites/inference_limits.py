"""Which nodes onnx's data propagation may see, so that what it materialises stays small.

Beside shapes, onnx propagates the content of vectors, one protobuf message of about 150 bytes per
element: it builds them for every operand whose length is known, of whatever element type. A bias
of a million elements costs 150 MB, and a declared length of 2^33 ends the process.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from samba_onnx.facts.domains import is_default
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.program.dataflow import each_node

LONGEST = 1024
"""Elements of a vector that may be propagated: shapes have up to 64, slices and splits some more."""
TOTAL = 1 << 20
"""Elements of all propagated vectors of a graph, about 150 MB."""
RANK = 64
"""The most dimensions of a tensor (``safety.limits``), so the most elements of a shape."""
ARITHMETIC = frozenset({"Add", "Sub", "Mul"})
"""Propagating operators that have a silent twin, ``Div``: the same types, shapes and arity."""

_KEEP_SIZE = frozenset({"Cast", "Slice", "Squeeze", "Unsqueeze"})
_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)


def unsafe_nodes(model: ir.Model) -> set[ir.Node]:
    """Return the nodes whose operands or results could be long vectors once they are inferred.

    1. Only operators count whose schema propagates content, or which onnx infers by their body.
    2. A value is judged by its shape; one of unknown length by what made it, so that the pieces of
       a shape stay small although nobody knows their number.
    3. Arithmetic counts only between integers; elsewhere its content serves nothing.

    Args:
        model: Types and shapes as far as they are known now.

    Returns:
        The nodes, of the graph and its subgraphs.
    """
    lengths: dict[ir.Value, float] = {}
    unsafe: set[ir.Node] = set()
    # One budget for the whole model: many short vectors take as much as a few long ones.
    left = TOTAL
    for node in each_node(model.graph):
        if not _propagates(node):
            continue
        operands = [_length(value, lengths) for value in node.inputs if value is not None]
        length = _result_length(node, lengths)
        numbers = [*operands, length]
        needed = sum(numbers)
        # Elements of unknown number count as infinitely many.
        if max(numbers) > LONGEST or needed > left or _is_silent(node):
            unsafe.add(node)
            continue
        left -= int(needed)
        # A known bound for results, so that unknown shapes behind them stay small, too (case 2).
        lengths.update(dict.fromkeys(node.outputs, length))
    return unsafe


def _is_silent(node: ir.Node) -> bool:
    return node.op_type in ARITHMETIC and any(
        value is not None and value.dtype is not None and value.dtype not in _INTEGERS
        for value in node.inputs
    )


def _propagates(node: ir.Node) -> bool:
    return is_default(node.domain) and node.op_type in _propagating()


@functools.cache
def _propagating() -> frozenset[str]:
    """Return the operators of the default domain that propagate content in some version.

    An operator for which onnx has a body and no inference propagates what the nodes of the body do.
    """
    import onnx

    # Any: onnx's own annotations do not know all of a schema.
    schemas: Sequence[Any] = onnx.defs.get_all_schemas_with_history()
    # Asked of onnx itself: a list would be wrong with its next version.
    return frozenset(
        schema.name
        for schema in schemas
        if schema.domain == ""
        and (
            schema.has_data_propagation_function
            or (
                (schema.has_function or schema.has_context_dependent_function)
                and not schema.has_type_and_shape_inference_function
            )
        )
    )


def _length(value: ir.Value, lengths: dict[ir.Value, float]) -> float:
    """Return the most elements that would be materialised for a value."""
    return lengths[value] if value in lengths else _declared_length(value)


def _declared_length(value: ir.Value) -> float:
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return 0
    shape = dimensions(value.shape)
    if shape is None and value.const_value is not None:
        shape = tuple(value.const_value.shape.numpy())
    if shape is None:
        return math.inf
    # Content is that of vectors and scalars; matrices have none.
    if len(shape) != 1:
        return 0 if shape else 1
    return shape[0] if isinstance(shape[0], int) else math.inf


def _result_length(node: ir.Node, lengths: dict[ir.Value, float]) -> float:
    """Return the most elements that a node's result can have, whatever is inferred later."""
    if node.op_type == "Shape":
        return RANK
    if node.op_type == "Size":
        return 1
    operands = [_length(value, lengths) for value in node.inputs if value is not None]
    if not operands:
        return 0
    if node.op_type in _KEEP_SIZE:
        return operands[0]
    if node.op_type in ARITHMETIC:
        return max(operands)
    if node.op_type == "Concat":
        return sum(operands)
    known = max((_declared_length(value) for value in node.outputs), default=0)
    # Gather of a short vector has as many elements as its indices.
    if node.op_type == "Gather" and known == math.inf and 0 < operands[0] < math.inf:
        return max(operands[1:], default=0)
    return known
