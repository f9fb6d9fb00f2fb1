"""Recurrent layers in ONNX against the same operators in torch."""

from __future__ import annotations

import pytest
import torch

import samba_onnx.export.decomposition.recurrence  # noqa: F401  defines the operators
from tests.export.operators.harness import check_operator

STEPS, BATCH, FEATURES, HIDDEN = 6, 3, 5, 4
OPERATORS = torch.ops.samba


def bias(gates: int, present: bool) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    if not present:
        return None, None
    return torch.randn(gates * HIDDEN), torch.randn(gates * HIDDEN)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_layers(reverse: bool, biased: bool) -> None:
    torch.manual_seed(0)
    value, state = torch.randn(STEPS, BATCH, FEATURES), torch.randn(BATCH, HIDDEN)

    def weights(gates: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(gates * HIDDEN, FEATURES), torch.randn(gates * HIDDEN, HIDDEN)

    cell = torch.randn(BATCH, HIDDEN)
    check_operator(
        OPERATORS.lstm_layer.default, value, state, cell, *weights(4), *bias(4, biased), reverse
    )
    check_operator(
        OPERATORS.gru_layer.default, value, state, *weights(3), *bias(3, biased), reverse
    )
    for activation in ("tanh", "relu"):
        arguments = (*weights(1), *bias(1, biased), activation, reverse)
        check_operator(OPERATORS.rnn_layer.default, value, state, *arguments)


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrences(reverse: bool) -> None:
    torch.manual_seed(0)
    sequence = [torch.randn(STEPS, BATCH, HIDDEN) for _ in range(3)]
    state = torch.randn(BATCH, HIDDEN)
    check_operator(OPERATORS.linear_recurrence.default, *sequence[:2], state, reverse)
    factors, weight = torch.randn(STEPS, 3, BATCH, HIDDEN), torch.randn(3 * HIDDEN, HIDDEN)
    check_operator(OPERATORS.gate_recurrence.default, *sequence[:2], factors, weight, reverse)
    factors, weight = torch.randn(STEPS, BATCH, 4 * HIDDEN), torch.randn(4 * HIDDEN, HIDDEN)
    check_operator(
        OPERATORS.cell_recurrence.default,
        sequence[0],
        state,
        *sequence[1:],
        factors,
        weight,
        reverse,
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [31, 32, 36, 37, 256])
def test_a_recurrence_of_many_steps(steps: int, reverse: bool) -> None:
    torch.manual_seed(0)
    decay, increment = torch.rand(steps, BATCH, HIDDEN), torch.randn(steps, BATCH, HIDDEN)
    # One that lasts over all steps, one that nothing is left of.
    decay[..., 0], decay[..., 1] = 1, 0
    state = torch.randn(BATCH, HIDDEN)
    check_operator(OPERATORS.linear_recurrence.default, decay, increment, state, reverse)
