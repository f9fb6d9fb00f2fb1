"""Tensors that are made from numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import Operand, Scalar
from samba_onnx.export.translation.element_types import torch_type


def _filled(context: Context, content: Scalar) -> ir.Value:
    return context.build.full(context.result.shape, content, context.result.dtype)


@translates(
    "zeros", "zeros_like", "new_zeros", "zero",
    "empty", "empty_like", "empty_permuted", "empty_strided",
    "new_empty", "new_empty_strided", "_efficientzerotensor", "prims::empty_strided",
)  # fmt: skip
def zeros(context: Context, *_: object) -> ir.Value:
    """Write zeros: also where torch leaves the content open."""
    return _filled(context, 0)


@translates("ones", "ones_like", "new_ones")
def ones(context: Context, *_: object) -> ir.Value:
    """Write ones."""
    return _filled(context, 1)


@translates("full", "full_like", "fill")
def full(context: Context, _shape: object, content: Operand, *_: object) -> ir.Value:
    """Write one number in a shape."""
    if isinstance(content, ir.Value):
        scalar = context.build.cast(content, context.result.dtype)
        return context.build.expand(context.build.reshape(scalar, []), context.result.shape)
    return _filled(context, content)


@translates("new_full")
def new_full(
    context: Context, _like: object, _shape: object, content: Scalar, *_: object
) -> ir.Value:
    """Write one number in a shape."""
    return _filled(context, content)


@translates("scalar_tensor")
def scalar_tensor(context: Context, content: Scalar, *_: object) -> ir.Value:
    """Write a number."""
    return _filled(context, content)


def _constant(context: Context, tensor: torch.Tensor) -> ir.Value:
    """Return a tensor that torch made from numbers alone as a constant."""
    dtype = context.result.dtype
    if tensor.dtype == torch.bfloat16:
        return context.build.constant(tensor.float().numpy(), dtype)
    return context.build.constant(tensor.to(torch_type(dtype)).numpy(), dtype)


@translates("arange")
def arange(context: Context, end: Scalar, *_: object) -> ir.Value:
    """Write numbers from zero."""
    return _constant(context, torch.arange(end, dtype=torch_type(context.result.dtype)))


@translates("arange.start")
def arange_from(context: Context, start: Scalar, end: Scalar, *_: object) -> ir.Value:
    """Write numbers from a first one."""
    return _constant(context, torch.arange(start, end, dtype=torch_type(context.result.dtype)))


@translates("arange.start_step")
def arange_by(
    context: Context, start: Scalar, end: Scalar, step: Scalar = 1, *_: object
) -> ir.Value:
    """Write numbers at a distance."""
    dtype = torch_type(context.result.dtype)
    return _constant(context, torch.arange(start, end, step, dtype=dtype))


@translates("linspace.default")
def linspace(context: Context, start: Scalar, end: Scalar, steps: int, *_: object) -> ir.Value:
    """Write numbers at equal distances."""
    dtype = torch_type(context.result.dtype)
    return _constant(context, torch.linspace(start, end, steps, dtype=dtype))


@translates("logspace.default")
def logspace(
    context: Context, start: Scalar, end: Scalar, steps: int, base: float = 10.0, *_: object
) -> ir.Value:
    """Write numbers at equal ratios."""
    dtype = torch_type(context.result.dtype)
    return _constant(context, torch.logspace(start, end, steps, base, dtype=dtype))


@translates("eye")
def eye(context: Context, *_: object) -> ir.Value:
    """Write ones on the diagonal."""
    rows, columns = context.result.shape
    return context.build.constant(np.eye(rows, columns), context.result.dtype)


@translates("tril_indices")
def tril_indices(context: Context, rows: int, columns: int, offset: int = 0, *_: Any) -> ir.Value:
    """Write where the elements below a diagonal are."""
    return _constant(context, torch.tril_indices(rows, columns, offset))


@translates("triu_indices")
def triu_indices(context: Context, rows: int, columns: int, offset: int = 0, *_: Any) -> ir.Value:
    """Write where the elements above a diagonal are."""
    return _constant(context, torch.triu_indices(rows, columns, offset))


_WINDOWS = (
    ("hann_window", torch.hann_window),
    ("hamming_window", torch.hamming_window),
    ("blackman_window", torch.blackman_window),
    ("bartlett_window", torch.bartlett_window),
)


def _window(function: Any) -> Any:
    def window(context: Context, length: int, *options: Any) -> ir.Value:
        periodic = options[0] if options and isinstance(options[0], bool) else True
        dtype = torch_type(context.result.dtype)
        return _constant(context, function(length, periodic, dtype=dtype))

    return window


for _name, _torch_function in _WINDOWS:
    translates(f"{_name}", f"{_name}.periodic")(_window(_torch_function))
