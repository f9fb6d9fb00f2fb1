"""Outputs without the reshape that made them.

onnxruntime writes outputs to the memory that they are bound to. What is reshaped last, such as the
gradient of a convolution's weight, it would write elsewhere first and then copy, for a reshape hands
its input on. In device memory a shape is only a way to look at the same bytes.
"""

from __future__ import annotations

import collections
from collections.abc import Collection

import onnx

from samba_onnx.runtime.nodes import declared_shapes


def shed_final_reshapes(model: onnx.ModelProto, kept: Collection[str]) -> None:
    """Let outputs be what was reshaped to them.

    The output keeps its name and bytes, and gets the shape from before. Whatever else reads
    either of the two values still finds the shape that it had.

    Args:
        model: Is changed in place.
        kept: Outputs that stay as they are.
    """
    graph = model.graph
    shapes = declared_shapes(graph)
    outputs = {value.name: value for value in graph.output}
    made = {name for node in graph.node for name in node.output}
    readers = collections.Counter(name for node in graph.node for name in node.input)
    if any(attribute.g.node for node in graph.node for attribute in node.attribute):
        # What subgraphs read is not among the readers.
        return
    renamed: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        value = node.input[0] if node.op_type == "Reshape" else ""
        target = node.output[0] if node.output else ""
        sheds = (
            value in made
            and value in shapes
            and value not in outputs
            and value not in renamed
            and target in outputs
            and target not in kept
            and not readers[target]
        )
        if not sheds:
            nodes.append(node)
            continue
        renamed[value] = target
        sizes = outputs[target].type.tensor_type.shape
        del sizes.dim[:]
        for size in shapes[value]:
            sizes.dim.add(dim_value=size)
    if not renamed:
        return
    _rename(nodes, renamed)
    values = [value for value in graph.value_info if value.name not in renamed]
    # onnxruntime refuses a shape that nothing reads any more in a model of an old IR version.
    read = {name for node in nodes for name in node.input}.union(outputs)
    initializers = [tensor for tensor in graph.initializer if tensor.name in read]
    for field, content in (
        (graph.node, nodes),
        (graph.value_info, values),
        (graph.initializer, initializers),
    ):
        del field[:]
        field.extend(content)


def _rename(nodes: list[onnx.NodeProto], renamed: dict[str, str]) -> None:
    for node in nodes:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name in renamed:
                    names[index] = renamed[name]
