"""Copies of the running statistics that a normalisation by the batch's own reads.

onnxruntime writes the new running mean and variance of a BatchNormalization in training mode over the old
ones, whoever else reads them: inputs and initializers of the graph change, and so do the operands of other
nodes.
"""

from __future__ import annotations

from collections import Counter

import onnx

from samba_onnx.runtime.engine.lowerings.graph_view import is_operator
from samba_onnx.runtime.engine.lowerings.nodes import Nodes

_RUNNING = (3, 4)
"""Positions of the running mean and variance among the operands."""


def copy_running_statistics(model: onnx.ModelProto) -> dict[str, str]:
    """Let each BatchNormalization in training mode read copies that nothing else reads.

    A copy is the larger of a value and itself: onnxruntime's optimizer removes what plainly returns its
    operand. It makes one of equal nodes, so that each further copy of a value is the largest of one more.

    Args:
        model: Is changed in place; subgraphs are not.

    Returns:
        Why normalisations stay what they are, by the name of their first result.
    """
    graph = model.graph
    reasons: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []
    copied: Counter[str] = Counter()
    for node in graph.node:
        if is_operator(node, "BatchNormalization"):
            if _trains(node):
                nodes += _copies(node, copied)
            else:
                reasons[node.output[0]] = "it only reads the running statistics"
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return reasons


def _copies(node: onnx.NodeProto, copied: Counter[str]) -> list[onnx.NodeProto]:
    build = Nodes(node.output[0])
    for position in _RUNNING:
        name = node.input[position]
        copied[name] += 1
        node.input[position] = build.make("Max", [name] * (1 + copied[name]))
    return build.nodes


def _trains(node: onnx.NodeProto) -> bool:
    return any(item.name == "training_mode" and item.i for item in node.attribute)
