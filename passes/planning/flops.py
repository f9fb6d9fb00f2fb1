"""How many arithmetic operations a node of an ``onnx_ir`` graph performs.

What each operator's work is stands in the table of operators (:mod:`samba_onnx.facts`); here shapes
and attributes are read.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.facts.flops import NodeShapes, Shape
from samba_onnx.facts.operators import facts
from samba_onnx.program.dataflow import dimensions
from samba_onnx.program.repetition import repetition

_UNKNOWN: Final[Shape] = (0,)
"""The shape of a value of unknown rank: its size makes a number of operations 0, and no guess."""


def node_flops(node: ir.Node) -> int:
    """Return the number of arithmetic operations of one execution of a node.

    Args:
        node: A node with inferred shapes.

    Returns:
        Operations, a multiply-add counted as two; those of all steps where it repeats a body; 0 for data
        movement, for operators of which no facts are known, and where a shape that the formula needs is
        not known.
    """
    repeated = repetition(node)
    if repeated is not None:
        # The body's nodes are not of this graph, so that nobody else counts them.
        return repeated.steps * sum(map(node_flops, repeated.body))
    row = facts(node.op_type, node.domain)
    if row is None:
        return 0
    return row.flops.count(
        NodeShapes(
            inputs=tuple(None if value is None else _shape(value) for value in node.inputs),
            outputs=tuple(map(_shape, node.outputs)),
            attributes={name: item.value for name, item in node.attributes.items()},
        )
    )


def _shape(value: ir.Value) -> Shape:
    """Return the shape of a value, dimensions that are not known as 0."""
    shape = dimensions(value)
    if shape is None:
        return _UNKNOWN
    return tuple(size if isinstance(size, int) else 0 for size in shape)
