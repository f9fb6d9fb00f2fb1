"""Hooks that a program has registered on a tensor's gradient."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from samba_onnx.tensor.native import natively

_SOURCES: Final = WeakIdKeyDictionary()
"""Weak references to the leaves whose place tensors have taken, by these tensors."""


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


def accumulator_hooks(tensor: Tensor) -> list[Callable[..., Any]]:
    """Return the hooks on the step of autograd that accumulates a tensor's gradient.

    Args:
        tensor: A parameter, of torch or a SambaParameter.

    Returns:
        Those before the step, then those after it, also of the leaf whose place the tensor has taken.
        The step lasts as long as somebody has it, and so do its hooks.
    """
    source = _SOURCES.get(tensor)  # type: ignore[no-untyped-call]
    leaf = None if source is None else source()
    hooks = [] if leaf is None else accumulator_hooks(leaf)
    with natively(), torch.enable_grad():
        if not (tensor.requires_grad and tensor.is_leaf):
            return hooks
        # Torch shows the step that accumulates a leaf's gradient only from behind: as what comes
        # next after an operator that reads the leaf.
        step: Any = tensor.view_as(tensor).grad_fn
        accumulator = step.next_functions[0][0]
        return hooks + [
            hook
            for register in (accumulator.register_prehook, accumulator.register_hook)
            for hook in _beside(register)
        ]


def _beside(register: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Return what is registered already. Torch lists it nowhere but where it puts another hook."""
    handle = register(lambda *gradients: None)
    hooks = dict(handle.hooks_dict_ref())
    handle.remove()
    return [hook for number, hook in hooks.items() if number != handle.id]


def share_hooks(source: Tensor, target: Tensor) -> None:
    """Give a tensor the hooks of another one; what is removed from one is removed from both.

    Args:
        source: A leaf.
        target: A leaf without hooks that takes its place.
    """
    _SOURCES[target] = weakref.ref(source)
    with natively():
        # The very dictionaries: a handle takes a hook out of the one that it was put into.
        if source._backward_hooks:
            target._backward_hooks = source._backward_hooks
        if _after(source):
            target._post_accumulate_grad_hooks = _after(source)


def _after(tensor: Tensor) -> Any:
    return tensor._post_accumulate_grad_hooks
