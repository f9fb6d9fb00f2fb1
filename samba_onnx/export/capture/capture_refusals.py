"""Modules and inputs that cannot be captured, and what is said of them."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch._functorch import eager_transforms
from torch.ao.quantization.observer import ObserverBase
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError, UsageError
from samba_onnx.export.capture.explanations import explained, raised_at, user_place
from samba_onnx.export.capture.replacing import replaced

# Refused where they begin: further in, torch fails with words about its own functions.
_CALLS: Final = (
    (
        torch._VF,
        "_pack_padded_sequence",
        "pack_padded_sequence makes tensors whose sizes depend on values, and a compiled graph has "
        "fixed sizes: give the recurrent layer the padded tensor, and mask or select what it returns "
        "by the lengths",
    ),
    *(
        (
            eager_transforms,
            name,
            "gradients cannot be computed inside forward by torch.func: where the model is trained, "
            "compute them with torch.autograd.grad(output.sum(), input, create_graph=True) of a whole "
            "batch; otherwise return what is to be differentiated as a loss, or write its derivative "
            "with operators",
        )
        for name in ("grad_increment_nesting", "jvp_increment_nesting")
    ),
)
"""Functions of torch that whatever cannot be traced calls first, and what is said of it."""

_HOST_DEVICES: Final = frozenset({"cpu", "meta"})
"""Where tensors may be: ``meta`` is nowhere, for their sizes alone."""


@contextlib.contextmanager
def refused_calls() -> Iterator[None]:
    """Refuse calls within the context that torch fails to trace, in the words of the user's line."""
    with contextlib.ExitStack() as stack:
        for owner, name, sentence in _CALLS:
            stack.enter_context(replaced(owner, name, _refusing(sentence)))
        yield


def _refusing(sentence: str) -> Callable[..., Any]:
    def refuse(*_arguments: Any, **_keywords: Any) -> None:
        raise ModelError(f"{user_place()}: {sentence}")

    return refuse


def refuse_unless_fitting(
    module: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> None:
    """Refuse what cannot be captured, as far as that is known before it is traced.

    Args:
        module: What is to be captured.
        args: Positional arguments of ``forward``.
        keywords: Keyword arguments.

    Raises:
        UsageError: It is no module, the inputs do not fit ``forward``, or one is a dataclass.
        ModelError: It is, or has in it, a module that torch.jit made.
    """
    if not isinstance(module, nn.Module):
        raise UsageError(f"a module was expected, but {type(module).__name__} was given")
    refuse_scripted(module)
    _refuse_unseen(module)
    for leaf in pytree.tree_leaves((args, dict(keywords))):
        # A dataclass that torch's registry does not know is a leaf.
        if dataclasses.is_dataclass(leaf):
            raise UsageError(
                f"an input of {type(module).__name__} is a dataclass, {type(leaf).__name__}: give "
                "tensors, in tuples, lists and dicts"
            )
        if isinstance(leaf, np.ndarray):
            raise UsageError(
                f"an input of {type(module).__name__} is a numpy array, {leaf.dtype} of shape "
                f"{list(leaf.shape)}: give tensors, as torch.from_numpy(array) makes them"
            )
    _refuse_elsewhere(module, args, keywords)
    signature = inspect.signature(module.forward)
    # Before tracing, whose error for this would name frames of torch's.
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        arguments_text = [f"{len(args)} positional"] * bool(args) + list(map(str, keywords))
        raise UsageError(
            f"the inputs ({', '.join(arguments_text) or 'none'}) do not fit "
            f"{type(module).__name__}.forward{signature}: {error}"
        ) from error


def _refuse_elsewhere(
    module: nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> None:
    """Refuse tensors in the memory of an accelerator, out of which nothing here computes."""
    inputs = (
        (f"an input of {type(module).__name__}", leaf)
        for leaf in pytree.tree_leaves((args, dict(keywords)))
    )
    parameters = ((f"parameter {name!r}", one) for name, one in module.named_parameters())
    buffers = ((f"buffer {name!r}", one) for name, one in module.named_buffers())
    for what, tensor in itertools.chain(parameters, buffers, inputs):
        if isinstance(tensor, torch.Tensor) and tensor.device.type not in _HOST_DEVICES:
            raise UsageError(
                f"{what} is on {tensor.device}: models are compiled and compared on the host's CPU, "
                "and run on an emulator there; move them first, with model.cpu() and tensor.cpu()"
            )


def _refuse_unseen(module: nn.Module) -> None:
    """Refuse observers of ranges per channel that have no sizes before they have seen numbers."""
    for path, inner in module.named_modules():
        least = getattr(inner, "min_val", None)
        if (
            isinstance(inner, ObserverBase)
            and isinstance(least, torch.Tensor)
            and not least.numel()
        ):
            raise ModelError(
                f"{path!r} ({type(inner).__name__}) follows the ranges of channels and has not seen any numbers "
                "yet: run the module once before it is compiled"
            )


def refuse_scripted(module: nn.Module) -> None:
    """Refuse what torch.jit made: its parameters are out of reach.

    Args:
        module: What is to be captured.

    Raises:
        ModelError: The module, or one in it, is such.
    """
    for path, inner in module.named_modules():
        if not isinstance(inner, torch.jit.ScriptModule):
            continue
        made_of = inner.original_name
        raise ModelError(
            f"{f'module {path!r}' if path else 'the model'} was made by torch.jit of {made_of}, and "
            f"cannot be compiled: give the {made_of} itself"
        )


def not_captured(module: nn.Module, error: Exception) -> ModelError:
    """Return the error that says where in a module tracing failed, and why.

    Args:
        module: What was traced.
        error: What was raised meanwhile.
    """
    place = raised_at(error)
    return ModelError(
        f"{type(module).__name__} cannot be captured; {place.phrase}: {explained(error)}",
        location=place.line or None,
    )
