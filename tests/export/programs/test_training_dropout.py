"""Dropout in training programs: masks that follow argins, in both directions."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.export.differentiation import partitioning
from samba_onnx.export.programs.training import export_training
from tests.export.training_models import lenet, prepared, with_labels, without_dropout
from tests.export.training_runs import Machine, compare, with_masks


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("large", [partitioning.LARGE_MASK, 1])
def test_dropout_follows_its_mask_in_both_directions(
    large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the backward reads the mask or draws it again."""
    monkeypatch.setattr(partitioning, "LARGE_MASK", large)
    module, inputs = with_labels(lenet(), (torch.randn(6, 1, 16, 16),))
    machine = prepared(module, inputs)
    machine.set_argins("seed", 17)
    machine.run()
    drawn = [
        part.type
        for part in machine.program.parts
        for node in part.model.graph
        if node.op_type == "DropoutMask"
    ]
    assert len(set(drawn)) == (1 if large > 1 else 2)
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
    compare(machine, _at_rate(copy.deepcopy(module), 0.0), inputs)


def test_rates_of_one_leave_zeros_and_zero_gradients() -> None:
    module = Attention()
    inputs = (torch.randn(3, 5, 8), torch.randn(3, 5, 4))
    machine = prepared(module, inputs)
    machine.set_argins("rate", 1.0)
    machine.run()
    compare(machine, _at_rate(copy.deepcopy(module), 1.0), inputs)


def _at_rate(module: Attention, rate: float) -> Attention:
    """Set the rates of all dropouts of a module."""
    for inner in module.modules():
        if isinstance(inner, nn.modules.dropout._DropoutNd):
            inner.p = rate
    module.layer.self_attn.dropout = module.lstm.dropout = rate
    return module


@pytest.mark.parametrize("dropped", [nn.Dropout, nn.AlphaDropout])
def test_what_is_not_finite_is_multiplied_as_in_torch(dropped: type[nn.Module]) -> None:
    module = nn.Sequential(dropped(0.5)).train()
    x = torch.full((40,), torch.inf, requires_grad=True)
    machine = Machine(export_training(module, (x,), input_gradients=["input"]))
    machine.load(module)
    machine.give((x,))
    machine.run()
    (mask,) = machine.masks.values()
    (name,) = machine.program.outputs
    assert torch.equal(machine[name].isnan(), ~mask)
    assert machine[name][mask].isposinf().all()
