"""Optimizers of a module become parts of its program, without a session."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.export.programs.training import export_training
from samba_onnx.export.programs.training_steps import (
    optimizer_list,
    optimizer_records,
    parameter_names,
    with_optimizers,
)
from samba_onnx.program.kinds import SectionType, SymbolKind


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).mean()


def test_one_several_or_no_optimizers_are_a_list() -> None:
    optimizer = samba.optim.SGD(Tied().parameters(), lr=0.1)
    assert optimizer_list(None) == []
    assert optimizer_list(optimizer) == [optimizer]
    assert optimizer_list((optimizer, optimizer)) == [optimizer, optimizer]
    with pytest.raises(UsageError, match=r"an optimizer is str; give one, as samba\.optim\.SGD"):
        optimizer_list(["sgd"])  # type: ignore[list-item]


def test_tied_parameters_have_one_name() -> None:
    model = Tied()
    names = parameter_names(model)
    assert list(names) == ["tied__first__weight", "tied__second__bias"]
    assert names["tied__first__weight"] is model.first.weight


def test_an_optimizer_of_another_model_is_refused() -> None:
    optimizer = samba.optim.SGD(Tied().parameters(), lr=0.1)
    with pytest.raises(UsageError, match="SGD has parameters that Tied does not have"):
        optimizer_records(Tied(), [optimizer])


def test_the_program_ends_with_the_steps_of_its_optimizers() -> None:
    model = Tied()
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.1)
    program = export_training(model, {"x": torch.ones(2, 3)}).program
    assert with_optimizers(program, ()) is program
    trained = with_optimizers(program, optimizer_records(model, [optimizer]))
    assert [part.type for part in trained.parts[: len(program.parts)]] == [
        part.type for part in program.parts
    ]
    assert {part.type for part in trained.parts[len(program.parts) :]} == {SectionType.OPT}
    assert trained.residents["tied__first__weight__updated"] is SymbolKind.WEIGHT
    assert trained.regions["tied__first__weight__updated"] == "tied__first__weight"
    assert {argin.name for argin in trained.argins} > {argin.name for argin in program.argins}
