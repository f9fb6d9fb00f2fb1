"""Keep one of equal initializers and one of equal nodes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import onnx_ir as ir

from samba_onnx.facts.operators import Randomness, operators
from samba_onnx.passes.rewrites.rewriting import WEIGHT, each_graph, inherit
from samba_onnx.pef.sources import FileRegion

SMALL_BYTES = 4096
"""Size up to which initializers are compared by content; larger ones by where they are stored."""

RANDOM = operators(random=[Randomness.ALWAYS, Randomness.TRAINING])
_COMPARED = frozenset(
    {
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRING,
        ir.AttributeType.STRINGS,
    }
)
"""Kinds of attributes that are compared besides small tensors."""


class MergeInitializersPass(ir.passes.InPlacePass):
    """Keep one of initializers with the same type, shape and content.

    Small ones are compared by content, large ones by their range of a file or by the identity of
    their tensor, so that no weight is read. Initializers that are inputs or outputs stay.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Let readers of equal initializers read the first one."""
        originals: dict[Hashable, ir.Value] = {}
        modified = False
        for name, value in list(model.graph.initializers.items()):
            key = _key(value)
            if key is None:
                continue
            first = originals.setdefault(key, value)
            if first is value:
                continue
            # If either is one of the user's weights, the one that stays is one.
            if value.meta.get(WEIGHT):
                first.meta[WEIGHT] = True
            value.replace_all_uses_with(first)
            del model.graph.initializers[name]
            modified = True
        return ir.passes.PassResult(model, modified=modified)


def _key(value: ir.Value) -> Hashable | None:
    tensor = value.const_value
    if tensor is None or value.is_graph_input() or value.is_graph_output():
        return None
    head = (tensor.dtype, tuple(tensor.shape))
    # Strings have no bytes to compare.
    if tensor.dtype.is_string():
        return None
    region = getattr(tensor, "region", None)
    if isinstance(region, FileRegion) and tensor.nbytes > SMALL_BYTES:
        return (*head, region)
    # A large tensor without a place in a file is compared as an object: reading it would cost more
    # than merging saves.
    return (*head, tensor.tobytes() if tensor.nbytes <= SMALL_BYTES else id(tensor))


class MergeNodesPass(ir.passes.InPlacePass):
    """Keep one of nodes with the same operator, attributes and inputs, in every graph by itself.

    1. What may differ from run to run (random operators, Dropout), of which nothing is known (custom
       domains) or that has a subgraph stays.
    2. An output of the graph keeps its name: the node that is kept takes it over, or an Identity
       carries it where that has a name of the interface already. Such an Identity stays.

    ``onnx_ir`` has a pass of this kind too; with many equal outputs its time grows with their square.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Let readers of equal nodes read the first one."""
        modified = False
        for graph in list(each_graph(model)):
            modified |= _merge_nodes(graph)
        return ir.passes.PassResult(model, modified=modified)


def _merge_nodes(graph: ir.Graph) -> bool:
    # Found once: looking an output up among thousands for each node would take quadratic time.
    places: dict[ir.Value, list[int]] = {}
    for place, value in enumerate(graph.outputs):
        places.setdefault(value, []).append(place)
    kept: dict[Hashable, ir.Node] = {}
    merged: list[ir.Node] = []
    for node in graph:
        key = _node_key(node)
        if key is None:
            continue
        first = kept.setdefault(key, node)
        if first is node:
            continue
        for output, original in zip(list(node.outputs), first.outputs, strict=True):
            if output.is_graph_output():
                _hand_over(graph, node, output, original, places)
            output.replace_all_uses_with(original)
        merged.append(node)
    graph.remove(merged, safe=True)  # at once: each call looks through all outputs of the graph
    return bool(merged)


def _node_key(node: ir.Node) -> Hashable | None:
    """Return what equal nodes have in common, None for a node that stays."""
    # Case 1: nothing says that two of them compute the same.
    if node.domain != "" or node.op_type in RANDOM:
        return None
    # Case 2: it is there for the name only.
    if node.op_type == "Identity" and node.outputs[0].is_graph_output():
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        content = _attribute_key(attribute)
        if content is None:
            return None
        attributes.append((name, attribute.type, content))
    inputs = tuple(id(value) for value in node.inputs)
    return (node.op_identifier(), node.version, len(node.outputs), inputs, tuple(attributes))


def _attribute_key(attribute: ir.Attr) -> Hashable | None:
    """Return an attribute's content, None for what is not compared."""
    if attribute.is_ref():
        return None
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        if tensor.dtype.is_string() or tensor.nbytes > SMALL_BYTES:
            return None
        return (tensor.dtype, tuple(tensor.shape), tensor.tobytes())
    value = tuple(attribute.value) if isinstance(attribute.value, Sequence) else attribute.value
    return value if attribute.type in _COMPARED else None


def _hand_over(
    graph: ir.Graph,
    node: ir.Node,
    output: ir.Value,
    original: ir.Value,
    places: dict[ir.Value, list[int]],
) -> None:
    """Let ``original``, or an Identity of it, be the graph's output that ``output`` is."""
    successor = original
    # An output of the interface has one name: a second name needs an Identity.
    if original.is_graph_output():
        identity = ir.node("Identity", [original], name=node.name)
        inherit([identity], node)
        graph.insert_before(node, identity)
        successor = identity.outputs[0]
    successor.name, successor.doc_string = output.name, output.doc_string
    successor.type, successor.shape = output.type, output.shape
    successor.metadata_props.update(output.metadata_props)
    places[successor] = places.pop(output)
    for place in places[successor]:
        graph.outputs[place] = successor
    output.name = None
