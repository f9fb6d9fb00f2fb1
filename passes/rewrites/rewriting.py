"""What several rewrites share: walking graphs, reading constants, replacing nodes and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.names import free_name
from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.program.dataflow import graphs_of, subgraphs

WEIGHT = "samba_onnx.weight"
"""Key in ``Value.meta`` of initializers that hold the user's weights."""

# The largest finite number: eight binary digits, of which the first is not stored.
_LARGEST_BFLOAT16 = (2 - 2.0**-7) * 2.0**127

SMALL = 4096
"""Elements of a tensor that a rewrite may read to decide something."""


def each_graph(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield the main graph and every subgraph, outer graphs first."""
    yield from graphs_of(model.graph)


def executed_graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield the main graph and the subgraphs that every run executes, outer graphs first.

    What follows from static sizes holds there. The branches of an If, and the body of a Loop that may end before
    its first step, can be for sizes that never come: what is made static in them may make them impossible, and
    with them the model, which runs.
    """
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        pending += [
            inner for node in graph if not _may_be_left_out(node) for inner in subgraphs(node)
        ]


def _may_be_left_out(node: ir.Node) -> bool:
    """Return whether a node decides at run time if it executes its graphs at all."""
    if node.op_type == "If":
        return True
    if node.op_type != "Loop":
        return False
    # A Loop surely begins where its trip count and condition are constants other than 0 and false.
    bounds = [value for value in node.inputs[:2] if value is not None]
    return any(array is None or not array.all() for array in map(small_array, bounds))


def would_be_no_size(output: ir.Value, numbers: NDArray[np.generic]) -> Refusal | None:
    """Return why a result stays computed: an inner graph that may never be executed would have a negative size.

    As a constant there it makes the model invalid. Bounds of a Slice are negative, too, and stay with it; they are
    cheap to compute.

    Args:
        output: The value that would become a constant.
        numbers: Its content.
    """
    if numbers.dtype.kind != "i" or not numbers.size or numbers.min() >= 0:
        return None
    node = output.producer()
    if node is None or all(use.node.graph is node.graph for use in output.uses()):
        return None
    return Refusal("a graph inside reads it, for which a negative number may be an impossible size")


def count_nodes(model: ir.Model) -> int:
    """Return the number of nodes of the main graph and its subgraphs."""
    return sum(len(graph) for graph in each_graph(model))


def is_operator(node: ir.Node | None, *op_types: str) -> bool:
    """Return whether ``node`` is one of the default domain's operators ``op_types``."""
    return node is not None and node.domain == "" and node.op_type in op_types


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer; None for what is computed, an input or left out."""
    # An initializer that is also an input may be replaced by the caller, and so is none.
    if value is None or value.const_value is None or value.producer() is not None:
        return None
    return None if value.is_graph_input() else value.const_value


def small_array(value: ir.Value | None, limit: int = SMALL) -> NDArray[np.generic] | None:
    """Return the content of an initializer of at most ``limit`` elements, else None."""
    tensor = constant(value)
    if tensor is None or tensor.size > limit or tensor.dtype.is_string():
        return None
    return tensor.numpy()


def integers(value: ir.Value | None) -> list[int] | None:
    """Return the content of a small integer initializer as a flat list, else None."""
    array = small_array(value)
    if array is None or array.dtype.kind not in "iu":
        return None
    return [int(item) for item in array.ravel()]


def integer_attribute(node: ir.Node, name: str, default: int) -> int:
    """Return an integer attribute or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape when every dimension is known, else None."""
    if value is None or value.shape is None:
        return None
    dims = [dim for dim in value.shape if isinstance(dim, int)]
    return tuple(dims) if len(dims) == len(value.shape) else None


def is_read_once(value: ir.Value) -> bool:
    """Return whether one node input is all that reads ``value``."""
    return len(value.uses()) == 1 and not value.is_graph_output()


def inherit(nodes: Iterable[ir.Node], origin: ir.Node) -> None:
    """Give new nodes, and those in bodies of theirs, the source traces and other metadata of the node that they replace."""
    for node in nodes:
        for key, text in origin.metadata_props.items():
            # What a node has by itself is nearer to the truth than its predecessor's.
            node.metadata_props.setdefault(key, text)
        for body in subgraphs(node):
            inherit(body, origin)


def add_initializer(
    model: ir.Model, name: str, tensor: ir.TensorProtocol, *, weight: bool = False
) -> ir.Value:
    """Add an initializer to the main graph under ``name`` or a free name derived from it."""
    free = free_name(name, model.graph.initializers)
    value = ir.Value(
        name=free,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(list(tensor.shape.numpy())),
        const_value=tensor,
    )
    tensor.name = free
    if weight:
        value.meta[WEIGHT] = True
    model.graph.register_initializer(value)
    return value


def folded_name(output: ir.Value) -> str:
    """Return a name for the initializer that replaces ``output``; a graph output keeps its own."""
    name = output.name or "value"
    return f"{name}_folded" if output.is_graph_output() else name


def add_constant(model: ir.Model, name: str, array: NDArray[np.generic]) -> ir.Value:
    """Add a compiler constant to the main graph."""
    return add_initializer(model, name, ir.Tensor(np.ascontiguousarray(array).reshape(array.shape)))


def add_integers(model: ir.Model, name: str, numbers: Sequence[int]) -> ir.Value:
    """Add a vector of int64, as shapes and axes are, to the main graph."""
    return add_constant(model, name, np.array(numbers, np.int64))


def replace_node(
    old: ir.Node, new: ir.Node | Sequence[ir.Node], outputs: Sequence[ir.Value | None]
) -> None:
    """Put ``new`` in the place of ``old``; ``outputs`` take over names, types and readers.

    Args:
        old: A node of a graph.
        new: Nodes in topological order, not yet in a graph.
        outputs: One value produced by ``new`` for each output of ``old``; None where nobody reads it.
    """
    nodes = [new] if isinstance(new, ir.Node) else list(new)
    graph = old.graph
    if graph is None:
        raise ValueError(f"node {old.name!r} is in no graph")
    inherit(nodes, old)
    # The last node computes the result, and so has the name that reports know.
    if nodes and not nodes[-1].name:
        nodes[-1].name = old.name
    for before, after in zip(old.outputs, outputs, strict=True):
        if after is not None:
            take_over(before, after)
    graph.insert_before(old, nodes)
    graph.remove(old, safe=True)


def take_over(before: ir.Value, after: ir.Value) -> None:
    """Let ``after``, which a node computes, have name, type, shape and readers of ``before``."""
    after.name, after.doc_string = before.name, before.doc_string
    # A stated type is the interface's or the model's own; an inferred one only fills its place.
    after.type = before.type if before.type is not None else after.type
    after.shape = before.shape if before.shape is not None else after.shape
    after.metadata_props.update(before.metadata_props)
    before.replace_all_uses_with(after, replace_graph_outputs=True)


def substitute(node: ir.Node, output: ir.Value, value: ir.Value) -> None:
    """Let readers of one of the node's outputs read ``value``; the node stays.

    Where the output is a graph's own output, an Identity of ``value`` takes its place.
    """
    if not output.is_graph_output():
        output.replace_all_uses_with(value)
        return
    identity = ir.node("Identity", [value], name=node.name)
    new = identity.outputs[0]
    inherit([identity], node)
    new.type, new.shape, new.doc_string = output.type, output.shape, output.doc_string
    new.metadata_props.update(output.metadata_props)
    output.replace_all_uses_with(new, replace_graph_outputs=True)
    new.name, output.name = output.name, None
    if node.graph is not None:
        node.graph.insert_before(node, identity)


def detach(node: ir.Node) -> None:
    """Let a node read nothing, so that a pass may remove it at its end, with all that it removes.

    ``onnx_ir`` looks through all outputs of the graph whenever it is told to remove nodes.
    """
    for place in range(len(node.inputs)):
        node.replace_input_with(place, None)


def forward(node: ir.Node, value: ir.Value, dropped: list[ir.Node] | None = None) -> Refusal | None:
    """Make every reader of the node's only used output read ``value``, and drop the node.

    Where the output is a graph's own output and ``value`` cannot carry its name, the node becomes
    an Identity.

    Args:
        node: The node to drop.
        value: What its first output is equal to.
        dropped: Where to put the node, detached, for the caller to remove; None to remove it here.

    Returns:
        None when the graph changed, else why it did not.
    """
    output, graph = node.outputs[0], node.graph
    if graph is None:
        return Refusal("it is in no graph any more")
    if output.is_graph_output():
        # A graph's own output must keep its name, which only a value that this graph computes and
        # that is no output yet can take over.
        producer = value.producer()
        local = producer is not None and producer.graph is graph
        if not local or value.is_graph_output():
            return _to_identity(node, value)
        value.name, value.doc_string = output.name, output.doc_string
        value.type = output.type if output.type is not None else value.type
        value.shape = output.shape
        value.metadata_props.update(output.metadata_props)
    elif value.shape is None:
        value.shape = output.shape
    if value.type is None:
        value.type = output.type
    output.replace_all_uses_with(value, replace_graph_outputs=True)
    if dropped is None:
        graph.remove(node, safe=True)
    else:
        detach(node)
        dropped.append(node)
    return None


def _to_identity(node: ir.Node, value: ir.Value) -> Refusal | None:
    if is_operator(node, "Identity") and node.inputs[0] is value:
        return Refusal("the name of the graph's output needs it")
    identity = ir.node("Identity", [value])
    replace_node_output(node, identity)
    return None


def replace_node_output(node: ir.Node, new: ir.Node) -> None:
    """Replace a node of which only the first output is used by a node with one output."""
    for extra in node.outputs[1:]:
        if extra.uses() or extra.is_graph_output():
            raise ValueError(f"output {extra.name!r} of node {node.name!r} is still read")
    node.resize_outputs(1)
    replace_node(node, new, new.outputs)


def mark_weights(model: ir.Model) -> None:
    """Mark the initializers of the main graph that hold the user's weights.

    Args:
        model: A model before any pass.
    """
    for value in model.graph.initializers.values():
        if value.const_value is not None and _is_weight(value.const_value):
            value.meta[WEIGHT] = True


def _is_weight(tensor: ir.TensorProtocol) -> bool:
    """Return whether an initializer holds numbers, narrow integers for them, or many integers."""
    dtype = tensor.dtype
    quantized = dtype.is_integer() and dtype.bitwidth < 16 and tensor.size > 1
    # As many as lift_constants.LARGE: more integers are a table, not sizes or axes.
    return dtype.is_floating_point() or quantized or tensor.size > 1024


def converted(tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.LazyTensor:
    """Return a tensor in another type, computed each time that somebody reads it.

    Args:
        tensor: Numbers of any floating-point type.
        dtype: The other type. What overflows in it is infinite, but in bfloat16, where it is the largest
            number: float32's own largest, which masks are made of, would be infinite otherwise.
    """

    def compute() -> ir.TensorProtocol:
        array = tensor.numpy()
        if dtype == ir.DataType.BFLOAT16 and array.dtype == np.float32:
            clipped = np.clip(array, -_LARGEST_BFLOAT16, _LARGEST_BFLOAT16)
            array = np.where(np.isfinite(array), clipped, array)
        with np.errstate(over="ignore"):
            return ir.Tensor(array.astype(dtype.numpy()), dtype=dtype)

    return ir.LazyTensor(
        compute, dtype=dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name
    )
