"""Tensors without content in the place of arguments, parameters and buffers, while a module is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from samba_onnx.tensor.native import natively


def fake(leaf: Any, mode: FakeTensorMode) -> Any:
    """Return a tensor without content of the same size and type; anything else as it is.

    Args:
        leaf: A leaf of nested arguments.
        mode: The mode that makes tensors without content.
    """
    if not isinstance(leaf, torch.Tensor):
        return leaf
    with natively(), mode:
        return torch.empty(tuple(leaf.shape), dtype=leaf.dtype)


@contextlib.contextmanager
def fake_members(module: nn.Module, mode: FakeTensorMode) -> Iterator[None]:
    """Replace parameters and buffers by plain ones without content; what is shared stays shared.

    Args:
        module: The module that is traced within the context; afterwards it has its own again.
        mode: The mode that makes tensors without content.
    """
    twins: dict[int, Any] = {}
    with _replaced_members(module, lambda tensor: _twin(tensor, mode, twins)):
        yield


def _twin(tensor: torch.Tensor, mode: FakeTensorMode, twins: dict[int, Any]) -> torch.Tensor:
    if id(tensor) not in twins:
        twin = fake(tensor, mode)
        if isinstance(tensor, nn.Parameter):
            twin = nn.Parameter(twin, requires_grad=tensor.requires_grad)
        twins[id(tensor)] = twin
    counterpart: torch.Tensor = twins[id(tensor)]
    return counterpart


@contextlib.contextmanager
def _replaced_members(
    module: nn.Module, replacement: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Exchange all parameters and buffers of a module within a context.

    Args:
        module: Afterwards it has its own again.
        replacement: Returns what is to be in the place of a parameter or buffer.
    """
    own: list[tuple[nn.Module, str, torch.Tensor]] = []
    for inner in module.modules():
        for members in (inner._parameters, inner._buffers):
            own += [(inner, key, t) for key, t in members.items() if t is not None]
    try:
        for inner, key, tensor in own:
            setattr(inner, key, replacement(tensor))
        yield
    finally:
        for inner, key, tensor in own:
            setattr(inner, key, tensor)
