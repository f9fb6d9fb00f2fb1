"""Refuse a model that reads a table at an index that it does not have."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.facts.domains import is_default
from samba_onnx.passes.rewrites.impossible_shapes import OperandShapes
from samba_onnx.passes.rewrites.refuse_impossible import impossible
from samba_onnx.passes.rewrites.rewriting import integer_attribute, small_array, static_shape

_MOST = 1 << 24
"""Indices of one node that are looked at; more are not worth the memory."""


class RefuseIndicesPass(ir.passes.InPlacePass):
    """Find the first Gather whose indices are constants by now, and lie outside of its axis.

    1. Behind folding: positions of tokens are numbers then, of which a sequence that is longer than the
       model's table of positions has too many.
    2. Only nodes of the main graph: a branch may be one that is never taken.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Refuse the first Gather of an index that there is not.

        Raises:
            InvalidModelError: An index lies outside; the message names the node.
        """
        for node in model.graph:
            if node.op_type == "Gather" and is_default(node.domain):
                reason = _outside(node)
                if reason is not None:
                    shapes = tuple(static_shape(value) for value in node.inputs)
                    raise impossible(model, OperandShapes(node, shapes, None), reason)
        return ir.passes.PassResult(model, modified=False)


def _outside(node: ir.Node) -> str | None:
    """Say which index is outside of the axis; None where none is known to be."""
    data, axis = static_shape(node.inputs[0]), integer_attribute(node, "axis", 0)
    indices = small_array(node.inputs[1], _MOST)
    if data is None or not -len(data) <= axis < len(data) or indices is None or not indices.size:
        return None
    size = data[axis]
    # Largest and smallest decide for all of them.
    for index in (int(indices.max()), int(indices.min())):
        if not -size <= index < size:
            return f"index {index} is outside of an axis of {size}"
    return None
