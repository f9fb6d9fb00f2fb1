"""What there is to do, before any device is known: the operations of a node, and the bytes of a value.

How many operations an operator performs stands in the table of operators (:mod:`samba_onnx.facts`); here
shapes and attributes are read.
"""

from __future__ import annotations

import functools
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.dtypes import ELEMENT_TYPES, ElementType
from samba_onnx.facts.flops import NodeShapes, Shape
from samba_onnx.facts.operators import facts
from samba_onnx.pef.packing import packed_bytes
from samba_onnx.program.dataflow import dimensions
from samba_onnx.program.repetition import repetition

__all__ = ["node_flops", "value_bytes"]

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


def value_bytes(value: ir.Value) -> int | None:
    """Return the size of a value in memory.

    Args:
        value: A value of the graph; for an initializer only type and shape are looked at, its
            content is not read.

    Returns:
        Bytes, elements of less than a byte packed (three int4 elements take two bytes); None where
        the type or a dimension is not known, and for strings and values that are no tensors.
    """
    # Not isinstance, which is slow on these types: they fulfil a runtime protocol.
    if type(value.type) is ir.SparseTensorType:
        return None
    dtype, shape = value.dtype, dimensions(value)
    if dtype is None and value.const_value is not None:
        dtype = value.const_value.dtype
    element = None if dtype is None else _element(dtype)
    if element is None or shape is None:
        return None
    sizes = [size for size in shape if isinstance(size, int)]
    return packed_bytes(element, sizes) if len(sizes) == len(shape) else None


@functools.cache
def _element(dtype: ir.DataType) -> ElementType | None:
    # Kept by type: every value of a graph is asked for several times.
    return ELEMENT_TYPES.get(dtype.name.lower())
