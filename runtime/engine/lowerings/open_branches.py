"""Branches that see no sizes of the values outside of them.

onnxruntime infers the shapes of a branch from those outside before it runs, and refuses the whole model where they
do not fit, also if the branch is never taken. With static sizes that is common: one of two branches is for another
rank, another rate, a longer input. With dynamic ones, as the model has them, nothing is inferred, and what is
executed is checked as it is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

import onnx

from samba_onnx.runtime.engine.lowerings.graph_view import is_operator
from samba_onnx.runtime.engine.lowerings.nodes import Nodes

_Types = Mapping[str, onnx.TypeProto]


def open_branches(model: onnx.ModelProto) -> dict[str, str]:
    """Hide the sizes of what graphs read from outside that may never be executed.

    1. Graphs of an If, and of a Loop that an operand computed at run time keeps from its first step.
    2. Values that they read from outside are reshaped to their own shape, which is chosen by the condition from
       two equal ones: a shape that nothing infers or folds, and a Reshape that copies nothing. Constants stay.
    3. What the graphs themselves state of sizes goes, too; types stay.

    Args:
        model: Is changed in place, subgraphs included.

    Returns:
        Why values that a branch reads keep their sizes, by name.
    """
    reasons: dict[str, str] = {}
    _open(model.graph, {}, frozenset(), reasons)
    return reasons


def _open(
    graph: onnx.GraphProto, outer: _Types, constants: Set[str], reasons: dict[str, str]
) -> None:
    if not any(_graphs(node) for node in graph.node):
        return
    types = {**outer, **_types(graph)}
    constants = constants | _constants(graph)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        gate = _gate(node, constants)
        if gate:
            nodes += _hidden(node, gate, types, constants, reasons)
        for inner in _graphs(node):
            if gate:
                _forget_sizes(inner)
            _open(inner, types, constants, reasons)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    kinds = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    return [
        graph
        for attribute in node.attribute
        if attribute.type in kinds
        for graph in ([attribute.g] if attribute.type == kinds[0] else attribute.graphs)
    ]


def _types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    stated = (*graph.value_info, *graph.output, *graph.input)
    return {value.name: value.type for value in stated}


def _constants(graph: onnx.GraphProto) -> frozenset[str]:
    made = [node.output[0] for node in graph.node if is_operator(node, "Constant")]
    return frozenset([*made, *(tensor.name for tensor in graph.initializer)])


def _gate(node: onnx.NodeProto, constants: Set[str]) -> str:
    """Return the operand by which the graphs of a node may never be executed; nothing if they always are."""
    if is_operator(node, "If"):
        operands = list(node.input[:1])
    elif is_operator(node, "Loop"):
        operands = list(node.input[:2])
    else:
        return ""
    return next((name for name in operands if name and name not in constants), "")


def _hidden(
    node: onnx.NodeProto,
    gate: str,
    types: _Types,
    constants: Set[str],
    reasons: dict[str, str],
) -> list[onnx.NodeProto]:
    """Let the graphs of a node read values without sizes; return the nodes that make these."""
    made = Nodes(f"{node.output[0]}.outside")
    truth = ""
    for name in dict.fromkeys(_read_outside(node)):
        kind = types.get(name)
        if name in constants or kind is None:
            reasons[name] = "it is a constant" if name in constants else "its type is not declared"
            continue
        if not kind.HasField("tensor_type"):
            reasons[name] = "it is no tensor"
            continue
        if kind.tensor_type.HasField("shape") and not kind.tensor_type.shape.dim:
            reasons[name] = "it has no dimensions"
            continue
        if not truth:  # of one dimension, so that it has as many as a shape
            number = made.make("Cast", [gate], to=onnx.TensorProto.BOOL)
            truth = made.make("Reshape", [number, made.integers(1)])
        shape = made.make("Shape", [name])
        chosen = made.make("Where", [truth, shape, shape])
        opened = made.make("Reshape", [name, chosen])
        for graph in _graphs(node):
            _rename(graph, name, opened)
    return made.nodes


def _read_outside(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values from outside that the graphs of a node read."""
    for graph in _graphs(node):
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        for inner in graph.node:
            # Operators run in their order: what one reads is from outside unless it was made before.
            nested = _read_outside(inner)
            yield from (name for name in (*inner.input, *nested) if name and name not in own)
            own.update(inner.output)
        yield from (value.name for value in graph.output if value.name not in own)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Let a graph, and those inside, read another value from outside."""
    own = {value.name for value in (*graph.input, *graph.initializer)}
    if old in own or any(old in node.output for node in graph.node):
        return  # the name stands for one of its own
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name == old:
                node.input[place] = new
        for inner in _graphs(node):
            _rename(inner, old, new)
    for value in graph.output:
        if value.name == old:
            value.name = new


def _forget_sizes(graph: onnx.GraphProto) -> None:
    """Drop what a graph says of sizes of its values, and keep their types."""
    for value in (*graph.value_info, *graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
