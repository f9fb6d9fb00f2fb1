"""Hooks that a program has registered on a tensor's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from samba_onnx.tensor.native import natively


def gradient_hooks(tensor: Tensor) -> list[Callable[..., Any]]:
    """Return what ``register_hook`` has registered on a tensor, in order.

    Args:
        tensor: A parameter, of torch or a SambaParameter.
    """
    with natively():
        return list((tensor._backward_hooks or {}).values())


def accumulation_hooks(tensor: Tensor) -> list[Callable[..., Any]]:
    """Return what ``register_post_accumulate_grad_hook`` has registered on a tensor, in order.

    Args:
        tensor: A parameter, of torch or a SambaParameter.
    """
    with natively():
        return list((_after(tensor) or {}).values())


def share_hooks(source: Tensor, target: Tensor) -> None:
    """Give a tensor the hooks of another one; what is removed from one is removed from both.

    Args:
        source: A leaf.
        target: A leaf without hooks that takes its place.
    """
    with natively():
        if source._backward_hooks:
            target._backward_hooks = source._backward_hooks
        if _after(source):
            target._post_accumulate_grad_hooks = _after(source)


def _after(tensor: Tensor) -> Any:
    return tensor._post_accumulate_grad_hooks
