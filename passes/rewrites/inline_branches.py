"""Put the branch that is taken in the place of an If whose condition is known."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    each_graph,
    inherit,
    is_operator,
    small_array,
    substitute,
)


class InlineBranchesPass(ReasonedPass):
    """Inline one branch of every If with a constant condition.

    Branches have no initializers of their own by now: LiftConstantsPass moved them.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inline the branches whose condition is a constant."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if is_operator(node, "If"):
                    modified |= self.refusals.applied(node, _inline(node))
        return ir.passes.PassResult(model, modified=modified)


def _inline(node: ir.Node) -> Refusal | None:
    condition = small_array(node.inputs[0])
    graph = node.graph
    if condition is None or condition.size != 1:
        return Refusal("its condition is only known at run time")
    if graph is None:
        return Refusal("it is in no graph any more")
    branch = node.attributes["then_branch" if condition.any() else "else_branch"].as_graph()
    # Initializers of its own would be lost with the branch's graph.
    if branch.initializers:
        return Refusal("the branch that is taken has initializers of its own")
    if len(branch.outputs) != len(node.outputs):
        return Refusal("the branch that is taken returns another number of values")
    # Values that are outputs of a graph cannot be given away.
    results = list(branch.outputs)
    branch.outputs.clear()
    nodes = list(branch)
    branch.remove(nodes)
    inherit(nodes, node)
    graph.insert_before(node, nodes)
    # A branch may return a value from outside, whose name then goes on by an Identity.
    for output, result in zip(list(node.outputs), results, strict=True):
        substitute(node, output, result)
    graph.remove(node, safe=True)
    return None
