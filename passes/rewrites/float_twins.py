"""Floats that hold the whole numbers of quantised values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.families import CHOOSING, MOVING
from samba_onnx.facts.operators import Kind, operators
from samba_onnx.passes.rewrites.rewriting import (
    WEIGHT,
    add_initializer,
    constant,
    inherit,
    is_operator,
)

__all__ = ["OF_INTEGERS", "WHOLE", "Twins", "put_before"]

WHOLE: Final = "samba_onnx.whole"
"""Key in ``Value.meta`` of floats that hold whole numbers: the zero point that was added to them."""
OF_INTEGERS: Final = "samba_onnx.of_integers"
"""Key in ``Node.meta`` of nodes that took the place of an operator whose results are integers."""
_CARRYING: Final = CHOOSING | (
    operators(exact_in_bfloat16=True) & (MOVING | operators(kind=Kind.OVERWRITE))
)


class Twins:
    """For each value of quantised integers a float32 value of the same numbers.

    1. The twin of integers that were cast from floats which hold whole numbers are these floats.
    2. The twin of a constant is a constant, written out when somebody reads it.
    3. The twin of what an operator only moves or chooses is the result of the same operator of the twins
       of its operands.
    4. The twin of any other value is a Cast of it.
    """

    def __init__(self, model: ir.Model) -> None:
        """Begin with a model of which no value has a twin yet.

        Args:
            model: Its main graph gets the nodes.
        """
        self._model = model
        self._twins: dict[ir.Value, ir.Value] = {}

    def of(self, value: ir.Value, origin: ir.Node) -> ir.Value:
        """Return the twin of a value.

        Args:
            value: Integers that float32 holds exactly; of the main graph.
            origin: The node that reads it, whose source traces new nodes get.
        """
        pending = [value]
        while pending:  # no recursion: chains may be long
            current = pending[-1]
            needed = [item for item in self._operands(current) if item not in self._twins]
            if needed and current not in self._twins:
                pending += needed
            else:
                pending.pop()
                if current not in self._twins:
                    self._add(current, origin)
        return self._twins[value]

    def _operands(self, value: ir.Value) -> list[ir.Value]:
        """Return the operands that must have twins before a value has one."""
        node = value.producer()
        if node is None or not self._carries(node):
            return []
        return [item for item in node.inputs if item is not None and item.dtype == value.dtype]

    def _carries(self, node: ir.Node) -> bool:
        reduction = node.attributes.get("reduction")
        return (
            node.graph is self._model.graph
            and is_operator(node, *_CARRYING)
            and (reduction is None or reduction.as_string() == "none")
        )

    def _add(self, value: ir.Value, origin: ir.Node) -> None:
        node, tensor = value.producer(), constant(value)
        if node is not None and is_operator(node, "Cast"):
            source = node.inputs[0]
            if source is not None and WHOLE in source.meta:
                self._twins[value] = source  # case 1
                return
        if tensor is not None:
            self._twins[value] = self._written(value, tensor)  # case 2
        elif node is not None and self._carries(node):
            self._carry(node, value)  # case 3
        else:
            self._cast(value, origin)  # case 4

    def _written(self, value: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
        def compute() -> ir.TensorProtocol:
            return ir.Tensor(tensor.numpy().astype(np.float32))

        lazy = ir.LazyTensor(compute, dtype=ir.DataType.FLOAT, shape=ir.Shape(tensor.shape.numpy()))
        weight = bool(value.meta.get(WEIGHT))
        return add_initializer(self._model, f"{value.name}_whole", lazy, weight=weight)

    def _carry(self, node: ir.Node, value: ir.Value) -> None:
        inputs = [
            self._twins[item] if item is not None and item.dtype == value.dtype else item
            for item in node.inputs
        ]
        twin = ir.node(node.op_type, inputs, node.attributes, num_outputs=len(node.outputs))
        inherit([twin], node)
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            quantised = old.dtype == value.dtype
            new.name = f"{old.name}_whole"
            new.shape = old.shape
            new.type = ir.TensorType(ir.DataType.FLOAT) if quantised else old.type
            if quantised:
                self._twins[old] = new
        self._model.graph.insert_after(node, twin)

    def _cast(self, value: ir.Value, origin: ir.Node) -> None:
        graph, producer = self._model.graph, value.producer()
        cast = ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT)})
        inherit([cast], origin)
        cast.outputs[0].name = f"{value.name}_whole"
        cast.outputs[0].shape, cast.outputs[0].type = value.shape, ir.TensorType(ir.DataType.FLOAT)
        if producer is None:
            graph.insert_before(graph[0], cast)
        else:
            graph.insert_after(producer, cast)
        self._twins[value] = cast.outputs[0]


def put_before(node: ir.Node, op_type: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
    """Put a node of one output before a node, with the source traces of that.

    Args:
        node: Whatever is to be replaced, of a graph.
        op_type: An operator of the default domain.
        *inputs: Its inputs.
        **attributes: Its attributes.

    Returns:
        The output, which has no name or type yet.
    """
    new = ir.node(op_type, list(inputs), attributes or None)
    inherit([new], node)
    if node.graph is None:
        raise ValueError(f"node {node.name!r} is in no graph")
    node.graph.insert_before(node, new)
    return new.outputs[0]
