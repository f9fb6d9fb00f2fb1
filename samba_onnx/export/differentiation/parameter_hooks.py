"""Hooks on the gradients of parameters, applied where a graph is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from samba_onnx.errors import GradientError, SambaError
from samba_onnx.export.capture.explanations import explained
from samba_onnx.export.capture.gradient_rules import Known, checked_hook, code_place
from samba_onnx.tensor.gradient_hooks import accumulation_hooks, accumulator_hooks, gradient_hooks


def refuse_accumulator_hooks(parameter: Tensor) -> None:
    """Refuse hooks on the step of autograd that accumulates a parameter's gradient.

    Args:
        parameter: The user's.

    Raises:
        GradientError: There is one; the message names its line.
    """
    for hook in accumulator_hooks(parameter):
        raise GradientError(
            f"the hook {code_place(hook)} is registered on the step that accumulates a parameter's "
            "gradient, which the device does not run: register it on the parameter, with "
            "register_hook or register_post_accumulate_grad_hook"
        )


def register_hooks(parameter: Tensor, leaf: Tensor, known: Known) -> None:
    """Register the hooks of a parameter on the tensor that is differentiated by in its place.

    Args:
        parameter: The user's.
        leaf: A leaf that requires a gradient.
        known: What the hooks find in the place of the user's own tensors.

    Raises:
        GradientError: A hook cannot be compiled; the message names its line.
    """
    for hook in gradient_hooks(parameter):
        leaf.register_hook(known.within(checked_hook(hook)))  # type: ignore[no-untyped-call]


def after_accumulation(parameter: Tensor, leaf: Tensor, gradient: Tensor, known: Known) -> Tensor:
    """Return what the hooks that run after accumulation make of a gradient.

    Args:
        parameter: The user's, which has the hooks.
        leaf: What is differentiated by in its place; the hooks are given it.
        gradient: The gradient, of the shape of ``leaf``, with that of earlier passes in it.
        known: What the hooks find in the place of the user's own tensors.

    Raises:
        GradientError: A hook changes something else than the gradient, or only looks at it.
    """
    for hook in accumulation_hooks(parameter):
        gradient = _after(hook, leaf, gradient, known)
    return gradient


def _after(hook: Callable[..., Any], leaf: Tensor, gradient: Tensor, known: Known) -> Tensor:
    start = f"the hook {code_place(hook)}, which runs after accumulation,"
    version = gradient._version
    # Where such hooks look for the gradient, and leave another one.
    leaf.grad = gradient
    try:
        known.within(hook)(leaf)
    except SambaError:
        raise
    except Exception as error:  # whatever the user's hook raises
        raise GradientError(f"{start} cannot be compiled: {explained(error)}") from error
    # Nothing is left on the leaf: the next hook is given what this one made.
    result, leaf.grad = leaf.grad, None
    if result is None:
        raise GradientError(
            f"{start} takes the gradient away: give the session an optimizer of samba.optim instead, "
            "whose steps are compiled"
        )
    if result is gradient and gradient._version == version:
        raise GradientError(
            f"{start} changes no gradient: it would run once, while the model is compiled, and never "
            "on the device; remove it and read gradients from the session"
        )
    return result
