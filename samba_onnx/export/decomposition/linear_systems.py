"""Determinants and systems of linear equations whose gradients can be written in ONNX.

torch's own gradients read factors whose meaning depends on how a matrix lies in memory, which a graph
does not know. Only what requires a gradient is computed here.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

aten = torch.ops.aten


def _is_constant(*tensors: Tensor) -> bool:
    return not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))


class _Solve(torch.autograd.Function):
    """``X`` of ``A @ X = B``; both with the same leading axes."""

    @staticmethod
    def forward(ctx: FunctionCtx, value: Tensor, right: Tensor) -> Tensor:
        result: Tensor = aten.linalg_solve_ex.default(value, right)[0]
        ctx.save_for_backward(value, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        value, result = ctx.saved_tensors
        right: Tensor = aten.linalg_solve_ex.default(value.mT, gradient)[0]
        return -right @ result.mT, right


class _LogDeterminant(torch.autograd.Function):
    """Signs and logarithms of determinants."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> tuple[Tensor, Tensor]:
        factors, pivots, _ = aten.linalg_lu_factor_ex.default(value)
        ctx.save_for_backward(factors, pivots)
        diagonal = factors.diagonal(0, -2, -1)
        sign = _order(pivots, value.dtype) * diagonal.sign().prod(-1)
        ctx.mark_non_differentiable(sign)
        return sign, diagonal.abs().log().sum(-1)

    @staticmethod
    def backward(ctx: Any, _sign: Tensor, gradient: Tensor) -> Tensor:
        factors, pivots = ctx.saved_tensors
        return _transposed_inverse(factors, pivots, gradient)


class _Determinant(torch.autograd.Function):
    """Determinants."""

    @staticmethod
    def forward(ctx: FunctionCtx, value: Tensor) -> Tensor:
        factors, pivots, _ = aten.linalg_lu_factor_ex.default(value)
        result: Tensor = _order(pivots, value.dtype) * factors.diagonal(0, -2, -1).prod(-1)
        ctx.save_for_backward(factors, pivots, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        factors, pivots, result = ctx.saved_tensors
        diagonal = factors.diagonal(0, -2, -1)
        # As torch does: a singular matrix has no inverse, but its determinant has a gradient.
        least = torch.finfo(factors.dtype).eps
        factors = factors + torch.diag_embed(torch.where(diagonal == 0, least, 0.0))
        return _transposed_inverse(factors, pivots, gradient * result)


def _order(pivots: Tensor, dtype: torch.dtype) -> Tensor:
    """Return -1 for an odd number of exchanges."""
    places = torch.arange(1, pivots.shape[-1] + 1, device=pivots.device)
    return torch.where(pivots == places, 1, -1).to(dtype).prod(-1)


def _transposed_inverse(factors: Tensor, pivots: Tensor, factor: Tensor) -> Tensor:
    """Return transposed inverses of factorised matrices, times a number each."""
    numbers = factor.unsqueeze(-1).expand(factors.shape[:-1])
    result: Tensor = aten.linalg_lu_solve.default(
        factors, pivots, torch.diag_embed(numbers), adjoint=True
    )
    return result


def determinant(value: Tensor) -> Tensor:
    """Compute determinants, (...), of matrices (..., n, n)."""
    if _is_constant(value):
        return aten.linalg_det.default(value)  # type: ignore[no-any-return]
    # The determinant of no rows is 1, in the shape and with the gradient that sums have.
    if value.numel() == 0:
        return value.sum((-2, -1)) + 1
    return cast(Tensor, _Determinant.apply(value))  # type: ignore[no-untyped-call]


def log_determinant(value: Tensor) -> tuple[Tensor, Tensor]:
    """Compute signs and logarithms, each (...), of determinants of matrices (..., n, n)."""
    if _is_constant(value):
        return aten.linalg_slogdet.default(value)  # type: ignore[no-any-return]
    if value.numel() == 0:
        total = value.sum((-2, -1))
        return torch.ones_like(total), total
    return cast(tuple[Tensor, Tensor], _LogDeterminant.apply(value))  # type: ignore[no-untyped-call]


def logarithm_of_determinant(value: Tensor) -> Tensor:
    """Compute logarithms, (...), of determinants of matrices (..., n, n); nan if one is negative."""
    sign, logarithm = log_determinant(value)
    return torch.where(sign == -1, float("nan"), logarithm)


def solve_ex(
    value: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    """Solve systems of linear equations; names and meaning are torch's.

    Args:
        value: (..., n, n).
        right: (..., n, k), or (..., n) for single vectors.
        left: Whether the unknown is right of ``value``.
        check_errors: Not read: a graph has no errors.

    Returns:
        What is unknown, and zeros: one per matrix.
    """
    if _is_constant(value, right):
        return aten.linalg_solve_ex.default(value, right, left=left)  # type: ignore[no-any-return]
    # torch's rule for which right sides are vectors.
    is_vector = right.dim() == 1 or (
        right.dim() == value.dim() - 1 and right.shape == value.shape[:-1]
    )
    matrix = right.unsqueeze(-1) if is_vector else right
    # X A = B is A^T X^T = B^T.
    if not left:
        value, matrix = value.mT, matrix.mT
    batch = torch.broadcast_shapes(value.shape[:-2], matrix.shape[:-2])  # type: ignore[no-untyped-call]
    operands = (one.expand(*batch, *one.shape[-2:]) for one in (value, matrix))
    result: Tensor = _Solve.apply(*operands)  # type: ignore[no-untyped-call]
    result = result if left else result.mT
    # Nothing looks at values on the device, so that no failure is told.
    failures = torch.zeros(value.shape[:-2], dtype=torch.int32, device=value.device)
    return (result.squeeze(-1) if is_vector else result), failures


def solve(value: Tensor, right: Tensor, *, left: bool = True) -> Tensor:
    """Solve systems of linear equations; as ``solve_ex``, without its second result."""
    return solve_ex(value, right, left=left)[0]


def tensorsolve(value: Tensor, right: Tensor, dims: list[int] | None = None) -> Tensor:
    """Solve a system of linear equations over several axes; names and meaning are torch's."""
    if dims is not None:
        value = value.movedim(dims, [value.dim() - len(dims) + i for i in range(len(dims))])
    shape = value.shape[right.dim() :]
    square = value.reshape(right.numel(), right.numel())
    return solve(square, right.reshape(-1)).reshape(shape)
