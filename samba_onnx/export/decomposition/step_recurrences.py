"""What one time step of a recurrent layer hands to the next, and nothing else.

Everything else of a recurrent layer is computed for all steps at once
(:mod:`samba_onnx.export.decomposition.recurrence`). All sequences are time first.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["cell_recurrence", "gate_recurrence", "linear_recurrence", "time_order"]


def time_order(steps: int, reverse: bool) -> range:
    """Return the steps of a layer in the order in which it computes them.

    Args:
        steps: The number of steps, which is the length of the time axis.
        reverse: Whether the layer's time runs backwards.
    """
    return range(steps - 1, -1, -1) if reverse else range(steps)


@torch.library.custom_op("samba::linear_recurrence", mutates_args=())
def linear_recurrence(decay: Tensor, increment: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    """Return ``s[t] = decay[t] * s[before] + increment[t]``.

    Args:
        decay: ``[steps, batch, size]``.
        increment: What each step adds, ``[steps, batch, size]``.
        initial: The state before the first step, ``[batch, size]``.
        reverse: Whether time runs backwards.

    Returns:
        The states, ``[steps, batch, size]``.
    """
    states, state = torch.empty_like(increment), initial
    for step in time_order(len(decay), reverse):
        state = decay[step] * state + increment[step]
        states[step] = state
    return states


@linear_recurrence.register_fake
def _(decay: Tensor, increment: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    return torch.empty_like(increment)


@torch.library.custom_op("samba::gate_recurrence", mutates_args=())
def gate_recurrence(
    gradient: Tensor, carry: Tensor, factors: Tensor, weight: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the states of a recurrent layer without memory cells.

    At each step, ``d = gradient[t] + d_next``, and what goes on to the step before is
    ``d * carry[t] + (d * factors[t]) @ weight``.

    Args:
        gradient: Gradient of each state from outside the layer, ``[steps, batch, hidden]``.
        carry: What part of a state the next one keeps, ``[steps, batch, hidden]``.
        factors: Derivatives of the gates by the state, ``[steps, gates, batch, hidden]``.
        weight: Recurrent weight, ``[gates * hidden, hidden]``.
        reverse: Whether the layer's time runs backwards; the gradients' runs against it.

    Returns:
        The total gradient of each state ``[steps, batch, hidden]``, and that of the initial state
        ``[batch, hidden]``.
    """
    totals, state = torch.empty_like(gradient), torch.zeros_like(gradient[0])
    # Gradients go from the last step to the first.
    for step in time_order(len(gradient), not reverse):
        total = gradient[step] + state
        gates = torch.cat(list(total * factors[step]), -1)
        state = total * carry[step] + gates @ weight
        totals[step] = total
    return totals, state


@gate_recurrence.register_fake
def _(
    gradient: Tensor, carry: Tensor, factors: Tensor, weight: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(gradient), torch.empty_like(gradient[0])


@torch.library.custom_op("samba::cell_recurrence", mutates_args=())
def cell_recurrence(
    gradient: Tensor,
    final: Tensor,
    exposed: Tensor,
    forget: Tensor,
    factors: Tensor,
    weight: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the gates of a layer with memory cells.

    At each step, ``h = gradient[t] + h_next`` and ``c = c_next + h * exposed[t]``; the gates get
    ``g = [c, c, c, h] * factors[t]``; ``g @ weight`` and ``c * forget[t]`` go on to the step before.

    Args:
        gradient: Gradient of each hidden state from outside the layer, ``[steps, batch,
            hidden]``.
        final: Gradient of the final cell state, ``[batch, hidden]``.
        exposed: Derivative of the hidden state by the cell state, ``[steps, batch, hidden]``.
        forget: The forget gate, ``[steps, batch, hidden]``.
        factors: Derivatives of the four gates, ``[steps, batch, 4 * hidden]``.
        weight: Recurrent weight, ``[4 * hidden, hidden]``.
        reverse: Whether the layer's time runs backwards; the gradients' runs against it.

    Returns:
        The gradients of the gates ``[steps, batch, 4 * hidden]``, of the initial hidden state and of
        the initial cell state ``[batch, hidden]``.
    """
    # A copy: an operator must not return its operand, as it would without any step.
    gates, hidden, cell = torch.empty_like(factors), torch.zeros_like(gradient[0]), final.clone()
    for step in time_order(len(gradient), not reverse):
        total = gradient[step] + hidden
        cell = cell + total * exposed[step]
        gates[step] = torch.cat([cell, cell, cell, total], -1) * factors[step]
        hidden = gates[step] @ weight
        cell = cell * forget[step]
    return gates, hidden, cell


@cell_recurrence.register_fake
def _(
    gradient: Tensor,
    final: Tensor,
    exposed: Tensor,
    forget: Tensor,
    factors: Tensor,
    weight: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(factors), torch.empty_like(final), torch.empty_like(final)
