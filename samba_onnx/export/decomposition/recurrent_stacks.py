"""ATen's recurrent operators, written with whole layers of one direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from samba_onnx.export.decomposition.recurrence import gru_layer, last_state, lstm_layer, rnn_layer
from samba_onnx.export.decomposition.recurrent_steps import (
    by_steps,
    gru_by_steps,
    lstm_by_steps,
    rnn_by_steps,
)

__all__ = ["gru", "lstm", "rnn"]

_Layer = Callable[
    [Tensor, list[Tensor], Sequence[Tensor | None], bool], tuple[Tensor, list[Tensor]]
]


def lstm(
    value: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``aten.lstm.input``; the arguments are its own, without projections.

    Returns:
        The hidden states of the last layer, and the final hidden and cell states of all layers.
    """

    def layer(
        data: Tensor, states: list[Tensor], weights: Sequence[Any], reverse: bool
    ) -> tuple[Tensor, list[Tensor]]:
        run = lstm_by_steps if by_steps() else lstm_layer
        hiddens, cell = run(data, *states, *weights, reverse)
        return hiddens, [last_state(hiddens, reverse), cell]

    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    hiddens, (hidden, cell) = _stack(layer, value, list(hx), params, *options)
    return hiddens, hidden, cell


def gru(
    value: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """Compute ``aten.gru.input``; the arguments are its own.

    Returns:
        The hidden states of the last layer, and the final hidden states of all layers.
    """

    def layer(
        data: Tensor, states: list[Tensor], weights: Sequence[Any], reverse: bool
    ) -> tuple[Tensor, list[Tensor]]:
        run = gru_by_steps if by_steps() else gru_layer
        hiddens = run(data, *states, *weights, reverse)
        return hiddens, [last_state(hiddens, reverse)]

    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    hiddens, (hidden,) = _stack(layer, value, [hx], params, *options)
    return hiddens, hidden


def rnn(
    activation: str,
    value: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """Compute ``aten.rnn_tanh.input`` or ``aten.rnn_relu.input``; the arguments are their own.

    Returns:
        The hidden states of the last layer, and the final hidden states of all layers.
    """

    def layer(
        data: Tensor, states: list[Tensor], weights: Sequence[Any], reverse: bool
    ) -> tuple[Tensor, list[Tensor]]:
        run = rnn_by_steps if by_steps() else rnn_layer
        hiddens = run(data, *states, *weights, activation, reverse)
        return hiddens, [last_state(hiddens, reverse)]

    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    hiddens, (hidden,) = _stack(layer, value, [hx], params, *options)
    return hiddens, hidden


def _stack(
    layer: _Layer,
    value: Tensor,
    initial: list[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Run layers on top of each other; states are ``[layers * directions, batch, hidden]``."""
    width = 4 if has_biases else 2
    directions = 2 if bidirectional else 1
    data = value.transpose(0, 1) if batch_first else value
    finals: list[list[Tensor]] = [[] for _ in initial]
    for number in range(num_layers):
        # torch drops between layers, and not before the first or behind the last.
        if number and dropout and train:
            data = torch.nn.functional.dropout(data, dropout, train)
        outputs = []
        for direction in range(directions):
            place = number * directions + direction
            weights: list[Any] = [*params[place * width : (place + 1) * width]]
            weights += [None] * (4 - width)
            states = [state[place] for state in initial]
            result, last = layer(data, states, weights, direction == 1)
            outputs.append(result)
            for layer_states, state in zip(finals, last, strict=True):
                layer_states.append(state)
        data = outputs[0] if directions == 1 else torch.cat(outputs, -1)
    output = data.transpose(0, 1) if batch_first else data
    return output, [torch.stack(layer_states) for layer_states in finals]
