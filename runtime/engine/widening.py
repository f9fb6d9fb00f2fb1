"""The float32 reading of a model whose numbers have 16 bits, to judge what rounding costs it.

It shares nothing with the lowering of bfloat16: types are replaced wherever a model states one, and
nothing is inferred, so that a fault of that lowering shows as a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import onnx
import onnx.inliner
from onnx import numpy_helper

from samba_onnx.facts.families import READING_BITS, TYPE_ATTRIBUTES

__all__ = ["has_narrow_floats", "widened"]

_T: Final = onnx.TensorProto
NARROW: Final = frozenset({_T.FLOAT16, _T.BFLOAT16})


def has_narrow_floats(model: onnx.ModelProto) -> bool:
    """Return whether a model states float16 or bfloat16 anywhere.

    Args:
        model: Any model; functions and subgraphs are looked at, too.
    """
    return any(_graph_is_narrow(graph) for graph in _graphs(model.graph)) or any(
        _nodes_are_narrow(function.node) for function in model.functions
    )


def widened(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model that computes in float32 what a model computes in float16 and bfloat16.

    1. Inputs and initializers keep their types, so that it takes the same arrays and files; a Cast
       behind each makes float32 of it.
    2. Constants, declared types, and attributes that name a type become float32.
    3. Outputs of 16 bits are float32, at the same places; one that is an input or initializer
       itself has the name of its copy.

    Args:
        model: Plain ONNX; is left as it is.

    Returns:
        A new model, functions inlined; None where the model has no such numbers, or looks at the
        bits of one.
    """
    if not has_narrow_floats(model):
        return None
    wide = onnx.inliner.inline_local_functions(model)
    if any(node.op_type in READING_BITS for graph in _graphs(wide.graph) for node in graph.node):
        return None
    inputs = [value.name for value in wide.graph.input if _is_narrow(value.type)]
    # From the inside out: a graph whose nodes are put behind casts has copies of them.
    for graph in reversed(list(_graphs(wide.graph))):
        _widen(graph, inputs if graph is wide.graph else [])
    return wide


def _widen(graph: onnx.GraphProto, inputs: Sequence[str]) -> None:
    """Widen one graph, without those inside of it.

    Args:
        graph: Is changed in place.
        inputs: Inputs of the graph that keep their types.
    """
    narrow = [tensor.name for tensor in graph.initializer if tensor.data_type in NARROW]
    copies = {name: f"{name}.widened" for name in (*inputs, *narrow)}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.name not in inputs:
            _widen_type(value.type)
    for node in graph.node:
        for attribute in node.attribute:
            _widen_attribute(attribute)
    for inner in _graphs(graph):
        for node in inner.node:
            for index, name in enumerate(node.input):
                node.input[index] = copies.get(name, name)
        for value in inner.output:
            value.name = copies.get(value.name, value.name)
    nodes = list(graph.node)
    del graph.node[:]
    for name, copy in copies.items():
        graph.node.append(onnx.helper.make_node("Cast", [name], [copy], to=_T.FLOAT))
    graph.node.extend(nodes)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and all graphs inside of it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []
            for item in (*inner, *attribute.graphs):
                yield from _graphs(item)


def _widen_attribute(attribute: onnx.AttributeProto) -> None:
    if attribute.name in TYPE_ATTRIBUTES and attribute.i in NARROW:
        attribute.i = _T.FLOAT
    if attribute.t.data_type in NARROW:
        array = numpy_helper.to_array(attribute.t).astype(np.float32)
        attribute.t.CopyFrom(numpy_helper.from_array(array))
    if attribute.type == onnx.AttributeProto.TYPE_PROTO:
        _widen_type(attribute.tp)


def _widen_type(kind: onnx.TypeProto) -> None:
    leaf = _leaf(kind)
    if leaf.tensor_type.elem_type in NARROW:
        leaf.tensor_type.elem_type = _T.FLOAT


def _is_narrow(kind: onnx.TypeProto) -> bool:
    return _leaf(kind).tensor_type.elem_type in NARROW


def _leaf(kind: onnx.TypeProto) -> onnx.TypeProto:
    """Return the type of the elements of a sequence or optional; of a tensor the type itself."""
    form = kind.WhichOneof("value")
    if form in {"sequence_type", "optional_type"}:
        return _leaf(getattr(kind, form).elem_type)
    return kind


def _nodes_are_narrow(nodes: Iterable[onnx.NodeProto]) -> bool:
    return any(
        attribute.t.data_type in NARROW
        or (attribute.name in TYPE_ATTRIBUTES and attribute.i in NARROW)
        for node in nodes
        for attribute in node.attribute
    )


def _graph_is_narrow(graph: onnx.GraphProto) -> bool:
    values = (*graph.input, *graph.output, *graph.value_info)
    return (
        any(_is_narrow(value.type) for value in values)
        or any(tensor.data_type in NARROW for tensor in graph.initializer)
        or _nodes_are_narrow(graph.node)
    )
