"""Join fewer tensors: none that are empty, and none that were joined just before."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    each_graph,
    is_operator,
    is_read_once,
    replace_node,
)


class SimplifyConcatsPass(ReasonedPass):
    """Leave operands of a Concat out, or replace them by what they are made of.

    1. An operand of size 0 along the axis goes, as the cache of a decoder before its first token; of
       several that are all empty one stays.
    2. A Concat along the same axis that nothing else reads gives its operands.

    What has one operand left is removed by RemoveNoops.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Simplify every Concat."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if is_operator(node, "Concat") and len(node.inputs) > 1:
                    modified |= self.refusals.applied(node, _simplify(node))
        return ir.passes.PassResult(model, modified=modified)


def _simplify(node: ir.Node) -> Refusal | None:
    axis = node.attributes["axis"].as_int()
    operands: list[ir.Value] = []
    for value in node.inputs:
        if value is None:
            return Refusal("it lacks an operand")
        operands += _joined(value, node, axis)
    # Case 1.
    # One stays where all are empty: it has the result's shape and type.
    filled = [value for value in operands if not _is_empty(value, axis)] or operands[:1]
    if len(filled) == len(node.inputs):
        return Refusal("none of its operands is known to be empty, or joined just before")
    concat = ir.node("Concat", filled, {"axis": axis})
    replace_node(node, concat, concat.outputs)
    return None


def _joined(value: ir.Value, reader: ir.Node, axis: int) -> list[ir.Value]:
    """Return what an operand is joined of (case 2), or itself."""
    node = value.producer()
    if node is None or not is_operator(node, "Concat") or node.graph is not reader.graph:
        return [value]
    rank = None if value.shape is None else len(value.shape)
    own = node.attributes["axis"].as_int()
    # Axes from the end are the same whatever the rank, those from the front as well; mixed ones
    # need the rank.
    same = own == axis if rank is None else own % rank == axis % rank
    parts = [part for part in node.inputs if part is not None]
    return parts if same and is_read_once(value) and len(parts) == len(node.inputs) else [value]


def _is_empty(value: ir.Value, axis: int) -> bool:
    shape = dimensions(value.shape)
    return shape is not None and -len(shape) <= axis < len(shape) and shape[axis] == 0
