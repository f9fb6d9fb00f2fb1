"""Gradients of losses over classes: the graph, and the numbers against autograd in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.export.programs.training import export_training
from tests.export.training_runs import Machine

ROWS, CLASSES = 6, 9
WEIGHTS = torch.linspace(0.1, 2, CLASSES)


class Scores(nn.Module):
    """Scores that are learned themselves."""

    def __init__(self, shape: tuple[int, ...], **options: Any) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
        self.options = options

    def forward(self, labels: Tensor) -> Tensor:
        options = {k: v.to(self.scores) if k == "weight" else v for k, v in self.options.items()}
        losses = functional.cross_entropy(self.scores, labels, **options)
        shares = torch.arange(1, losses.numel() + 1).reshape(losses.shape)
        return (losses * shares).sum()


def operators(module: nn.Module, labels: Tensor) -> list[str]:
    program = export_training(module, (labels,), loss_indices=[0]).program
    return [node.op_type for part in program.parts for node in part.model.graph]


def compare(module: Scores, labels: Tensor) -> None:
    program = export_training(module, (labels,), loss_indices=[0])
    machine = Machine(program)
    machine.load(module)
    machine.give((labels,))
    machine.run()
    exact = module.double()
    (expected,) = torch.autograd.grad(exact(labels), [exact.scores])
    (name,) = program.members
    got = machine[f"{name}__grad"]
    # Some roundings of the largest number.
    atol = 3e-7 * float(expected.abs().max())
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=atol)


LABELS = torch.tensor([3, 0, 8, 2, 8, 5])
SOME_LABELS = torch.tensor([3, -100, 8, 2, -100, 5])
NO_LABELS = torch.full((ROWS,), -100)


@pytest.mark.parametrize("labels", [LABELS, SOME_LABELS, NO_LABELS])
@pytest.mark.parametrize("weight", [{}, {"weight": WEIGHTS}], ids=["equal", "weighted"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_rows_are_never_filled_with_zeros(
    labels: Tensor, weight: dict[str, Tensor], reduction: str
) -> None:
    module = Scores((ROWS, CLASSES), reduction=reduction, **weight)
    assert "ScatterND" in operators(module, labels)
    compare(module, labels)


@pytest.mark.parametrize(
    ("shape", "labels", "options"),
    [
        ((CLASSES,), torch.tensor(4), {}),
        ((2, CLASSES, 3), LABELS.reshape(2, 3), {}),
        ((ROWS, CLASSES), LABELS, {"label_smoothing": 0.2}),
        ((ROWS, CLASSES), SOME_LABELS, {"label_smoothing": 0.2, "weight": WEIGHTS}),
    ],
)
def test_other_losses_over_classes(
    shape: tuple[int, ...], labels: Tensor, options: dict[str, Any]
) -> None:
    module = Scores(shape, **options)
    assert "ScatterND" not in operators(module, labels)
    compare(module, labels)
