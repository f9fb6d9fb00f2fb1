"""The gradients of recurrent layers against torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from samba_onnx.export.decomposition import recurrent_stacks


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"])
def test_values_and_gradients_are_torchs(
    kind: str, bidirectional: bool, batch_first: bool, bias: bool
) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "bidirectional": bidirectional,
        "batch_first": batch_first,
        "bias": bias,
        "dtype": torch.float64,
    }
    if kind.startswith("RNN"):
        options["nonlinearity"] = kind[4:].lower()
    module = getattr(nn, kind[:4].rstrip("_"))(5, 7, num_layers=2, **options)
    value = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    shape = (4 if bidirectional else 2, 4 if batch_first else 3, 7)
    states = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in "hc"]
    states = states if kind == "LSTM" else states[:1]
    hx = tuple(states) if kind == "LSTM" else states[0]
    found, last = module(value, hx)
    expected = [found, *(last if kind == "LSTM" else [last])]
    leaves = [value, *states, *module.parameters()]
    weights = [torch.randn_like(result) for result in expected]
    wanted = torch.autograd.grad(expected, leaves, weights)

    settings = (bias, 2, 0.0, True, bidirectional, batch_first)
    params = module._flat_weights
    if kind == "LSTM":
        actual = recurrent_stacks.lstm(value, states, params, *settings)
    elif kind == "GRU":
        actual = recurrent_stacks.gru(value, states[0], params, *settings)
    else:
        actual = recurrent_stacks.rnn(kind[4:].lower(), value, states[0], params, *settings)
    gradients = torch.autograd.grad(actual, leaves, weights)

    # Both sides compute in float64: only the order of sums differs.
    for one, other in zip([*actual, *gradients], [*expected, *wanted], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


def test_dropout_lies_between_layers_only() -> None:
    torch.manual_seed(0)
    module = nn.GRU(3, 4, num_layers=2, dropout=1.0)
    value, state = torch.randn(5, 2, 3), torch.zeros(2, 2, 4)
    found, _ = recurrent_stacks.gru(
        value, state, module._flat_weights, True, 2, 1.0, True, False, False
    )
    expected, _ = module(value, state)
    torch.testing.assert_close(found, expected)
