"""Transpose a tensor as it is, instead of a view of it with fewer axes."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    each_graph,
    is_operator,
    is_read_once,
    replace_node,
    static_shape,
)


class MergeReshapedTransposesPass(ReasonedPass):
    """Turn Reshape(Transpose(Reshape(x))) into one Transpose of x.

    Exporters write the transposition of keys so: batch and heads become one axis, which is divided
    again behind it.

    1. The first Reshape makes one axis of leading ones, the Transpose leaves that where it is, and the
       second Reshape divides it as it was; all shapes are static.
    2. Nothing else reads what is between them.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merge the three nodes wherever they follow each other."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                transpose = _producer(node, "Transpose") if is_operator(node, "Reshape") else None
                merge = None if transpose is None else _producer(transpose, "Reshape")
                if transpose is not None and merge is not None:
                    outcome = _merge(node, transpose, merge)
                    modified |= self.refusals.applied(node, outcome)
        return ir.passes.PassResult(model, modified=modified)


def _producer(node: ir.Node, op_type: str) -> ir.Node | None:
    """Return the node of an operator that computes what ``node`` rearranges, if it is one."""
    value = node.inputs[0]
    producer = None if value is None else value.producer()
    if producer is None or producer.graph is not node.graph:
        return None
    return producer if is_operator(producer, op_type) else None


def _merge(node: ir.Node, transpose: ir.Node, merge: ir.Node) -> Refusal | None:
    # Case 2.
    if not (is_read_once(transpose.outputs[0]) and is_read_once(merge.outputs[0])):
        return Refusal("other nodes read what is transposed before it")
    source = merge.inputs[0]
    shape, merged = static_shape(source), static_shape(merge.outputs[0])
    result, order = static_shape(node.outputs[0]), transpose.attributes.get("perm")
    if shape is None or merged is None or result is None or order is None:
        return Refusal("the shapes around the Transpose before it are not static")
    # Case 1.
    permutation, joined = tuple(order.as_ints()), len(shape) - len(merged)
    kept = shape[joined + 1 :]
    if joined < 1 or merged[1:] != kept or permutation[0] != 0:
        return Refusal("more than leading axes are merged or moved before it")
    whole = (*range(joined + 1), *(axis + joined for axis in permutation[1:]))
    if result != tuple(shape[axis] for axis in whole):
        return Refusal("it does not divide the axes as they were")
    new = ir.node("Transpose", [source], {"perm": whole})
    replace_node(node, new, new.outputs)
    return None
