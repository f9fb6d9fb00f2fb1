"""Leave out initial states of recurrent layers that are zero: without them, they are."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.families import REARRANGING
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import each_graph, is_operator, small_array

STATES = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
"""Operands that are zero when they are left out."""

MOVING = REARRANGING | {"Expand", "Slice", "Split", "Tile"}
"""Operators that make zeros of zeros."""

DEEPEST = 8
"""Nodes between a recurrent layer and the zeros that are followed at most."""


class DropZeroStatesPass(ReasonedPass):
    """Leave out the initial states of an LSTM, GRU or RNN where they are made of zeros.

    Exporters make them at run time, because their size is that of the batch.

    1. The operand is a ConstantOfShape of zeros or a small initializer of zeros, or one of them
       through operators that only move elements.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Drop the operands that are zero."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if node.op_type in STATES and node.domain == "":
                    modified |= self.refusals.applied(node, _drop(node))
        return ir.passes.PassResult(model, modified=modified)


def _drop(node: ir.Node) -> Refusal | None:
    places = [place for place in STATES[node.op_type] if place < len(node.inputs)]
    present = [place for place in places if node.inputs[place] is not None]
    if not present:
        return Refusal("it has no initial state")
    zero = [place for place in present if _is_zero(node.inputs[place])]
    if not zero:
        return Refusal("its initial state is not known to be zero")
    # Each of the two states of an LSTM for itself: one may be computed.
    for place in zero:
        node.replace_input_with(place, None)
    # Operands at the end are left out by a shorter list, as exporters write it.
    while node.inputs and node.inputs[-1] is None:
        node.resize_inputs(len(node.inputs) - 1)
    return None


def _is_zero(value: ir.Value | None) -> bool:
    """Return whether every element of a value is zero (case 1)."""
    for _ in range(DEEPEST):
        node = None if value is None else value.producer()
        if node is None:
            array = small_array(value)
            return array is not None and not np.any(array)
        if is_operator(node, "ConstantOfShape"):
            # Without a value, ConstantOfShape makes zeros.
            filled = node.attributes.get("value")
            return filled is None or not np.any(filled.as_tensor().numpy())
        if node.domain != "" or node.op_type not in MOVING:
            return False
        # The data is the first operand of all these operators; others say how to move it.
        value = node.inputs[0]
    return False
