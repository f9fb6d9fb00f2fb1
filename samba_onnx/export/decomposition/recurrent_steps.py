"""Recurrent layers as cells of every step, for where their backward is differentiated once more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor, fx

__all__ = [
    "by_steps",
    "gru_by_steps",
    "has_whole_layers",
    "layers_by_steps",
    "lstm_by_steps",
    "rnn_by_steps",
]

_WHOLE: Final = frozenset({"samba::lstm_layer", "samba::gru_layer", "samba::rnn_layer"})
# A variable of the context, as torch's own code is between those who set and who ask.
_BY_STEPS: Final = ContextVar("_BY_STEPS", default=False)


@contextlib.contextmanager
def layers_by_steps() -> Iterator[None]:
    """Let recurrent layers be written step by step within the context.

    The backward of a whole layer is an operator without a gradient of its own: it can be computed, as
    a loop, but not be differentiated, as ``torch.autograd.grad(..., create_graph=True)`` wants.
    """
    token = _BY_STEPS.set(True)
    try:
        yield
    finally:
        _BY_STEPS.reset(token)


def by_steps() -> bool:
    """Return whether layers are written step by step now."""
    return _BY_STEPS.get()


def has_whole_layers(graph_module: fx.GraphModule) -> bool:
    """Return whether an exported graph, or one within it, has recurrent layers that stayed whole.

    Args:
        graph_module: A graph of operators.
    """
    parts = (part for part in graph_module.modules() if isinstance(part, fx.GraphModule))
    targets = (node.target for part in parts for node in part.graph.nodes)
    return any(isinstance(t, torch._ops.OpOverload) and t._schema.name in _WHOLE for t in targets)


def lstm_by_steps(
    value: Tensor, hidden: Tensor, cell: Tensor, *weights_and_direction: Any
) -> tuple[Tensor, Tensor]:
    """Compute ``lstm_layer`` with torch's cell; arguments and results are its own."""
    *weights, reverse = weights_and_direction
    hiddens = []
    for data in _in_order(value, reverse):
        hidden, cell = torch.lstm_cell(data, (hidden, cell), *weights)
        hiddens.append(hidden)
    return torch.stack(hiddens[::-1] if reverse else hiddens), cell


def gru_by_steps(value: Tensor, hidden: Tensor, *weights_and_direction: Any) -> Tensor:
    """Compute ``gru_layer`` with torch's cell; arguments and result are its own."""
    *weights, reverse = weights_and_direction
    return _hiddens(torch.gru_cell, value, hidden, weights, reverse)


def rnn_by_steps(value: Tensor, hidden: Tensor, *weights_and_options: Any) -> Tensor:
    """Compute ``rnn_layer`` with torch's cell; arguments and result are its own."""
    *weights, activation, reverse = weights_and_options
    cell = torch.rnn_tanh_cell if activation == "tanh" else torch.rnn_relu_cell
    return _hiddens(cell, value, hidden, weights, reverse)


def _hiddens(
    cell: Callable[..., Tensor], value: Tensor, hidden: Tensor, weights: list[Any], reverse: bool
) -> Tensor:
    hiddens = []
    for data in _in_order(value, reverse):
        hidden = cell(data, hidden, *weights)
        hiddens.append(hidden)
    return torch.stack(hiddens[::-1] if reverse else hiddens)


def _in_order(value: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    """Return the data of the steps, ``[batch, features]``, in the order in which a layer sees them."""
    steps = value.unbind()
    return steps[::-1] if reverse else steps
