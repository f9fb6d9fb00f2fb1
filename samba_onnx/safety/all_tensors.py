"""The tensors of a model wherever they are stored: weights, attributes, subgraphs and functions alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

__all__ = ["all_tensors", "attribute_tensors"]


def all_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every dense tensor of a model, in the places that ``lift_weights`` takes content out of.

    Args:
        proto: A model; what is yielded are its own tensors, and changing them changes it.
    """
    yield from proto.graph.initializer
    yield from attribute_tensors(proto)


def attribute_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of a model that are no initializers of its main graph.

    Args:
        proto: A model; what is yielded are its own tensors, and changing them changes it.
    """
    yield from _of_nodes(proto.graph.node)
    for function in proto.functions:
        yield from _of_nodes(function.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            # By field and not by the attribute's type: whoever lifts content does not read the type
            # either. Protobuf bounds how deep graphs are nested.
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graph.initializer
                yield from _of_nodes(graph.node)
