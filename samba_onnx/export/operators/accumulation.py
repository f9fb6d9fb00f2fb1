"""Sums whose operand was scattered onto zeros: the gradients of a weight that is looked up, too."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.export.translation.builder import GraphBuilder, element, sizes


def scattered_onto(build: GraphBuilder, left: ir.Value, right: ir.Value) -> ir.Value | None:
    """Return a sum without the zeros that one operand was scattered onto.

    The gradient of an embedding has the size of its table, of which a batch reads some rows. Added
    to another gradient, as that of a tied output layer, the rows are enough.

    Args:
        build: The graph; what made the operands is part of it, and may stay unread.
        left: One operand.
        right: The other one, of equal type and shape.

    Returns:
        The sum; None if neither operand is of that kind.
    """
    for onto, scattered in ((left, right), (right, left)):
        node = scattered.producer()
        if node is None or node.op_type != "ScatterND" or not _adds_to_zeros(node):
            continue
        # Both of one shape, as nothing is broadcast here.
        if (element(onto), sizes(onto)) == (element(scattered), sizes(scattered)):
            return build.emit(
                "ScatterND",
                [onto, *node.inputs[1:]],
                element(onto),
                sizes(onto),
                reduction="add",
            )
    return None


def _adds_to_zeros(node: ir.Node) -> bool:
    reduction, data = node.attributes.get("reduction"), node.inputs[0]
    if reduction is None or reduction.as_string() != "add" or data is None:
        return False
    spread = data.producer()
    if spread is None or spread.op_type != "Expand" or spread.inputs[0] is None:
        return False
    content = spread.inputs[0].const_value
    return content is not None and not content.numpy().any()
