"""Broken translations, for tests that must see them noticed, and the models that they are in."""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import Any, Final

import onnx_ir as ir
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.export.operators.registry import Context
from samba_onnx.export.programs.update_rules import Update, adam_update


class Net(nn.Module):
    """A layer behind a silu, and its loss."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.rate = rate

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        dropped = nn.functional.dropout(self.layer(x), self.rate, self.training)
        out = nn.functional.silu(dropped)
        return nn.functional.cross_entropy(out, target), out


_SOURCE, _FIRST = inspect.getsourcelines(Net.forward)
LINE: Final = rf"planted\.py:{_FIRST + next(i for i, line in enumerate(_SOURCE) if 'silu' in line)}"
"""Of the silu."""


def net(rate: float = 0.0) -> Net:
    torch.manual_seed(3)
    return Net(rate)


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    return torch.randn(2, 4), torch.tensor([0, 2])


def unknown_attribute(context: Context, *operands: Any) -> ir.Value:
    """Write a Gelu with an attribute that it does not have."""
    return _emit(context, operands[0], "Gelu", steepness=2.0)


def absent_operator(context: Context, *operands: Any) -> ir.Value:
    """Write an operator that no operator set has."""
    return _emit(context, operands[0], "Swirl")


def wrong_number(context: Context, *operands: Any) -> ir.Value:
    """Write another function than the one that was asked for."""
    return context.build.unary("Tanh", operands[0])


REFUSED: Final = MappingProxyType({"Gelu": unknown_attribute, "Swirl": absent_operator})
"""Translations that no engine takes, by the operator that they write."""


def factory() -> Any:
    return net(), batch()


def training_factory() -> Any:
    model = net()
    samba.from_torch_model_(model)
    return model, batch(), samba.optim.AdamW(model.parameters(), lr=0.1)


def dropping_factory() -> Any:
    model = net(0.5).train()
    samba.from_torch_model_(model)
    return model, batch(), samba.optim.AdamW(model.parameters(), lr=0.1)


def clumsy_batch() -> tuple[Tensor, Tensor]:
    """Return inputs that torch itself refuses, but for their shapes: there is no class 7."""
    return batch()[0], torch.tensor([0, 7])


class Hopeless(Net):
    """Reads a row that its table does not have, whatever it is given; tracing does not notice."""

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        # An index that no graph shows: a constant one is refused by its node.
        index = (x[:2, 0] * 0).long() + 99
        row = nn.functional.embedding(index, self.layer.weight)
        return nn.functional.cross_entropy(self.layer(x + row), target), x


def hopeless_factory() -> Any:
    return Hopeless(0.0), batch()


def hopeless_training_factory() -> Any:
    model = Hopeless(0.0)
    samba.from_torch_model_(model)
    return model, batch(), samba.optim.AdamW(model.parameters(), lr=0.1)


def clumsy_factory() -> Any:
    return net(), clumsy_batch()


def clumsy_training_factory() -> Any:
    model = net()
    samba.from_torch_model_(model)
    return model, clumsy_batch(), samba.optim.AdamW(model.parameters(), lr=0.1)


def absent_update(update: Update) -> tuple[ir.Value, dict[str, ir.Value]]:
    """Write the step of an optimizer with an operator that no operator set has."""
    weight, state = adam_update(update)
    return update.build.emit("Swirl", [weight], weight.dtype, weight.shape.numpy()), state


def wrong_update(update: Update) -> tuple[ir.Value, dict[str, ir.Value]]:
    """Write the step of an optimizer with the wrong sign."""
    weight, state = adam_update(update)
    return update.build.unary("Neg", weight), state


def _emit(context: Context, value: Any, operator: str, **attributes: float) -> ir.Value:
    return context.build.emit(
        operator, [value], context.result.dtype, context.result.shape, **attributes
    )
