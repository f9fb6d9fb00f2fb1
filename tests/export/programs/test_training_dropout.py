"""Dropout in training programs: masks that follow argins, in both directions."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.export.training_models import lenet, prepared, with_labels, without_dropout
from tests.export.training_runs import compare, with_masks


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def test_dropout_follows_its_mask_in_both_directions() -> None:
    module, inputs = with_labels(lenet(), (torch.randn(6, 1, 16, 16),))
    machine = prepared(module, inputs)
    machine.set_argins("seed", 17)
    machine.run()
    assert {tuple(mask.shape) for mask in machine.masks.values()} == {(6, 4, 1, 1), (6, 10)}
    assert all(mask.any() and not mask.all() for mask in machine.masks.values())
    rates = [argin.default for argin in machine.program.argins if argin.name.endswith("rate")]
    assert rates == [0.4, 0.25]
    compare(machine, with_masks(module, machine.masks, rates), inputs)


def test_dropout_has_argins_for_rate_and_seed() -> None:
    module, inputs = with_labels(lenet(), (torch.randn(6, 1, 16, 16),))
    machine = prepared(module, inputs)
    assert [(argin.name, argin.type) for argin in machine.program.argins] == [
        ("withloss__model__3__dropout2d__rate", "tensor(float)"),
        ("withloss__model__3__dropout2d__seed", "tensor(int32)"),
        ("withloss__model__6__dropout__rate", "tensor(float)"),
        ("withloss__model__6__dropout__seed", "tensor(int32)"),
    ]
    machine.set_argins("seed", 1)
    machine.run()
    first = dict(machine.masks)
    machine.run()
    assert all(torch.equal(first[stream], mask) for stream, mask in machine.masks.items())
    machine.set_argins("seed", 2)
    machine.run()
    assert not all(torch.equal(first[stream], mask) for stream, mask in machine.masks.items())
    machine.set_argins("rate", 0.0)
    machine.run()
    compare(machine, without_dropout(module), inputs)


class Attention(nn.Module):
    """Attention, dropout and recurrence in torch's own modules."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.lstm = nn.LSTM(8, 4, num_layers=3, dropout=0.5)
        self.alpha = nn.FeatureAlphaDropout(0.2)

    def forward(self, value: Tensor, wanted: Tensor) -> Tensor:
        found, _ = self.lstm(self.alpha(self.layer(value)))
        return functional.mse_loss(found, wanted)


def test_dropout_inside_attention_and_recurrence_vanishes_at_rate_zero() -> None:
    module = Attention()
    inputs = (torch.randn(3, 5, 8), torch.randn(3, 5, 4))
    machine = prepared(module, inputs)
    names = [argin.name for argin in machine.program.argins if argin.name.endswith("__rate")]
    assert "attention__lstm__dropout__rate" in names
    assert "attention__layer__self_attn__dropout__rate" in names
    assert "attention__alpha__featurealphadropout__rate" in names
    machine.run()
    (loss,) = machine.losses
    dropped = machine[loss]
    machine.set_argins("rate", 0.0)
    machine.run()
    assert not torch.equal(dropped, machine[loss])
    plain = without_dropout(copy.deepcopy(module))
    plain.layer.self_attn.dropout = plain.lstm.dropout = 0.0
    compare(machine, plain, inputs)
