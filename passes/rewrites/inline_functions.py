"""Put the bodies of model-local functions in the place of their calls."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass

from samba_onnx.program.dataflow import each_node

GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


class InlineFunctionsPass(ir.passes.InPlacePass):
    """Inline every call, nested ones too, with ``onnx_ir``'s inliner.

    1. The nodes of a function that imports another version of the default operator set than the
       model keep their own version on each node, so that the version conversion that follows
       sees them as they are.
    2. A call that passes a graph as an attribute is left alone: the inliner cannot do it.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inline the calls of all functions that the inliner can."""
        if not model.functions:
            return ir.passes.PassResult(model, modified=False)
        # An unused function would add the domains that it imports to the model's.
        unused = RemoveUnusedFunctionsPass()  # type: ignore[no-untyped-call]
        unused(model)
        for function in model.functions.values():
            _keep_versions(model, function)
        keep = _called_with_graphs(model)
        result = InlinePass(criteria=lambda function: function.identifier() not in keep)(model)
        unused(model)
        return ir.passes.PassResult(model, modified=result.modified)


def _keep_versions(model: ir.Model, function: ir.Function) -> None:
    """Note versions on nodes and let the function import what the model imports."""
    for domain, version in list(function.opset_imports.items()):
        imported = model.graph.opset_imports.setdefault(domain, version)
        if imported != version:
            for node in each_node(function):
                # Only nodes that state none: an outer function may have stated one before.
                if node.domain == domain and node.version is None:
                    node.version = version
            # Functions import what the model imports from now on; nodes remember their own version
            # (case 1).
            function.opset_imports[domain] = imported


def _called_with_graphs(model: ir.Model) -> set[ir.OperatorIdentifier]:
    nodes = list(each_node(model.graph))
    for function in model.functions.values():
        nodes.extend(each_node(function))
    return {
        node.op_identifier()
        for node in nodes
        if node.op_identifier() in model.functions
        and any(attribute.type in GRAPHS for attribute in node.attributes.values())
    }
