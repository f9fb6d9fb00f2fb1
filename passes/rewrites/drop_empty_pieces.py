"""Take pieces without elements off a Split, which front ends of TensorFlow cut where a part may be empty."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_integers,
    each_graph,
    inherit,
    integers,
    is_operator,
    take_over,
)


class DropEmptyPiecesPass(ReasonedPass):
    """Let a Split make only the pieces that have elements.

    1. Its sizes are constant, some of them 0, and nobody reads these pieces.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Drop the pieces of every Split."""
        modified = False
        for graph in list(each_graph(model)):
            for node in list(graph):
                if is_operator(node, "Split"):
                    modified |= self.refusals.applied(node, _drop(model, graph, node))
        return ir.passes.PassResult(model, modified=modified)


def _drop(model: ir.Model, graph: ir.Graph, node: ir.Node) -> Refusal | None:
    sizes = integers(node.inputs[1]) if len(node.inputs) > 1 else None
    if sizes is None or len(sizes) != len(node.outputs):
        return Refusal("the sizes of its pieces are not constant")
    kept = [place for place, size in enumerate(sizes) if size != 0]
    empty = [node.outputs[place] for place, size in enumerate(sizes) if size == 0]
    if not empty or not kept:
        return Refusal("not some of its pieces are empty")
    # A reader of a piece without elements needs the piece, whose shape it may ask for.
    if any(value.uses() or value.is_graph_output() for value in empty):
        return Refusal("a piece without elements is read")
    operand = add_integers(model, f"{node.outputs[kept[0]].name}_sizes", [sizes[p] for p in kept])
    # Since version 18 a Split states either its sizes or num_outputs.
    attributes = {name: item for name, item in node.attributes.items() if name != "num_outputs"}
    split = ir.Node(
        "",
        "Split",
        [node.inputs[0], operand],
        attributes.values(),
        num_outputs=len(kept),
        name=node.name,
    )
    inherit([split], node)
    # Names of the pieces stay, by which results are compared.
    for place, piece in zip(kept, split.outputs, strict=True):
        take_over(node.outputs[place], piece)
    graph.insert_before(node, split)
    graph.remove(node, safe=True)
    return None
