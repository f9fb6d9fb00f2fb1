"""Refuse a model with a value that is larger than any memory."""

from __future__ import annotations

import math
from typing import Final

import onnx_ir as ir

from samba_onnx.errors import InvalidModelError, ModelLimitError
from samba_onnx.facts.domains import is_default
from samba_onnx.passes.rewrites.rewriting import each_graph, integers, static_shape
from samba_onnx.program.source_location import source_location
from samba_onnx.safety.files import printable
from samba_onnx.safety.limits import DEFAULT_LIMITS
from samba_onnx.safety.tensor_checks import BITS

_SIZED_BY: Final = {"ConstantOfShape": 0, "Expand": 1, "Tile": 1}
"""Operators that make what an operand says, and which operand."""
ELEMENT_BITS: Final = {ir.DataType(number): bits for number, bits in BITS.items()}


class RefuseGiantsPass(ir.passes.InPlacePass):
    """Find the first value whose static shape takes more than a tensor safely can.

    1. As soon as shapes are known, before anything computes with them; and again at the end, when more are.
    2. In subgraphs, too: a PEF states the shapes of all values, and nobody reads one that has such a shape.
    3. Inputs, too, whose sizes options may state.
    4. A size below 0 that was computed from constants is refused as well.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Refuse the first value that is too large.

        Raises:
            ModelLimitError: One is too large; the message names the node that computes it.
            InvalidModelError: A size is below 0.
        """
        most = DEFAULT_LIMITS.tensor_bytes
        values: list[tuple[ir.Value, ir.Node | None]] = [
            (value, None) for value in model.graph.inputs
        ]
        values += [
            (value, node) for graph in each_graph(model) for node in graph for value in node.outputs
        ]
        for value, node in values:
            if node is not None and node.op_type in _SIZED_BY and is_default(node.domain):
                _refuse_negative(node)
            needed = _bytes(value)
            if needed > most:
                raise _giant(value, node, needed, most)
        return ir.passes.PassResult(model, modified=False)


def _refuse_negative(node: ir.Node) -> None:
    """Refuse a size below 0 among constants, as the check of a model does of those that it states itself."""
    place = _SIZED_BY[node.op_type]
    sizes = integers(node.inputs[place]) if place < len(node.inputs) else None
    if sizes and min(sizes) < 0:
        raise InvalidModelError(
            f"a node ({printable(node.op_type)}) makes a tensor of {printable(sizes, 60)}: a size cannot be negative",
            node=node.name,
            operator=node.op_type,
        )


def _bytes(value: ir.Value) -> int:
    """Return what a value takes at least; 0 for one of dynamic shape."""
    shape = static_shape(value)
    if shape is None:
        return 0
    # Whatever its type, an element takes something; packed ones are counted by their bits.
    bits = ELEMENT_BITS.get(value.dtype or ir.DataType.UNDEFINED, 8)
    # A size of 0 among giants is as little of a real model.
    return math.prod(size or 1 for size in shape) * bits // 8


def _giant(value: ir.Value, node: ir.Node | None, needed: int, most: int) -> ModelLimitError:
    shape = printable(list(static_shape(value) or ()), 60)
    size = f"{shape}, which takes {needed:.3g} bytes, at most {most} are safe"
    if node is None:
        return ModelLimitError(
            f"input {printable(value.name or '')!r} is {size}: state smaller sizes"
        )
    place = source_location(node)
    where = f" at {place}" if place else ""
    title = f"node {printable(node.name)!r}" if node.name else "a node"
    return ModelLimitError(
        f"{title} ({printable(node.op_type)}{where}) computes {size}: correct what its sizes come from",
        node=node.name,
        operator=node.op_type,
    )
