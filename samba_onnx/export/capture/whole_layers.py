"""Lets recurrent layers stay whole while a module is exported.

torch's exporter runs them on tensors without content, which takes them apart into every operator of
every time step: 256 steps take seconds, although a single operator is recorded.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor

from samba_onnx.export.capture.replacing import replaced
from samba_onnx.export.decomposition import recurrent_stacks

_LAYERS: Final[dict[str, Callable[..., tuple[Tensor, ...]]]] = {
    "lstm": recurrent_stacks.lstm,
    "gru": recurrent_stacks.gru,
    "rnn_tanh": functools.partial(recurrent_stacks.rnn, "tanh"),
    "rnn_relu": functools.partial(recurrent_stacks.rnn, "relu"),
}
"""What ``torch.nn``'s modules call, and the same made of whole layers."""


@contextlib.contextmanager
def whole_layers() -> Iterator[None]:
    """Give recurrent modules operators that torch does not take apart."""
    with contextlib.ExitStack() as stack:
        for name, layers in _LAYERS.items():
            # In torch._VF, where torch.nn's modules look for them in every call.
            original = getattr(torch._VF, name)
            stack.enter_context(replaced(torch._VF, name, _either(original, layers)))
        yield


def _either(
    original: Callable[..., Any], layers: Callable[..., tuple[Tensor, ...]]
) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        return (layers if _is_plain(arguments) else original)(*arguments)

    return run


def _is_plain(arguments: tuple[Any, ...]) -> bool:
    """Return whether a call has neither packed sequences nor projections."""
    if len(arguments) != 9 or not isinstance(arguments[2], list | tuple):
        return False
    _, _, params, has_biases, layers, _, _, bidirectional, _ = arguments
    # Projections are one weight more per layer and direction.
    each = 4 if has_biases else 2
    return bool(len(params) == layers * (2 if bidirectional else 1) * each)
