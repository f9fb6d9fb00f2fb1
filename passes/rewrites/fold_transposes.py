"""Multiply with a shared weight as it lies, instead of transposing it at run time."""

from __future__ import annotations

import onnx_ir as ir

from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_integers,
    constant,
    each_graph,
    is_operator,
    is_read_once,
    replace_node,
    static_shape,
)

_FLOATING = frozenset(
    {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
)


class FoldTransposesPass(ReasonedPass):
    """Turn MatMul(x, Transpose(w)) into Gemm(x, w, transB=1), when w has other readers too.

    A weight that nothing else reads is transposed once by FoldConstantsPass. One that is tied,
    as an embedding that is also the last layer, stays single this way. It is for the target: Gemm
    reads the weight as it lies, where a Transpose would move all of it in every run; the Reshapes
    around it move nothing.

    1. w is an initializer of rank 2 and the Transpose swaps its dimensions.
    2. x has rank 2; or a higher, known rank of which at most one leading dimension is dynamic: it
       is reshaped to rank 2 and the product back.
    3. Numbers have a fraction: no target multiplies integers by Gemm.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace the products with a shared, transposed weight."""
        modified = False
        for graph in list(each_graph(model)):
            for node in graph:
                if not is_operator(node, "MatMul"):
                    continue
                right = node.inputs[1]
                transpose = None if right is None else right.producer()
                if transpose is not None and is_operator(transpose, "Transpose"):
                    outcome = _fold(model, node, transpose)
                    modified |= self.refusals.applied(node, outcome)
        return ir.passes.PassResult(model, modified=modified)


def _fold(model: ir.Model, node: ir.Node, transpose: ir.Node) -> Refusal | None:
    left, weight = node.inputs[0], transpose.inputs[0]
    # Case 1: a matrix that others read too and whose two axes are swapped.
    shape = static_shape(weight)
    if weight is None or constant(weight) is None or shape is None or len(shape) != 2:
        return Refusal("what is transposed is no constant matrix")
    if is_read_once(weight):
        return Refusal("nothing else reads the weight, which is transposed once instead")
    permutation = transpose.attributes.get("perm")
    if permutation is not None and tuple(permutation.as_ints()) != (1, 0):
        return Refusal("the Transpose leaves the matrix as it is")
    # Case 3: the types that Gemm has.
    if weight.dtype not in _FLOATING:
        return Refusal("Gemm does not have its type")
    # Case 2: the other operand is a matrix, or can be seen as one.
    if left is None or left.shape is None or len(left.shape) < 2:
        return Refusal("its first operand is not known to be a matrix or a batch of them")
    if len(left.shape) == 2:
        gemm = ir.node("Gemm", [left, weight], {"transB": 1})
        replace_node(node, gemm, gemm.outputs)
        return None
    leading = [dim if isinstance(dim, int) else -1 for dim in left.shape][:-1]
    if leading.count(-1) > 1 or 0 in leading:
        return Refusal("more than one of its leading dimensions is dynamic, or one is empty")
    _fold_high_rank(model, node, left, weight, leading, shape)
    return None


def _fold_high_rank(
    model: ir.Model,
    node: ir.Node,
    left: ir.Value,
    weight: ir.Value,
    leading: list[int],
    shape: tuple[int, ...],
) -> None:
    name = node.outputs[0].name
    rows = add_integers(model, f"{name}_rows", [-1, shape[1]])
    back = add_integers(model, f"{name}_back", [*leading, shape[0]])
    flat = ir.node("Reshape", [left, rows])
    gemm = ir.node("Gemm", [flat.outputs[0], weight], {"transB": 1})
    result = ir.node("Reshape", [gemm.outputs[0], back])
    flat.outputs[0].name, gemm.outputs[0].name = f"{name}_left", f"{name}_product"
    flat.outputs[0].type = gemm.outputs[0].type = left.type
    replace_node(node, [flat, gemm, result], result.outputs)
