"""Tensors without content in the place of arguments, parameters and buffers, while a module is traced."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from samba_onnx.export.capture.restoring import members_replaced
from samba_onnx.tensor.native import natively


def fake(leaf: Any, mode: FakeTensorMode) -> Any:
    """Return a tensor without content of the same size, type and strides; others as they are.

    Modules may ask whether a tensor is contiguous.

    Args:
        leaf: A leaf of nested arguments.
        mode: The mode that makes tensors without content.
    """
    if not isinstance(leaf, torch.Tensor):
        return leaf
    with natively(), mode:
        # Other layouts have no strides to keep.
        if leaf.layout is not torch.strided or leaf.is_contiguous():
            return torch.empty(tuple(leaf.shape), dtype=leaf.dtype)
        return torch.empty_strided(tuple(leaf.shape), leaf.stride(), dtype=leaf.dtype)


def fake_members(
    module: nn.Module, mode: FakeTensorMode
) -> contextlib.AbstractContextManager[None]:
    """Replace parameters and buffers by plain ones without content; what is shared stays shared.

    Args:
        module: The module that is traced within the context; afterwards it has all back.
        mode: The mode that makes tensors without content.
    """
    return members_replaced(module, lambda tensor: _twin(tensor, mode))


def _twin(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    twin: torch.Tensor = fake(tensor, mode)
    # Modules may ask which of their tensors are parameters and whether these are trained.
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(twin, requires_grad=tensor.requires_grad)
    return twin
