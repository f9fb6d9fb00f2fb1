"""Drop nodes whose results nobody reads."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from samba_onnx.passes.rewrites.rewriting import detach


class RemoveUnusedNodesPass(common.RemoveUnusedNodesPass):
    """Drop nodes whose results nobody reads, with optional outputs and initializers that nobody reads.

    1. ``onnx_ir`` does it, but looks through all outputs of a graph for every node that it drops; a
       training step has thousands of both. Nodes of the main graph are dropped at once before.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Drop the nodes that nobody reads, then what that leaves unread."""
        modified = _drop_unread(model.graph)
        modified |= super().call(model).modified
        return ir.passes.PassResult(model, modified=modified)


def _drop_unread(graph: ir.Graph) -> bool:
    outputs = frozenset(graph.outputs)
    unread: list[ir.Node] = []
    for node in reversed(graph):
        if not any(value in outputs or value.uses() for value in node.outputs):
            detach(node)  # what it read may be unread now
            unread.append(node)
    graph.remove(unread, safe=True)
    return bool(unread)
