"""Multiply with a shared weight as it lies, instead of transposing it at run time."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import (
    add_constant,
    constant,
    each_graph,
    is_operator,
    is_read_once,
    replace_node,
    static_shape,
)


class FoldTransposesPass(ir.passes.InPlacePass):
    """Turn MatMul(x, Transpose(w)) into Gemm(x, w, transB=1), when w has other readers too.

    A weight that nothing else reads is transposed once by FoldConstantsPass. One that is tied,
    as an embedding that is also the last layer, stays single this way.

    1. w is an initializer of rank 2 and the Transpose swaps its dimensions.
    2. x has rank 2; or a higher, known rank of which at most one leading dimension is dynamic: it
       is reshaped to rank 2 and the product back.
    3. Types are those of Gemm in onnxruntime: float, double and float16.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if is_operator(node, "MatMul"):
                    modified |= _fold(model, node)
        return ir.passes.PassResult(model, modified=modified)


def _fold(model: ir.Model, node: ir.Node) -> bool:
    left, right = node.inputs
    transpose = None if right is None else right.producer()
    if left is None or left.shape is None or not is_operator(transpose, "Transpose"):
        return False
    weight = transpose.inputs[0] if transpose is not None else None
    shape = static_shape(weight)
    if weight is None or constant(weight) is None or shape is None or len(shape) != 2:
        return False
    if weight.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16):
        return False
    if is_read_once(weight) or len(left.shape) < 2:
        return False
    given = transpose.attributes.get("perm") if transpose is not None else None
    if given is not None and tuple(given.as_ints()) != (1, 0):
        return False
    if len(left.shape) == 2:
        gemm = ir.node("Gemm", [left, weight], {"transB": 1})
        replace_node(node, gemm, gemm.outputs)
        return True
    leading = [dim if isinstance(dim, int) else -1 for dim in left.shape][:-1]
    if leading.count(-1) > 1 or 0 in leading:
        return False
    _fold_high_rank(model, node, left, weight, leading, shape)
    return True


def _fold_high_rank(
    model: ir.Model,
    node: ir.Node,
    left: ir.Value,
    weight: ir.Value,
    leading: list[int],
    shape: tuple[int, ...],
) -> None:
    name = node.outputs[0].name
    rows = add_constant(model, f"{name}_rows", np.array([-1, shape[1]], np.int64))
    back = add_constant(model, f"{name}_back", np.array([*leading, shape[0]], np.int64))
    flat = ir.node("Reshape", [left, rows])
    gemm = ir.node("Gemm", [flat.outputs[0], weight], {"transB": 1})
    result = ir.node("Reshape", [gemm.outputs[0], back])
    flat.outputs[0].name, gemm.outputs[0].name = f"{name}_left", f"{name}_product"
    flat.outputs[0].type = gemm.outputs[0].type = left.type
    replace_node(node, [flat, gemm, result], result.outputs)
