"""What modules return: tensors in containers that torch knows, and in dataclasses, which it does not."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError

__all__ = ["plain_outputs", "with_plain_outputs"]

_KEPT: Final = (bool, float, int, str, torch.Tensor, torch.SymBool, torch.SymFloat, torch.SymInt)
_DROPPED: Final = (bytes, complex, enum.Enum, torch.device, torch.dtype)
"""Values without tensors inside, which a graph has no form for."""


def plain_outputs(module: nn.Module, returned: Any) -> Any:
    """Return what a module returned in containers that torch takes apart.

    Args:
        module: For the error.
        returned: Tensors, numbers and texts in tuples, lists, mappings, named tuples, dataclasses and
            classes that torch's registry of containers has.

    Returns:
        The same with a dict of its fields, in their order, for every dataclass.

    Raises:
        ModelError: There is an object of another class, which may have tensors inside.
    """
    return pytree.tree_map(lambda leaf: _plain(module, leaf), returned)


def _plain(module: nn.Module, leaf: Any) -> Any:
    if leaf is None or isinstance(leaf, _KEPT):
        return leaf
    if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
        fields = {field.name: getattr(leaf, field.name) for field in dataclasses.fields(leaf)}
        return plain_outputs(module, fields)
    if isinstance(leaf, torch.Size):
        return tuple(leaf)
    if isinstance(leaf, _DROPPED):
        return None
    raise ModelError(
        f"{type(module).__name__} returns an object of class {type(leaf).__name__}: return tensors, "
        "in tuples, lists, dicts, named tuples or dataclasses"
    )


@contextlib.contextmanager
def with_plain_outputs(module: nn.Module) -> Iterator[None]:
    """Let a module return what :func:`plain_outputs` makes of its outputs, within a context.

    Args:
        module: Gets a forward hook, behind those that it has, for as long as the context is open.
    """
    handle = module.register_forward_hook(lambda own, _, returned: plain_outputs(own, returned))
    try:
        yield
    finally:
        handle.remove()
