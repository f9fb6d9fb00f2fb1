"""Recurrent layers as a few whole operators with gradients, instead of one graph per time step.

torch decomposes ``aten.lstm`` into every operator of every step: 17,700 nodes for 256 steps. Here the
forward pass is one operator per layer and direction, which ONNX has too. The backward pass computes
the gates again, for all steps in one matrix product each, and only what one step truly hands to the
next runs step by step.

All sequences are time first: ``[steps, batch, ...]``. A layer that runs backwards in time leaves its
results at the steps that they belong to, as torch does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samba_onnx.export.decomposition.step_recurrences import (
    cell_recurrence,
    gate_recurrence,
    linear_recurrence,
    time_order,
)

__all__ = ["gru_layer", "last_state", "lstm_layer", "rnn_layer"]


def _previous(states: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    """Return the state before each step."""
    first = initial.unsqueeze(0)
    return torch.cat([states[1:], first]) if reverse else torch.cat([first, states[:-1]])


def last_state(states: Tensor, reverse: bool) -> Tensor:
    """Return the state after the last step of a direction.

    Args:
        states: ``[steps, batch, hidden]``.
        reverse: Whether time runs backwards.
    """
    return states[0] if reverse else states[-1]


def _projected(value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = value.flatten(0, -2)
    result = rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
    return result.view(*value.shape[:-1], -1)


# --- Whole layers of one direction


@torch.library.custom_op("samba::lstm_layer", mutates_args=())
def lstm_layer(
    value: Tensor,
    hidden: Tensor,
    cell: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """Run an LSTM layer in one direction.

    Args:
        value: ``[steps, batch, features]``.
        hidden: Initial hidden state, ``[batch, hidden]``.
        cell: Initial cell state, ``[batch, hidden]``.
        w_ih: Input weight, ``[4 * hidden, features]``, gates in torch's order.
        w_hh: Recurrent weight, ``[4 * hidden, hidden]``.
        b_ih: Bias, ``[4 * hidden]``.
        b_hh: Second bias, ``[4 * hidden]``.
        reverse: Whether time runs backwards.

    Returns:
        The hidden states ``[steps, batch, hidden]`` and the final cell state ``[batch, hidden]``.
    """
    inputs = _projected(value, w_ih, b_ih)
    states = torch.empty((*value.shape[:2], hidden.shape[1]), dtype=value.dtype)
    for step in time_order(len(value), reverse):
        gates = inputs[step] + _projected(hidden, w_hh, b_hh)
        i, f, g, o = gates.chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        states[step] = hidden
    # A copy: an operator must not return its operand, as it would without any step.
    return states, cell.clone()


@lstm_layer.register_fake
def _(
    value: Tensor,
    hidden: Tensor,
    cell: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    return value.new_empty((*value.shape[:2], hidden.shape[1])), torch.empty_like(cell)


@torch.library.custom_op("samba::gru_layer", mutates_args=())
def gru_layer(
    value: Tensor,
    hidden: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    reverse: bool,
) -> Tensor:
    """Run a GRU layer in one direction.

    Args:
        value: ``[steps, batch, features]``.
        hidden: Initial hidden state, ``[batch, hidden]``.
        w_ih: Input weight, ``[3 * hidden, features]``, gates in torch's order.
        w_hh: Recurrent weight, ``[3 * hidden, hidden]``.
        b_ih: Bias, ``[3 * hidden]``.
        b_hh: Second bias, ``[3 * hidden]``.
        reverse: Whether time runs backwards.

    Returns:
        The hidden states, ``[steps, batch, hidden]``.
    """
    inputs = _projected(value, w_ih, b_ih)
    states = torch.empty((*value.shape[:2], hidden.shape[1]), dtype=value.dtype)
    for step in time_order(len(value), reverse):
        r_in, z_in, n_in = inputs[step].chunk(3, -1)
        r_hid, z_hid, n_hid = _projected(hidden, w_hh, b_hh).chunk(3, -1)
        reset, update = (r_in + r_hid).sigmoid(), (z_in + z_hid).sigmoid()
        candidate = (n_in + reset * n_hid).tanh()
        hidden = (1 - update) * candidate + update * hidden
        states[step] = hidden
    return states


@gru_layer.register_fake
def _(
    value: Tensor,
    hidden: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    reverse: bool,
) -> Tensor:
    return value.new_empty((*value.shape[:2], hidden.shape[1]))


@torch.library.custom_op("samba::rnn_layer", mutates_args=())
def rnn_layer(
    value: Tensor,
    hidden: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    activation: str,
    reverse: bool,
) -> Tensor:
    """Run a simple recurrent layer in one direction.

    Args:
        value: ``[steps, batch, features]``.
        hidden: Initial hidden state, ``[batch, hidden]``.
        w_ih: Input weight, ``[hidden, features]``.
        w_hh: Recurrent weight, ``[hidden, hidden]``.
        b_ih: Bias, ``[hidden]``.
        b_hh: Second bias, ``[hidden]``.
        activation: ``tanh`` or ``relu``.
        reverse: Whether time runs backwards.

    Returns:
        The hidden states, ``[steps, batch, hidden]``.
    """
    inputs = _projected(value, w_ih, b_ih)
    states = torch.empty((*value.shape[:2], hidden.shape[1]), dtype=value.dtype)
    for step in time_order(len(value), reverse):
        hidden = inputs[step] + _projected(hidden, w_hh, b_hh)
        hidden = hidden.tanh() if activation == "tanh" else hidden.relu()
        states[step] = hidden
    return states


@rnn_layer.register_fake
def _(
    value: Tensor,
    hidden: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    activation: str,
    reverse: bool,
) -> Tensor:
    return value.new_empty((*value.shape[:2], hidden.shape[1]))


# --- Their gradients


def _keep_lstm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, reverse = inputs
    ctx.save_for_backward(*tensors, output[0])
    ctx.reverse = reverse


def _keep_layer(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    tensors = inputs[:6]
    ctx.save_for_backward(*tensors, output)
    ctx.options = inputs[6:]


def _lstm_gradient(ctx: Any, gradient: Tensor, final: Tensor) -> tuple[Tensor | None, ...]:
    value, hidden, cell, w_ih, w_hh, b_ih, b_hh, states = ctx.saved_tensors
    before = _previous(states, hidden, ctx.reverse)
    # Input and state side by side: one product, and its large result is written once.
    seen, weight = torch.cat([value, before], -1), torch.cat([w_ih, w_hh], 1)
    bias = b_ih if b_ih is None or b_hh is None else b_ih + b_hh
    i, f, g, o = _projected(seen, weight, bias).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cells = linear_recurrence(f, i * g, cell, ctx.reverse)
    shown = cells.tanh()
    earlier = _previous(cells, cell, ctx.reverse)
    factors = torch.cat(
        [g * i * (1 - i), earlier * f * (1 - f), i * (1 - g * g), shown * o * (1 - o)], -1
    )
    exposed = o * (1 - shown * shown)
    gates, d_hidden, d_cell = cell_recurrence(
        gradient=gradient,
        final=final,
        exposed=exposed,
        forget=f,
        factors=factors,
        weight=w_hh,
        reverse=ctx.reverse,
    )
    rows = gates.flatten(0, 1)
    d_w_ih, d_w_hh = (rows.t() @ seen.flatten(0, 1)).split([w_ih.shape[1], w_hh.shape[1]], 1)
    # Both biases are added to the same sum, and have one gradient.
    d_bias = rows.sum(0)
    biases = (None if b_ih is None else d_bias, None if b_hh is None else d_bias)
    return gates @ w_ih, d_hidden, d_cell, d_w_ih, d_w_hh, *biases, None


def _gru_gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    value, hidden, w_ih, w_hh, b_ih, b_hh, states = ctx.saved_tensors
    (reverse,) = ctx.options
    before = _previous(states, hidden, reverse)
    r_in, z_in, n_in = _projected(value, w_ih, b_ih).chunk(3, -1)
    r_hid, z_hid, n_hid = _projected(before, w_hh, b_hh).chunk(3, -1)
    reset, update = (r_in + r_hid).sigmoid(), (z_in + z_hid).sigmoid()
    candidate = (n_in + reset * n_hid).tanh()
    by_candidate = (1 - update) * (1 - candidate * candidate)
    by_reset = by_candidate * n_hid * reset * (1 - reset)
    by_update = (before - candidate) * update * (1 - update)
    factors = torch.stack([by_reset, by_update, by_candidate * reset], 1)
    total, d_hidden = gate_recurrence(gradient, update, factors, w_hh, reverse)
    d_reset, d_update, d_candidate = by_reset * total, by_update * total, by_candidate * total
    # The reset gate stands between the candidate and its hidden part only.
    inner = torch.cat([d_reset, d_update, d_candidate], -1)
    outer = torch.cat([d_reset, d_update, d_candidate * reset], -1)
    d_value, d_w_ih, d_b_ih = _input_gradients(value, w_ih, inner)
    d_w_hh = outer.flatten(0, 1).t() @ before.flatten(0, 1)
    d_b_hh = None if b_hh is None else outer.sum((0, 1))
    return d_value, d_hidden, d_w_ih, d_w_hh, None if b_ih is None else d_b_ih, d_b_hh, None


def _rnn_gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    value, hidden, w_ih, w_hh, b_ih, b_hh, states = ctx.saved_tensors
    activation, reverse = ctx.options
    before = _previous(states, hidden, reverse)
    # By the state itself, which is positive where what it was made of is.
    slope = 1 - states * states if activation == "tanh" else (states > 0).to(states.dtype)
    # A simple layer hands nothing past its activation.
    carry = torch.zeros_like(slope)
    total, d_hidden = gate_recurrence(gradient, carry, slope.unsqueeze(1), w_hh, reverse)
    gates = total * slope
    d_value, d_w_ih, d_bias = _input_gradients(value, w_ih, gates)
    d_w_hh = gates.flatten(0, 1).t() @ before.flatten(0, 1)
    biases = (None if b_ih is None else d_bias, None if b_hh is None else d_bias)
    return d_value, d_hidden, d_w_ih, d_w_hh, *biases, None, None


def _input_gradients(value: Tensor, w_ih: Tensor, gates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    d_weight = gates.flatten(0, 1).t() @ value.flatten(0, 1)
    return gates @ w_ih, d_weight, gates.sum((0, 1))


lstm_layer.register_autograd(_lstm_gradient, setup_context=_keep_lstm)
gru_layer.register_autograd(_gru_gradient, setup_context=_keep_layer)
rnn_layer.register_autograd(_rnn_gradient, setup_context=_keep_layer)
