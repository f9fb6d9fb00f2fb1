"""Leave out operands of a Resize that have no elements: they stand for operands that are not there."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import constant, each_graph, is_operator

OLDEST = 13
"""Before this version of the default operator set, a Resize has all of them."""


class DropEmptyOperandsPass(ReasonedPass):
    """Leave out the region, the scales or the sizes of a Resize where they are empty tensors.

    Exporters wrote them for operator set 11, which asked for a tensor. Since set 13 only one of scales and sizes
    may be there, and onnx infers no shape where both are.

    1. The operand is a constant without elements.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Drop the operands that are empty."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if is_operator(node, "Resize"):
                    version = node.version or model.graph.opset_imports.get("", 0)
                    modified |= self.refusals.applied(node, _drop(node, version))
        return ir.passes.PassResult(model, modified=modified)


def _drop(node: ir.Node, version: int) -> Refusal | None:
    if version < OLDEST:
        return Refusal(f"the model keeps opset {version}, in which all operands are there")
    # Case 1.
    places = [
        place
        for place, value in enumerate(node.inputs[1:], 1)
        if (tensor := constant(value)) is not None and tensor.size == 0
    ]
    if not places:
        return Refusal("none of its operands is empty")
    for place in places:
        node.replace_input_with(place, None)
    return None
