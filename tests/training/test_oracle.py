"""The measure itself: trainers that are slightly wrong must be told from the right one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.training.trajectory import Case, Trajectory, differences, eager, on_device


class Small(nn.Module):
    def __init__(self, smoothing: float = 0.0, momentum: float = 0.1) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8, momentum=momentum)
        self.second = nn.Linear(8, 4)
        self.smoothing = smoothing

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.second(torch.tanh(self.norm(self.first(x))))
        return F.cross_entropy(logits, label, label_smoothing=self.smoothing), logits


def optimizers(**changes: Any) -> Callable[[Any, nn.Module], list[Optimizer]]:
    kept = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.1, **changes}
    return lambda optim, model: [optim.AdamW(model.parameters(), **kept)]


CASE = Case(
    "small",
    Small,
    lambda: {"x": torch.randn(8, 6), "label": torch.randint(0, 4, (8,))},
    optimizers(),
)


@pytest.fixture(scope="module")
def references() -> tuple[Trajectory, Trajectory]:
    return eager(CASE, torch.float64), eager(CASE, torch.float32)


def test_the_right_trainer_passes(
    references: tuple[Trajectory, Trajectory], tmp_path: Path
) -> None:
    assert differences(on_device(CASE, tmp_path), *references) == []


@pytest.mark.parametrize(
    ("wrong", "kinds"),
    [
        (replace(CASE, optimize=optimizers(lr=0.01 * 1.0001)), {"parameter"}),
        (replace(CASE, optimize=optimizers(weight_decay=0.0)), {"parameter"}),
        (replace(CASE, optimize=optimizers(betas=(0.9, 0.991))), {"parameter"}),
        (replace(CASE, optimize=optimizers(eps=1.01e-3)), {"parameter"}),
        (replace(CASE, build=lambda: Small(smoothing=1e-4)), {"gradient", "output"}),
        (replace(CASE, build=lambda: Small(momentum=0.101)), {"buffer"}),
    ],
    ids=["rate", "decay", "beta", "epsilon", "loss", "statistics"],
)
def test_a_wrong_trainer_is_told_from_the_right_one(
    references: tuple[Trajectory, Trajectory], tmp_path: Path, wrong: Case, kinds: set[str]
) -> None:
    found = differences(on_device(wrong, tmp_path), *references)
    assert kinds <= {complaint.split()[2] for complaint in found}


def test_stale_values_and_missing_ones_are_found(
    references: tuple[Trajectory, Trajectory],
) -> None:
    exact, single = references
    stale = Trajectory([single.steps[0], *single.steps[:-1]])
    assert any(
        "gradient first.weight" in complaint for complaint in differences(stale, *references)
    )
    fewer = Trajectory([{k: v for k, v in s.items() if "norm.bias" not in k} for s in single.steps])
    assert any("not both" in complaint for complaint in differences(fewer, exact, single))
