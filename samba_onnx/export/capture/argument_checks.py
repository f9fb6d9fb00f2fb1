"""Whether arguments are such as a module takes, and as can be traced."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils import _pytree as pytree

from samba_onnx.errors import UsageError

__all__ = ["check_arguments"]


def check_arguments(module: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
    """Refuse what cannot be given to a module, or cannot be traced as an input.

    Args:
        module: What they are arguments of.
        args: Positional arguments of ``forward``.
        keywords: Keyword arguments.

    Raises:
        UsageError: They do not fit ``forward``, one is a dataclass, or ``module`` is no module.
    """
    if not isinstance(module, nn.Module):
        raise UsageError(f"a module was expected, but {type(module).__name__} was given")
    for leaf in pytree.tree_leaves((args, dict(keywords))):
        if dataclasses.is_dataclass(leaf):
            raise UsageError(
                f"an input of {type(module).__name__} is a dataclass, {type(leaf).__name__}: give "
                "tensors, in tuples, lists and dicts"
            )
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        arguments_text = [f"{len(args)} positional"] * bool(args) + list(map(str, keywords))
        raise UsageError(
            f"the inputs ({', '.join(arguments_text) or 'none'}) do not fit "
            f"{type(module).__name__}.forward{signature}: {error}"
        ) from error
