"""Take tensors out of sequences whose places are known: no device has sequences."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_integers,
    each_graph,
    forward,
    inherit,
    integer_attribute,
    integers,
    is_operator,
    replace_node,
    static_shape,
)

MOST_PIECES = 1024
"""Tensors that a SplitToSequence is written as at most."""


class UnpackSequencesPass(ReasonedPass):
    """Let readers of a sequence's tensors read the tensors.

    1. SplitToSequence becomes a Split, with a Squeeze behind a piece whose axis it drops, where all
       that reads the sequence is SequenceAt with a constant place; pieces are of known sizes.
    2. SequenceAt of a SequenceConstruct, with a constant place, becomes the tensor.
    3. ConcatFromSequence of a SequenceConstruct becomes a Concat, of Unsqueezes for a new axis.
    4. SequenceInsert into a SequenceConstruct or a SequenceEmpty becomes a SequenceConstruct.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Unpack every sequence whose readers say at compile time what they read."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if is_operator(node, "SplitToSequence"):
                    modified |= self.refusals.applied(node, _split(model, node))
                elif is_operator(node, "SequenceAt"):
                    modified |= self.refusals.applied(node, _take(node))
                elif is_operator(node, "SequenceInsert"):
                    modified |= self.refusals.applied(node, _insert(node))
                elif is_operator(node, "ConcatFromSequence"):
                    modified |= self.refusals.applied(node, _concatenate(model, node))
        return ir.passes.PassResult(model, modified=modified)


def _split(model: ir.Model, node: ir.Node) -> Refusal | None:
    source, sequence, graph = node.inputs[0], node.outputs[0], node.graph
    if source is None or source.shape is None or graph is None:
        return Refusal("the rank of what is split is not known")
    axis = integer_attribute(node, "axis", 0) % max(1, len(source.shape))
    sizes = _pieces(node, source.shape[axis])
    if sizes is None:
        return Refusal("the sizes of its pieces are not known")
    # Case 1: every reader says which piece it reads, and is there to take it.
    readers = list(sequence.consumers())
    places = [_place(reader, len(sizes)) for reader in readers]
    if sequence.is_graph_output() or not readers or None in places:
        return Refusal("its sequence is read by more than SequenceAt with a constant place")
    split = ir.node(
        "Split",
        [source, add_integers(model, f"{sequence.name}_sizes", sizes)],
        {"axis": axis},
        num_outputs=len(sizes),
    )
    for number, (piece, size) in enumerate(zip(split.outputs, sizes, strict=True)):
        piece.name, piece.type = f"{sequence.name}_{number}", source.type
        piece.shape = ir.Shape([*source.shape[:axis], size, *source.shape[axis + 1 :]])
    inherit([split], node)
    graph.insert_before(node, split)
    # keepdims counts only where no sizes are stated, as ONNX defines it.
    drops = len(node.inputs) < 2 or node.inputs[1] is None
    drops = drops and not integer_attribute(node, "keepdims", 1)
    for reader, place in zip(readers, places, strict=True):
        piece = split.outputs[place or 0]
        if drops:
            axes = add_integers(model, f"{sequence.name}_axis", [axis])
            squeeze = ir.node("Squeeze", [piece, axes])
            replace_node(reader, squeeze, squeeze.outputs)
        else:
            forward(reader, piece)
    graph.remove(node, safe=True)
    return None


def _pieces(node: ir.Node, whole: ir.SymbolicDim | int) -> list[int] | None:
    """Return the sizes of the pieces along the axis, None where they are not known."""
    given = node.inputs[1] if len(node.inputs) > 1 else None
    # Without sizes every piece is one element thick.
    if given is None:
        return [1] * whole if isinstance(whole, int) and whole <= MOST_PIECES else None
    sizes, shape = integers(given), static_shape(given)
    if sizes is None or shape is None or not sizes:
        return None
    if shape:
        # A vector states every size, a scalar the size of all but the last.
        return sizes if all(size > 0 for size in sizes) else None
    size = sizes[0]
    if not isinstance(whole, int) or size < 1 or whole < 1 or whole > size * MOST_PIECES:
        return None
    return [min(size, whole - start) for start in range(0, whole, size)]


def _place(reader: ir.Node, count: int) -> int | None:
    """Return which of ``count`` tensors a SequenceAt takes, None if it is not known or none."""
    places = integers(reader.inputs[1]) if is_operator(reader, "SequenceAt") else None
    if places is None or len(places) != 1 or not -count <= places[0] < count:
        return None
    return places[0] % count


def _constructed(node: ir.Node) -> list[ir.Value] | None:
    """Return the tensors of the sequence that a node reads, None where no node lists them."""
    sequence = node.inputs[0]
    maker = None if sequence is None else sequence.producer()
    if maker is not None and is_operator(maker, "SequenceEmpty"):
        return []
    if maker is None or not is_operator(maker, "SequenceConstruct"):
        return None
    tensors = [value for value in maker.inputs if value is not None]
    return tensors if len(tensors) == len(maker.inputs) else None


def _take(node: ir.Node) -> Refusal | None:
    # Case 2.
    tensors = _constructed(node)
    if tensors is None:
        return Refusal("no SequenceConstruct lists the tensors of its sequence")
    place = _place(node, len(tensors))
    if place is None:
        return Refusal("its place is not a constant, or beyond the sequence")
    return forward(node, tensors[place])


def _insert(node: ir.Node) -> Refusal | None:
    # Case 4.
    tensors, tensor = _constructed(node), node.inputs[1]
    if tensors is None or tensor is None:
        return Refusal("no SequenceConstruct lists the tensors of its sequence")
    places = [len(tensors)]
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        places = integers(node.inputs[2]) or []
    if len(places) != 1 or not -len(tensors) <= places[0] <= len(tensors):
        return Refusal("its place is not a constant, or beyond the sequence")
    place = places[0] if places[0] >= 0 else places[0] + len(tensors)
    sequence = ir.node("SequenceConstruct", [*tensors[:place], tensor, *tensors[place:]])
    replace_node(node, sequence, sequence.outputs)
    return None


def _concatenate(model: ir.Model, node: ir.Node) -> Refusal | None:
    # Case 3.
    tensors = _constructed(node)
    if not tensors:
        return Refusal("no SequenceConstruct lists the tensors of its sequence")
    axis = node.attributes["axis"].as_int()
    nodes: list[ir.Node] = []
    if integer_attribute(node, "new_axis", 0):
        axes = add_integers(model, f"{node.outputs[0].name}_axis", [axis])
        nodes = [ir.node("Unsqueeze", [value, axes]) for value in tensors]
        for number, (new, value) in enumerate(zip(nodes, tensors, strict=True)):
            new.outputs[0].name = f"{node.outputs[0].name}_{number}"
            new.outputs[0].type = value.type
        tensors = [new.outputs[0] for new in nodes]
    nodes.append(ir.node("Concat", tensors, {"axis": axis}))
    replace_node(node, nodes, nodes[-1].outputs)
    return None
