"""An operator with kernels of its own, and what samba-onnx needs to know of it.

Everything up to the line is what torch wants of any operator: kernels, shapes and a gradient. Below it,
each of the two operators gets a translation, once as nodes of ONNX and once as other operators of torch.
Programs import this file; for the command line it goes with ``--translations``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from samba_onnx import translations


@torch.library.custom_op("example::rms_norm", mutates_args=())
def rms_norm(rows: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Divide rows (..., n) by the root of their mean square, and multiply them by weights (n,).

    Returns:
        The normalised rows, and what each was multiplied by, (..., 1).
    """
    numbers = rows.detach().numpy()  # Nothing can trace it, as a kernel in C++ or CUDA.
    scale = 1 / np.sqrt(np.square(numbers).mean(-1, keepdims=True) + np.float32(eps))
    return torch.from_numpy(numbers * scale * weight.detach().numpy()), torch.from_numpy(scale)


@rms_norm.register_fake
def _(rows: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(rows), rows.new_empty((*rows.shape[:-1], 1))


@torch.library.custom_op("example::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    gradient: Tensor, rows: Tensor, weight: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the rows and of the weights."""
    given, numbers, factor = gradient.numpy(), rows.numpy(), scale.numpy()
    along = given * weight.numpy()
    projected = (along * numbers).mean(-1, keepdims=True) * factor**2
    towards = (along - numbers * projected) * factor
    of_weight = (given * numbers * factor).reshape(-1, len(weight)).sum(0)
    return torch.from_numpy(towards), torch.from_numpy(of_weight)


@rms_norm_backward.register_fake
def _(gradient: Tensor, rows: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(rows), torch.empty_like(weight)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:2], output[1])


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
    rows, weight, scale = ctx.saved_tensors
    of_rows, of_weight = rms_norm_backward(gradient.contiguous(), rows, weight, scale)
    return of_rows, of_weight, None


rms_norm.register_autograd(_differentiate, setup_context=_save)

# ------------------------------------------------------------------------------------------------


@translations.translates(rms_norm)
def write_rms_norm(
    context: translations.TranslationContext, rows: ir.Value, weight: ir.Value, eps: float
) -> list[ir.Value]:
    """Write it in ONNX, node by node."""
    squares = context.op("ReduceMean", context.op("Mul", rows, rows), [-1], keepdims=1)
    scale = context.op("Reciprocal", context.op("Sqrt", context.op("Add", squares, eps)))
    return [context.op("Mul", context.op("Mul", rows, scale), weight), scale]


@translations.decomposes(rms_norm_backward)
def compute_rms_norm_backward(
    gradient: Tensor, rows: Tensor, weight: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute it with operators that samba-onnx knows."""
    along = gradient * weight
    projected = (along * rows).mean(-1, keepdim=True) * scale.square()
    of_weight = (gradient * rows * scale).reshape(-1, weight.shape[0]).sum(0)
    return (along - rows * projected) * scale, of_weight
