"""Write a product of rows with a matrix, and the bias that is added to it, as one operator."""

from __future__ import annotations

import math

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import (
    add_integers,
    constant,
    is_operator,
    is_read_once,
    replace_node,
    static_shape,
)

__all__ = ["fold_biases"]


def fold_biases(model: ir.Model) -> int:
    """Make a Gemm over rows of every MatMul by a constant matrix to which a constant vector is added.

    In float32 that changes next to nothing. In a type of fewer digits the Gemm rounds once, as torch's
    own linear layers do, where two operators round twice.

    Args:
        model: Is changed in place; sizes that are not static leave a MatMul as it is.

    Returns:
        How many there were.
    """
    additions = [node for node in model.graph if is_operator(node, "Add") and _fold(model, node)]
    return len(additions)


def _fold(model: ir.Model, addition: ir.Node) -> bool:
    """Fold one addition; return whether it could be done."""
    # Add is commutative, and exporters write the bias on either side.
    for product, bias in (addition.inputs, tuple(reversed(addition.inputs))):
        if product is None or bias is None or constant(bias) is None:
            continue
        node = product.producer()
        # A product that others read would be computed twice.
        if node is None or not is_operator(node, "MatMul") or not is_read_once(product):
            continue
        left, right = node.inputs
        shape, matrix, vector = static_shape(left), static_shape(right), static_shape(bias)
        if left is None or constant(right) is None or shape is None or len(shape) < 2:
            continue
        # Gemm adds a vector to each row, so that the bias is as long as a row.
        if matrix is None or len(matrix) != 2 or vector != matrix[1:] or 0 in shape:
            continue
        assert right is not None
        _write(model, addition, (left, right, bias), [*shape[:-1], matrix[1]])
        return True
    return False


def _write(
    model: ir.Model,
    addition: ir.Node,
    operands: tuple[ir.Value, ir.Value, ir.Value],
    result: list[int],
) -> None:
    """Put a Gemm in the place of an addition, between Reshapes where there are more than two axes."""
    left, right, bias = operands
    name, (*outer, columns) = addition.outputs[0].name, result
    count, flat = math.prod(outer), [math.prod(outer), *(static_shape(left) or ())[-1:]]
    rows, nodes = left, list[ir.Node]()
    # Gemm takes matrices only: all axes in front are rows.
    if len(outer) > 1:
        sizes = add_integers(model, f"{name}_rows", flat)
        nodes.append(_typed(ir.node("Reshape", [left, sizes]), left, flat))
        rows = nodes[-1].outputs[0]
        rows.name = f"{name}_as_rows"
    nodes.append(_typed(ir.node("Gemm", [rows, right, bias]), left, [count, columns]))
    if len(outer) > 1:
        nodes[-1].outputs[0].name = f"{name}_product"
        sizes = add_integers(model, f"{name}_sizes", result)
        nodes.append(_typed(ir.node("Reshape", [nodes[-1].outputs[0], sizes]), left, result))
    # Before the addition goes, since its operands are gone with it.
    products = [value.producer() for value in addition.inputs if value is not None]
    replace_node(addition, nodes, [nodes[-1].outputs[0]])
    for product in products:
        if is_operator(product, "MatMul") and product is not None and not product.outputs[0].uses():
            assert product.graph is not None
            product.graph.remove(product, safe=True)


def _typed(node: ir.Node, like: ir.Value, shape: list[int]) -> ir.Node:
    node.outputs[0].type, node.outputs[0].shape = like.type, ir.Shape(shape)
    return node
