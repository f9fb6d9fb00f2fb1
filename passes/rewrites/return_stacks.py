"""Sequences that a Loop fills tensor by tensor, as the tensors of all steps that it can return itself."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.loop_bodies import source
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_constant,
    each_graph,
    inherit,
    integer_attribute,
    integers,
    is_operator,
    replace_node,
)

_STATES: Final = 2
"""Inputs of a Loop and of its body before the first state: trip count and condition; number and condition."""


class ReturnStacksPass(ReasonedPass):
    """Let a Loop return tensors of all steps in place of the sequences that it fills.

    1. A sequence begins empty; each step appends one tensor at its end and does nothing else with it.
    2. Behind the loop, all that reads it is ConcatFromSequence along a new axis, or SequenceAt with a constant place
       from the front.
    3. The state stays, an empty sequence that nobody fills or reads.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace sequences of every Loop."""
        modified = False
        for graph in list(each_graph(model)):
            for node in list(graph):
                if is_operator(node, "Loop"):
                    modified |= self.refusals.applied(node, _return_stacks(model, node))
        return ir.passes.PassResult(model, modified=modified)


def _return_stacks(model: ir.Model, node: ir.Node) -> Refusal | None:
    """Replace the sequences of a loop, whose outputs become more; return why none was."""
    body = node.attributes["body"].as_graph()
    refusal = Refusal("it fills no sequence")
    replaced = False
    # Every state for itself: a loop may fill several sequences, and have other states.
    for place, inner in enumerate(body.inputs[_STATES:]):
        appended = _appended(node, body, place, inner)
        if isinstance(appended, Refusal):
            # A reason about a tensor would hide one about a sequence.
            refusal = appended if _is_sequence(node, place) else refusal
            continue
        readers = list(node.outputs[place].consumers())
        # A stack is of use only where all readers can read it: otherwise both would be made.
        if node.outputs[place].is_graph_output() or not readers or not all(map(_can_read, readers)):
            refusal = Refusal("its sequence is read by more than what puts it together")
            continue
        stack = _stacked(node, body, place, inner, appended)
        for reader in readers:
            _read_stack(model, reader, stack)
        replaced = True
    return None if replaced else refusal


def _is_sequence(node: ir.Node, place: int) -> bool:
    return isinstance(node.outputs[place].type, ir.SequenceType)


def _appended(node: ir.Node, body: ir.Graph, place: int, inner: ir.Value) -> ir.Value | Refusal:
    """Return the tensor that each step appends to a sequence (case 1)."""
    first = source(node.inputs[place + _STATES])
    if first is None or not is_operator(first.producer(), "SequenceEmpty"):
        return Refusal("its sequence does not begin empty")
    insert = body.outputs[place + 1].producer()
    if insert is None or not is_operator(insert, "SequenceInsert") or insert.inputs[0] is not inner:
        return Refusal("a step does something else with its sequence than to append a tensor")
    if len(insert.inputs) > _STATES and insert.inputs[2] is not None:
        return Refusal("a step says where it inserts a tensor")
    # A reader within the body sees a part of the sequence, which no stack has.
    if len(inner.uses()) > 1 or len(body.outputs[place + 1].uses()) > 0:
        return Refusal("a step reads the sequence that it fills")
    tensor = insert.inputs[1]
    return Refusal("a step appends nothing") if tensor is None else tensor


def _can_read(reader: ir.Node) -> bool:
    """Return whether a reader of a sequence can read the tensor of all steps (case 2)."""
    if is_operator(reader, "ConcatFromSequence"):
        return bool(integer_attribute(reader, "new_axis", 0)) and _order(reader) is not None
    if not is_operator(reader, "SequenceAt"):
        return False
    numbers = integers(reader.inputs[1])
    # A negative place counts from an end that is known at run time only.
    return numbers is not None and len(numbers) == 1 and numbers[0] >= 0


def _order(reader: ir.Node) -> list[int] | None:
    """Return the order of axes in which a reader wants the steps; empty for the first, None where it is unknown."""
    axis, shape = integer_attribute(reader, "axis", 0), reader.outputs[0].shape
    if axis == 0:
        return []
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    # Steps come first in a stack; they move to where the reader wants the new axis.
    order = list(range(1, len(shape)))
    order.insert(axis % len(shape), 0)
    return order


def _stacked(
    node: ir.Node, body: ir.Graph, place: int, inner: ir.Value, tensor: ir.Value
) -> ir.Value:
    """Let a loop return the tensors that its steps append as one, and its sequence as it began."""
    # Case 3.
    body.outputs[place + 1] = inner
    results = len(body.outputs)
    # A copy, since the tensor may be a value from outside, or be returned already.
    copy = ir.node("Identity", [tensor])
    inherit([copy], node)
    copy.outputs[0].name = f"{node.outputs[place].name}_each"
    copy.outputs[0].type, copy.outputs[0].shape = tensor.type, tensor.shape
    body.append(copy)
    # Stacks stand behind all other results, so that places of the others stay.
    body.outputs.append(copy.outputs[0])
    node.resize_outputs(results)
    stack = node.outputs[results - 1]
    stack.name = f"{node.outputs[place].name}_stack"
    if tensor.type is not None:
        stack.type = tensor.type
    if tensor.shape is not None:
        stack.shape = ir.Shape([None, *tensor.shape])
    return stack


def _read_stack(model: ir.Model, reader: ir.Node, stack: ir.Value) -> None:
    """Let what put a sequence together, or took a tensor out of it, read the tensor of all steps."""
    if is_operator(reader, "SequenceAt"):
        place = np.array((integers(reader.inputs[1]) or [0])[0], np.int64)
        index = add_constant(model, f"{reader.outputs[0].name}_place", place)
        taken = ir.node("Gather", [stack, index], {"axis": 0})
        replace_node(reader, taken, taken.outputs)
        return
    order = _order(reader)
    turned = (
        ir.node("Transpose", [stack], {"perm": order}) if order else ir.node("Identity", [stack])
    )
    replace_node(reader, turned, turned.outputs)
