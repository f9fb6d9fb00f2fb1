"""Marks on what loss functions and loss modules return, made while a module is captured.

Only here is it known that a value is a loss: the graph has the operators that a loss consists of,
and a name of torch's for few of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode

__all__ = ["LOSS_FUNCTIONS", "loss_marks", "loss_source"]

_MARK: Final = "samba_loss"
"""Key of a node's metadata: the name of the loss function or class that returned its value."""

# The one loss of torch's whose name does not say that it is one.
_OTHER_NAMES: Final = frozenset({"kl_div"})


def _is_loss_name(name: str) -> bool:
    return name.endswith("_loss") or "cross_entropy" in name or name in _OTHER_NAMES


LOSS_FUNCTIONS: Final = frozenset(
    function
    # torch has some of them by the same name, which functional's call, and programs do, too.
    for namespace in (functional, torch)
    for name, function in vars(namespace).items()
    if _is_loss_name(name) and not name.startswith("_") and callable(function)
)
"""The losses among torch's functions, those of a newer torch included."""

_CLASS_ENDINGS: Final = ("Loss", "Criterion", "CrossEntropy")
"""Modules that are not derived from torch's losses are losses if their class is called so."""


def loss_source(node: fx.Node) -> str:
    """Return what loss returned a node's value; empty if none did.

    Args:
        node: A node of a graph that was exported within ``loss_marks``.
    """
    return str(node.meta.get(_MARK, ""))


@contextlib.contextmanager
def loss_marks() -> Iterator[None]:
    """Mark the nodes whose values losses return, as far as a graph is traced within the context.

    What a loss is given, and what it computes on the way, is not marked.
    """
    hook = register_module_forward_hook(_mark_result)
    try:
        with _Marking():
            yield
    finally:
        hook.remove()


class _Marking(TorchFunctionMode):
    """Sees every call of a function of torch, but for those that the function makes itself."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in LOSS_FUNCTIONS:
            _mark(result, func.__name__)
        return result


def _mark_result(module: nn.Module, _inputs: Any, result: Any) -> None:
    """Mark what a module returns if the module is a loss; of several values, any could be it."""
    name = type(module).__name__
    if isinstance(module, nn.modules.loss._Loss) or name.endswith(_CLASS_ENDINGS):
        _mark(result, name)


def _mark(result: Any, name: str) -> None:
    mode = get_proxy_mode()
    if mode is None or not isinstance(result, Tensor):
        return
    slot = get_proxy_slot(result, mode.tracer, None)
    # A tensor that is a constant of the trace has no node yet.
    if slot is not None:
        slot.proxy.node.meta[_MARK] = name
