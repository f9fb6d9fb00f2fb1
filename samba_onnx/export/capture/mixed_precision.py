"""Lets a module of bfloat16 and float32 compute as in SambaFlow, while it is exported and while it is run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from samba_onnx.export.capture.precision import current_precision
from samba_onnx.functional.promotion import Promotion, mixes_types

__all__ = ["promoting"]


@contextlib.contextmanager
def promoting(module: nn.Module) -> Iterator[None]:
    """Let torch promote bfloat16 to float32 within ``forward``, where a module has both or is given both.

    Nothing is installed for a module of one type: it computes, and fails, exactly as in torch.

    Args:
        module: Gets hooks around ``forward``, outside of which nothing changes: torch's exporter calls
            functions of its own.
    """
    if not current_precision().is_own:  # a precision decides on every operand by itself
        yield
        return
    # A stack, as calls may lie in each other.
    contexts: list[contextlib.ExitStack] = []

    def enter(called: nn.Module, args: Any, keywords: Any) -> None:
        stack = contextlib.ExitStack()
        if mixes_types((args, keywords, *called.parameters(), *called.buffers())):
            stack.enter_context(_any_recurrent_input())
            stack.enter_context(Promotion())
        contexts.append(stack)

    def leave(_module: nn.Module, _args: Any, _returned: Any) -> None:
        contexts.pop().close()

    hooks = (
        module.register_forward_pre_hook(enter, with_kwargs=True),
        # Also after an error, or the mode would outlive the call.
        module.register_forward_hook(leave, always_call=True),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def _any_recurrent_input() -> Iterator[None]:
    """Let recurrent layers take float32 for weights of bfloat16, and the reverse, within the context.

    They compare the two types in Python before they call anything that can be promoted. Sizes are
    still checked. The check is replaced for the whole process, as methods are in ``samba_calls``.
    """
    original = nn.RNNBase.check_input

    def check_input(layer: nn.RNNBase, value: Tensor, sizes: Tensor | None) -> None:
        own = next(layer.parameters()).dtype
        # Only this pair is promoted; torch's own check refuses any other.
        pair = {own, value.dtype} == {torch.bfloat16, torch.float32}
        original(layer, value.to(own) if pair else value, sizes)

    nn.RNNBase.check_input = check_input  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.RNNBase.check_input = original  # type: ignore[method-assign]
