"""What a lowering asks about a graph before it rewrites it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from samba_onnx.facts.domains import is_default
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, all_nodes, declared_shapes


class GraphView:
    """Shapes, types, makers and readers of a graph's values, as they are when it is made."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        """Look at a graph.

        Args:
            graph: Is not changed; names that subgraphs read count as read.
        """
        self.shapes = declared_shapes(graph)
        """Sizes of the values whose shape is declared in full, by name."""
        self.types = element_types(graph)
        """Element types as ONNX numbers them, by the name of the value."""
        self._makers = {name: node for node in graph.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in names_read(node):
                self._readers.setdefault(name, []).append(node)
        self._outputs = {value.name for value in graph.output}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}

    def maker(self, name: str, operator: str) -> onnx.NodeProto | None:
        """Return the node that makes a value, if it is of an operator of the default domain."""
        node = self._makers.get(name)
        return node if node is not None and is_operator(node, operator) else None

    def only_reader(self, name: str, operator: str) -> onnx.NodeProto | None:
        """Return the one node that reads a value, if it is of an operator and nothing else does."""
        readers = self._readers.get(name, [])
        if name in self._outputs or len(readers) != 1 or not is_operator(readers[0], operator):
            return None
        return readers[0]

    def is_constant(self, name: str) -> bool:
        """Return whether a value is an initializer or made by a Constant."""
        return name in self._constants or self.maker(name, "Constant") is not None

    def integers(self, name: str) -> Sequence[int] | None:
        """Return the numbers of a constant whose content is in the model; None of any other."""
        array = self._content(name)
        return None if array is None else [int(number) for number in array.ravel()]

    def number(self, name: str) -> float | None:
        """Return the only element of a constant of floats whose content is in the model; None of any other."""
        array = self._content(name)
        is_number = array is not None and array.size == 1 and array.dtype.kind == "f"
        return float(array.item()) if array is not None and is_number else None

    def _content(self, name: str) -> np.ndarray | None:
        tensor = self._constants.get(name)
        node = self._makers.get(name)
        if tensor is None and node is not None and node.op_type == "Constant":
            tensor = next((item.t for item in node.attribute if item.name == "value"), None)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return numpy_helper.to_array(tensor)


def element_types(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the element types that a graph declares, as ONNX numbers them, by value."""
    values = (*graph.input, *graph.output, *graph.value_info)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {tensor.name: tensor.data_type for tensor in graph.initializer}


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs of a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def is_operator(node: onnx.NodeProto, operator: str) -> bool:
    """Return whether a node is of an operator of ONNX's default domain."""
    return node.op_type == operator and is_default(node.domain)


def permutation_of(node: onnx.NodeProto, rank: int) -> list[int]:
    """Return the order of axes that a Transpose gives a value of some rank."""
    stated = next((attribute.ints for attribute in node.attribute if attribute.name == "perm"), ())
    return list(stated) or list(reversed(range(rank)))


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of the values that a node reads, those in its subgraphs included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from names_read(inner)
            yield from (value.name for value in graph.output)


def remove_unread(graph: onnx.GraphProto, candidates: Iterable[str]) -> None:
    """Remove nodes whose results nobody reads any more.

    Args:
        graph: Is changed in place; its nodes are in an order in which they can run.
        candidates: Results of the nodes that may go, and that had a reader before. Nodes before
            them that only they read go as well.
    """
    doomed = set(candidates)
    if not doomed:
        return
    read = {value.name for value in graph.output}
    survivors: list[onnx.NodeProto] = []
    # From the end, so that all readers of a result were seen before the node that makes it.
    for node in reversed(graph.node):
        if doomed.intersection(node.output) and not read.intersection(node.output):
            doomed.update(node.input)
            continue
        read.update(names_read(node))
        survivors.append(node)
    del graph.node[:]
    graph.node.extend(reversed(survivors))


def rewrite_nodes(
    graph: onnx.GraphProto,
    operators: Collection[str],
    write: Callable[[onnx.NodeProto, GraphView], Nodes | str],
    outer: GraphView | None = None,
) -> dict[str, str]:
    """Write nodes of some operators of the default domain otherwise, in subgraphs, too.

    Args:
        graph: Is changed in place.
        operators: The operators.
        write: Returns the nodes that take the place of one, with the shapes of values of float32 that another
            lowering should know of; a reason if it shall stay.
        outer: The graph whose values a branch or a body reads; None for the main graph.

    Returns:
        Why nodes of these operators stay what they are, by the name of their first result.
    """
    reasons: dict[str, str] = {}
    if all(node.op_type not in operators for node in all_nodes(graph)):
        return reasons
    view = GraphView(graph)
    if outer is not None:
        view.shapes = {**outer.shapes, **view.shapes}
        view.types = {**outer.types, **view.types}
    for node in graph.node:
        for inner in subgraphs(node):
            reasons |= rewrite_nodes(inner, operators, write, view)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        wanted = node.op_type in operators and is_default(node.domain)
        written = write(node, view) if wanted else ""
        if isinstance(written, str):
            reasons |= {node.output[0]: written} if wanted else {}
            nodes.append(node)
            continue
        nodes += written.nodes
        graph.value_info.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in written.shapes.items()
        )
    del graph.node[:]
    graph.node.extend(nodes)
    return reasons
