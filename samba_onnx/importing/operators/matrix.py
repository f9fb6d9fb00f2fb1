"""Products of matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes


@computes("MatMul")
def matmul(node: Node, left: Tensor, right: Tensor) -> Tensor:
    """Multiply stacks of matrices."""
    del node
    return torch.matmul(left, right)


@computes("Gemm")
def gemm(node: Node, left: Tensor, right: Tensor, added: Tensor | None = None) -> Tensor:
    """Multiply two matrices, each maybe transposed, scale, and add."""
    left = left.t() if node.integer("transA") else left
    right = right.t() if node.integer("transB") else right
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    # Factors are floats in ONNX, and a product of integers has to keep its type.
    if not left.is_floating_point():
        product = torch.matmul(left, right) * int(alpha)
        return product if added is None else product + added * int(beta)
    # One operator instead of a product, two factors and a sum.
    if added is not None:
        return torch.addmm(added, left, right, beta=beta, alpha=alpha)
    product = torch.matmul(left, right)
    # A product by one would be a node more in every traced layer.
    return product if alpha == 1.0 else product * alpha


@computes("Einsum")
def einsum(node: Node, *operands: Tensor) -> Tensor:
    """Sum products over named axes."""
    return torch.einsum(node.text("equation").replace(" ", ""), *operands)


@computes("Det")
def determinant(node: Node, value: Tensor) -> Tensor:
    """Return determinants of a stack of matrices."""
    del node
    return torch.det(value)


@computes("MatMulInteger")
def matmul_integer(
    node: Node,
    left: Tensor,
    right: Tensor,
    left_zero: Tensor | None = None,
    right_zero: Tensor | None = None,
) -> Tensor:
    """Multiply matrices of small integers in 32 bits."""
    del node
    # int32 is the type of the result in ONNX.
    wide, other = left.to(torch.int32), right.to(torch.int32)
    if left_zero is not None:
        zero = left_zero.to(torch.int32)
        # A zero point per row is a vector, which must run down the rows.
        wide = wide - (zero.unsqueeze(-1) if zero.dim() and zero.numel() > 1 else zero)
    if right_zero is not None:
        other = other - right_zero.to(torch.int32)
    return torch.matmul(wide, other)
