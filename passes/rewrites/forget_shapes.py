"""Forget shapes that a dynamic model states for what it computes."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.facts.domains import is_custom
from samba_onnx.passes.rewrites.rewriting import each_graph


class ForgetShapesPass(ir.passes.InPlacePass):
    """Drop the stated sizes of intermediate values, so that inference finds them anew.

    An exporter writes down the sizes of its example where it lost track of a dimension: torch's
    states six steps for the result of an LSTM over a dynamic sequence. A size that is only true
    for the example would place a node on the RDU that must not be there.

    1. Only in a model with a dynamic dimension among its inputs; a static model has one truth.
    2. Ranks and types stay, and so do the shapes of inputs, outputs and initializers.
    3. What a model states of the results of a custom domain's operators stays, since nothing can
       infer it anew; a call of one of the model's functions is no such operator.
    4. A function's values are not looked at: they have no shapes before it is inlined.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Forget the sizes of what a dynamic model computes."""
        modified = False
        # Case 1.
        if any(_is_dynamic(value) for value in model.graph.inputs):
            for graph in each_graph(model):
                for node in graph:
                    # Case 3.
                    if is_custom(node.domain) and node.op_identifier() not in model.functions:
                        continue
                    for value in node.outputs:
                        modified |= not value.is_graph_output() and _forget(value)
        return ir.passes.PassResult(model, modified=modified)


def _is_dynamic(value: ir.Value) -> bool:
    return value.shape is not None and any(not isinstance(size, int) for size in value.shape)


def _forget(value: ir.Value) -> bool:
    if value.shape is None or not any(isinstance(size, int) for size in value.shape):
        return False
    # Case 2: the rank stays.
    value.shape = ir.Shape([None] * len(value.shape))
    return True
