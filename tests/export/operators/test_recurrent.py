"""Recurrent layers, against torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from samba_onnx.errors import ModelError
from tests.export.operators.harness import check_operator

aten = torch.ops.aten

LAYERS = [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN]


def arguments(layer: Any, batch_first: bool, *, training: bool = False) -> tuple[Any, ...]:
    """Return operands and options of the ATen operator of a module, after random states."""
    directions = 2 if layer.bidirectional else 1
    shape = (3, 5, layer.input_size) if batch_first else (5, 3, layer.input_size)
    state = torch.randn(layer.num_layers * directions, 3, layer.hidden_size)
    states: Any = [state, torch.randn_like(state)] if isinstance(layer, torch.nn.LSTM) else state
    return (
        torch.randn(shape),
        states,
        [weight.detach() for weight in layer._flat_weights],
        layer.bias,
        layer.num_layers,
        float(layer.dropout),
        training,
        layer.bidirectional,
        batch_first,
    )


def overload(layer: Any) -> Any:
    if isinstance(layer, torch.nn.RNN):
        return getattr(aten, f"rnn_{layer.nonlinearity}").input
    return getattr(aten, type(layer).__name__.lower()).input


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_layers(
    kind: Any, layers: int, bidirectional: bool, biased: bool, batch_first: bool
) -> None:
    torch.manual_seed(0)
    layer = kind(4, 6, layers, bias=biased, bidirectional=bidirectional)
    check_operator(overload(layer), *arguments(layer, batch_first))


def test_rectified() -> None:
    torch.manual_seed(0)
    layer = torch.nn.RNN(4, 6, 2, nonlinearity="relu", bidirectional=True)
    check_operator(aten.rnn_relu.input, *arguments(layer, True))


@pytest.mark.parametrize("kind", LAYERS)
def test_training_mode_without_dropout(kind: Any) -> None:
    torch.manual_seed(0)
    layer = kind(4, 6, 2)
    check_operator(overload(layer), *arguments(layer, True, training=True))


def test_dropout_between_layers_is_refused() -> None:
    layer = torch.nn.GRU(4, 6, 2, dropout=0.5)
    with pytest.raises(ModelError, match=r"dropout of 0\.5"):
        check_operator(aten.gru.input, *arguments(layer, True, training=True))


def test_projections_are_refused() -> None:
    layer = torch.nn.LSTM(4, 6, proj_size=2)
    given = list(arguments(layer, True))
    given[1] = [torch.randn(1, 3, 2), torch.randn(1, 3, 6)]
    with pytest.raises(ModelError, match="proj_size"):
        check_operator(aten.lstm.input, *given)
