"""Operators that SambaFlow defines more widely than torch, or that torch has not."""

from __future__ import annotations

import torch

from samba_onnx.errors import UsageError
from samba_onnx.functional.overriding import overridable


@overridable
def addmm(
    input: torch.Tensor,
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: torch.Tensor | None = None,
    is_transposed: bool = False,
) -> torch.Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``.

    Args:
        input: The summand, broadcastable to the result, such as a bias of shape ``(n,)``.
        mat1: The left factor, of shape ``(..., m, k)``: torch allows two dimensions only, SambaFlow
            more.
        mat2: The right factor, of shape ``(k, n)``, or ``(n, k)`` when it is transposed, and of the
            dtype of ``mat1``.
        beta: Factor of ``input``; 0 ignores its content, also NaN.
        alpha: Factor of the product.
        out: A tensor that is resized to the result and filled with it; on the host only.
        is_transposed: Whether ``mat2`` is stored as ``(n, k)``, like the weight of
            ``torch.nn.Linear``.

    Returns:
        A tensor of shape ``(..., m, n)``, of the dtype that torch gives it.

    Raises:
        RuntimeError: Shapes or dtypes do not fit; the text is torch's.
    """
    factor = mat2.transpose(-2, -1) if is_transposed else mat2
    if mat1.ndim <= 2:
        return torch.addmm(input, mat1, factor, beta=beta, alpha=alpha, out=out)
    # All rows in one product, as the right factor is the same for all of them.
    rows = mat1.reshape(-1, mat1.shape[-1])
    shape = (*mat1.shape[:-1], factor.shape[-1])
    # A bias broadcasts to rows; a summand of more dimensions has those of the result, and would not.
    if input.ndim <= 1:
        result = torch.addmm(input, rows, factor, beta=beta, alpha=alpha).reshape(shape)
    else:
        product = alpha * torch.mm(rows, factor).reshape(shape)
        # Left out and not multiplied by 0, which would keep NaN.
        result = product if beta == 0 else beta * input + product
    return result if out is None else out.resize_(result.shape).copy_(result)


@overridable
def triu_fill(input: torch.Tensor, value: float) -> torch.Tensor:
    """Fill the part above the main diagonal of the last two dimensions.

    Args:
        input: A tensor of shape ``(..., n, n)``.
        value: The number to fill with, such as a mask's lowest value.

    Returns:
        A new tensor of the same shape and dtype.

    Raises:
        UsageError: The last two dimensions are not of one size.
    """
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise UsageError(
            f"triu_fill was given shape {tuple(input.shape)}; the last two dimensions must be equal"
        )
    above = torch.ones(input.shape[-2:], dtype=torch.bool, device=input.device).triu(1)
    return input.masked_fill(above, value)
