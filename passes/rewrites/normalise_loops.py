"""Write loops as a device could repeat them: with a number of steps that is known."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.loop_bodies import source
from samba_onnx.passes.rewrites.loop_counts import counted_steps
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_constant,
    each_graph,
    inherit,
    integers,
    is_operator,
    small_array,
)


class NormaliseLoopsPass(ReasonedPass):
    """Say of a Loop how often it runs, and what it reads, in the plainest way.

    1. A state that every step returns as it is was outside all the time: the body reads it there.
    2. A condition that only counts becomes a trip count (:func:`~samba_onnx.passes.rewrites.loop_counts.counted_steps`), and
       the body's condition is the one that it is given.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Normalise every Loop."""
        modified = False
        for graph in list(each_graph(model)):
            for node in list(graph):
                if not is_operator(node, "Loop"):
                    continue
                modified |= _read_outside(node)
                modified |= self.refusals.applied(node, _count(model, node))
        return ir.passes.PassResult(model, modified=modified)


def _read_outside(node: ir.Node) -> bool:
    """Let the body of a loop read what no step changes where it came from (case 1)."""
    body = node.attributes["body"].as_graph()
    modified = False
    for place, (inner, outer) in enumerate(zip(body.inputs[2:], node.inputs[2:], strict=True)):
        if outer is None or source(body.outputs[place + 1]) is not inner:
            continue
        # Nodes that pass it on to the body's own outputs go on doing so.
        readers = [
            (use.node, use.idx) for use in inner.uses() if not is_operator(use.node, "Identity")
        ]
        for reader, index in readers:
            reader.replace_input_with(index, outer)
        modified |= bool(readers)
    return modified


def _count(model: ir.Model, node: ir.Node) -> Refusal | None:
    """State the number of steps of a loop whose condition counts (case 2)."""
    body = node.attributes["body"].as_graph()
    if _is_plain(node, body):
        return Refusal("its number of steps is stated already")
    steps = counted_steps(node)
    if isinstance(steps, Refusal):
        return steps
    count = add_constant(
        model, f"{node.outputs[0].name or 'loop'}_steps", np.array(steps, np.int64)
    )
    node.replace_input_with(0, count)
    # A first condition that is false has made the count 0.
    if len(node.inputs) > 1:
        node.replace_input_with(1, None)
    # The condition of the body is the one that it is given: true as long as the count lasts.
    again = ir.node("Identity", [body.inputs[1]])
    inherit([again], node)
    again.outputs[0].name = f"{count.name}_again"
    again.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
    again.outputs[0].shape = ir.Shape(())
    body.append(again)
    body.outputs[0] = again.outputs[0]
    return None


def _is_plain(node: ir.Node, body: ir.Graph) -> bool:
    """Return whether a trip count alone says how often a body is executed."""
    counts = integers(node.inputs[0])
    begins = node.inputs[1] if len(node.inputs) > 1 else None
    first = small_array(begins)
    begun = begins is None or (first is not None and bool(first.all()))
    again = source(body.outputs[0])
    goes_on = small_array(again)
    stays = again is body.inputs[1] or (goes_on is not None and bool(goes_on.all()))
    return counts is not None and begun and stays
