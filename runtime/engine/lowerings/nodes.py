"""Reading and writing ONNX nodes of stages before onnxruntime gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from samba_onnx.facts.domains import SAMBA_DOMAIN, is_default

Shape = tuple[int, ...]


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of all graphs inside."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []
            for each in (*inner, *attribute.graphs):
                yield from all_nodes(each)


def replace_own_operator(
    model: onnx.ModelProto,
    op_type: str,
    replacement: Callable[[onnx.NodeProto], Iterable[onnx.NodeProto]],
) -> None:
    """Replace every node of one of this product's own operators, in subgraphs, too.

    Args:
        model: Is changed in place; it imports the product's domain no more.
        op_type: The operator.
        replacement: Returns the nodes that take the place of one, in an order in which they can run.
    """
    _replace(model.graph, op_type, replacement)
    opsets = [opset for opset in model.opset_import if opset.domain != SAMBA_DOMAIN]
    if len(opsets) != len(model.opset_import):
        del model.opset_import[:]
        model.opset_import.extend(opsets)


def _replace(
    graph: onnx.GraphProto,
    op_type: str,
    replacement: Callable[[onnx.NodeProto], Iterable[onnx.NodeProto]],
) -> None:
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    _replace(inner, op_type, replacement)
    own = [node.domain == SAMBA_DOMAIN and node.op_type == op_type for node in graph.node]
    if not any(own):
        return
    nodes: list[onnx.NodeProto] = []
    for node, is_own in zip(graph.node, own, strict=True):
        nodes.extend(replacement(node) if is_own else (node,))
    del graph.node[:]
    graph.node.extend(nodes)


class Nodes:
    """Nodes that take the place of one, in an order in which they can run."""

    def __init__(self, result: str) -> None:
        """Begin without nodes.

        Args:
            result: The value of the node that is replaced; names others.
        """
        self._result = result
        self.nodes: list[onnx.NodeProto] = []
        """All nodes so far."""
        self.shapes: dict[str, Shape] = {}
        """Shapes of values that another lowering should know of."""

    def make(
        self, operator: str, inputs: Sequence[str], *, result: str = "", **attributes: Any
    ) -> str:
        """Add a node with one output, and return its name.

        Args:
            operator: An operator of the default domain.
            inputs: Names of values.
            result: Name of the output; a new one by default.
            **attributes: Of the node.
        """
        name = result or f"{self._result}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def reshape_last(self, value: str, before: Shape, after: Shape, result: str) -> None:
        """Add the Reshape that makes a result, and state what it reshapes.

        The lowering of final reshapes then lets the result be the value itself, without a copy.

        Args:
            value: What is reshaped.
            before: Its shape.
            after: The shape of the result.
            result: Name of the output.
        """
        self.shapes[value] = before
        self.make("Reshape", [value, self.integers(*after)], result=result)

    def split(self, value: str, parts: Sequence[int], axis: int) -> Sequence[str]:
        """Add a Split, and return the names of its outputs.

        Args:
            value: What is cut along an axis.
            parts: Sizes of the outputs along the axis; one part alone is the value itself.
            axis: The axis.
        """
        if len(parts) == 1:
            return [value]
        name = f"{self._result}.{len(self.nodes) + 1}"
        names = [f"{name}.{index}" for index in range(len(parts))]
        inputs = [value, self.integers(*parts)]
        self.nodes.append(helper.make_node("Split", inputs, names, name=name, axis=axis))
        return names

    def constant(self, value: Any) -> str:
        """Add a constant, and return its name."""
        return self.make("Constant", [], value=numpy_helper.from_array(np.asarray(value)))

    def integers(self, *values: int) -> str:
        """Add a vector of int64, and return its name."""
        return self.constant(np.array(values, np.int64))


def declared_shape(value: onnx.ValueInfoProto) -> Shape | None:
    """Return the sizes that are declared for a value; None if one of them is not known."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    sizes = [size.dim_value for size in tensor.shape.dim if size.HasField("dim_value")]
    return tuple(sizes) if len(sizes) == len(tensor.shape.dim) else None


def declared_shapes(graph: onnx.GraphProto) -> Mapping[str, Shape]:
    """Return the shapes that a graph states in full, by value."""
    stated = {
        value.name: declared_shape(value)
        for value in (*graph.input, *graph.output, *graph.value_info)
    }
    known = {name: shape for name, shape in stated.items() if shape is not None}
    return known | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def default_version(model: onnx.ModelProto) -> int:
    """Return the version of the default operator set that a model imports; 0 if it does not."""
    versions = [o.version for o in model.opset_import if is_default(o.domain)]
    return max(versions, default=0)
