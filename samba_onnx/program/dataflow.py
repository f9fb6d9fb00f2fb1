"""Who reads and who writes what: the data dependencies of a graph's nodes, subgraphs included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

# isinstance is slow on these: they fulfil a runtime protocol.
_CONTAINERS = frozenset({ir.SequenceType, ir.OptionalType})
_GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the graphs that a node carries as attributes, without those nested inside them.

    Args:
        node: Any node; most carry none.

    Yields:
        Graphs in the order of the attributes.
    """
    for (
        attribute
    ) in node.attributes.data.values():  # a dict: its views are quicker than its owner's
        # A reference to an attribute of a function has no graph of its own.
        if attribute.type not in _GRAPHS or attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        else:
            yield from attribute.as_graphs()


def graphs_of(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yield a graph and all that are nested inside it.

    Args:
        graph: Any graph.

    Yields:
        Graphs, each before those that its nodes carry.
    """
    # No recursion: each of nested generators would pass on all that those inside it yield.
    pending = [graph]
    while pending:
        outer = pending.pop()
        yield outer
        inner = [each for node in outer if _carries_graphs(node) for each in subgraphs(node)]
        pending += reversed(inner)


def each_node(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """Yield the nodes of a graph and of all that are nested inside it.

    ``onnx_ir`` has such an iterator, too, which takes several times as long.

    Args:
        graph: A graph, or a function of a model.

    Yields:
        Nodes in order, each before those that it carries.
    """
    # No recursion, as in graphs_of; what is changed while it is looked through is seen as it is then.
    pending = [iter(graph)]
    while pending:
        for node in pending[-1]:
            yield node
            if _carries_graphs(node):
                # What follows in the outer graph waits on the stack until the bodies are through.
                pending += reversed([iter(inner) for inner in subgraphs(node)])
                break
        else:
            pending.pop()


def _carries_graphs(node: ir.Node) -> bool:
    # Nearly no node does, and all are asked many times: no generator for each of them.
    for attribute in node.attributes.data.values():  # noqa: SIM110
        if attribute.type in _GRAPHS:
            return True
    return False


def implicit_inputs(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return the outer values that the bodies of a node read without naming them as operands.

    Args:
        node: Any node, as an If whose branches use values of the main graph.

    Returns:
        Each value once, in the order in which the bodies read them.
    """
    read: dict[ir.Value, None] = {}
    defined: set[ir.Value] = set()
    pending = list(reversed(list(subgraphs(node))))
    while pending:
        graph = pending.pop()
        # A body's own inputs and initializers are not read from outside.
        defined.update(graph.inputs, graph.initializers.values())
        nested: list[ir.Graph] = []
        for inner in graph:
            read.update((value, None) for value in inner.inputs if value is not None)
            defined.update(inner.outputs)
            nested.extend(subgraphs(inner))
        # A body may return an outer value without any node that reads it.
        read.update((value, None) for value in graph.outputs)
        pending.extend(reversed(nested))
    return tuple(value for value in read if value not in defined)


def reads(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return every value that a node needs before it can run, each once.

    Args:
        node: Any node.

    Returns:
        Its operands in order, omitted ones left out, then what its bodies read from outside.
    """
    values = dict.fromkeys(value for value in node.inputs if value is not None)
    # Most nodes have no body, and this is asked for all of them.
    if any(True for _ in subgraphs(node)):
        values.update(dict.fromkeys(implicit_inputs(node)))
    return tuple(values)


def is_weight(value: ir.Value) -> bool:
    """Return whether a value is known at compile time.

    Args:
        value: A value of the main graph.

    Returns:
        True for an initializer; False for one that is a graph input at the same time, since the
        caller of the graph may override it.
    """
    return value.is_initializer() and not value.is_graph_input()


def name_of(value: ir.Value | ir.Node) -> str:
    """Return the name of a value or a node.

    Args:
        value: Any; those of a legal model that somebody reads have names.

    Returns:
        The name, empty where there is none.
    """
    return value.name or ""


def dimensions(value: ir.Value) -> tuple[int | str | None, ...] | None:
    """Return the shape of a tensor.

    Args:
        value: Any value; the content of an initializer is not read.

    Returns:
        Integers where known, names where dynamic, None where nameless; None in the whole where not
        even the rank is known and for sequences and optionals.
    """
    if type(value.type) in _CONTAINERS:
        return None
    shape = value.shape
    if shape is None and value.const_value is not None:
        return tuple(int(size) for size in value.const_value.shape.numpy())
    if shape is None:
        return None
    return tuple(size if isinstance(size, int) else size.value for size in shape)


@dataclass(frozen=True)
class Dataflow:
    """The dependencies of a sequence of nodes, looked up by position in that sequence."""

    nodes: tuple[ir.Node, ...]
    reads: tuple[tuple[ir.Value, ...], ...]
    """What each node needs, weights and graph inputs included."""
    producer: dict[ir.Value, int]
    """Position of the node that writes a value; values from outside are missing."""
    readers: dict[ir.Value, tuple[int, ...]]
    """Positions of the nodes that read a value, ascending; unread values are missing."""

    @classmethod
    def of(cls, nodes: Iterable[ir.Node]) -> Dataflow:
        """Return the dependencies of nodes.

        Args:
            nodes: Nodes in topological order: a whole graph or a part of one.

        Returns:
            The dependencies among them and on values from outside.
        """
        sequence = tuple(nodes)
        operands = tuple(reads(node) for node in sequence)
        readers: dict[ir.Value, list[int]] = {}
        for position, values in enumerate(operands):
            for value in values:
                readers.setdefault(value, []).append(position)
        return cls(
            nodes=sequence,
            reads=operands,
            producer={
                value: position for position, node in enumerate(sequence) for value in node.outputs
            },
            readers={value: tuple(positions) for value, positions in readers.items()},
        )

    def predecessors(self, position: int) -> list[int]:
        """Return the positions of the nodes that one node waits for.

        Args:
            position: Position of the waiting node.

        Returns:
            Positions in operand order; a node that writes two of the operands occurs twice.
        """
        return [self.producer[v] for v in self.reads[position] if v in self.producer]

    def successors(self, position: int) -> list[int]:
        """Return the positions of the nodes that wait for one node.

        Args:
            position: Position of the node that is waited for.

        Returns:
            Positions in the order of the node's outputs; a node may occur more than once.
        """
        return [
            reader
            for value in self.nodes[position].outputs
            for reader in self.readers.get(value, ())
        ]


def in_order(nodes: Sequence[ir.Node]) -> bool:
    """Return whether no node stands before one that it needs.

    Args:
        nodes: Nodes in the order to be judged.

    Returns:
        True when the order is topological.
    """
    flow = Dataflow.of(nodes)
    return all(
        before < position
        for position in range(len(flow.nodes))
        for before in flow.predecessors(position)
    )
