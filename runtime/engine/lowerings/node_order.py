"""Nodes in the order in which onnxruntime then executes them with little memory.

onnxruntime looks from the last node that nothing reads back to what it needs, executes that, and goes
on with the one before. In a backward that is the gradient of the first layer, with the gradients of all
activations on the way; those of the other layers' weights come afterwards, and everything that they
need is kept until then. With such nodes in the opposite order each follows what it needs.
"""

from __future__ import annotations

import onnx


def put_results_first(model: onnx.ModelProto) -> None:
    """Turn the order of the nodes that no other node reads.

    Args:
        model: Is changed in place; subgraphs are not. Nodes stay behind what they read.
    """
    graph = model.graph
    if any(attribute.g.node for node in graph.node for attribute in node.attribute):
        # What subgraphs read is not among the inputs of nodes.
        return
    read = {name for node in graph.node for name in node.input}
    inner = [node for node in graph.node if read.intersection(node.output)]
    last = [node for node in graph.node if not read.intersection(node.output)]
    del graph.node[:]
    graph.node.extend([*inner, *reversed(last)])
