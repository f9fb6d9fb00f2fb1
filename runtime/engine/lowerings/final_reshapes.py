"""Outputs without the reshape that made them.

onnxruntime writes outputs to the memory that they are bound to. What is reshaped last, such as the
gradient of a convolution's weight, it would write elsewhere first and then copy, for a reshape hands
its input on. In device memory a shape is only a way to look at the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import onnx

from samba_onnx.runtime.engine.lowerings.nodes import declared_shapes
from samba_onnx.runtime.engine.lowerings.stage_model import StageModel


def shed_stage_reshapes(stage: StageModel) -> None:
    """Let outputs of a stage be what was reshaped to them, where nothing is overwritten.

    Args:
        stage: Is changed in place.
    """
    shed_final_reshapes(stage.model, fixed_outputs=stage.overwriting())


def shed_final_reshapes(model: onnx.ModelProto, fixed_outputs: Collection[str]) -> None:
    """Let outputs be what was reshaped to them.

    The output keeps its name and bytes, and gets the shape from before. Whatever else reads
    either of the two values still finds the shape that it had.

    Args:
        model: Is changed in place.
        fixed_outputs: Outputs that stay as they are.
    """
    graph = model.graph
    if any(attribute.g.node for node in graph.node for attribute in node.attribute):
        # What subgraphs read is not among the readers.
        return
    renamed = _shed(graph, fixed_outputs)
    if renamed:
        nodes = [node for node in graph.node if not _is_shed(node, renamed)]
        _rename(nodes, renamed)
        _tidy(graph, nodes, renamed)


def _shed(graph: onnx.GraphProto, fixed_outputs: Collection[str]) -> dict[str, str]:
    """Give outputs the shapes of what is reshaped to them, and return them by that."""
    shapes = declared_shapes(graph)
    outputs = {value.name: value for value in graph.output}
    results = {name for node in graph.node for name in node.output}
    read = {name for node in graph.node for name in node.input}
    renamed: dict[str, str] = {}
    for node in graph.node:
        if (
            node.op_type != "Reshape"
            or node.output[0] not in outputs.keys() - {*fixed_outputs} - read
        ):
            continue
        value, target = node.input[0], node.output[0]
        if value in results and value in shapes and value not in outputs and value not in renamed:
            renamed[value] = target
            sizes = outputs[target].type.tensor_type.shape
            del sizes.dim[:]
            for size in shapes[value]:
                sizes.dim.add(dim_value=size)
    return renamed


def _is_shed(node: onnx.NodeProto, renamed: Mapping[str, str]) -> bool:
    return node.op_type == "Reshape" and renamed.get(node.input[0]) == node.output[0]


def _rename(nodes: Iterable[onnx.NodeProto], renamed: Mapping[str, str]) -> None:
    for node in nodes:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name in renamed:
                    names[index] = renamed[name]


def _tidy(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto], gone: Collection[str]) -> None:
    """Give a graph other nodes, and leave out what they do not have or read."""
    # onnxruntime refuses a shape that nothing reads any more in a model of an old IR version.
    read = {name for node in nodes for name in node.input}
    read.update(value.name for value in graph.output)
    values = [value for value in graph.value_info if value.name not in gone]
    initializers = [tensor for tensor in graph.initializer if tensor.name in read]
    for field, content in (
        (graph.node, nodes),
        (graph.value_info, values),
        (graph.initializer, initializers),
    ):
        del field[:]
        field.extend(content)
