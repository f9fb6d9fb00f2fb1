"""Known networks, and operators of all kinds, train on the device as in eager torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training import assorted, language, vision
from tests.training.trajectory import Case, differences, eager, on_device

CASES = (*vision.CASES, *language.CASES, *assorted.CASES)
QUICK = {
    *("logistic regression", "perceptron", "lenet", "resnet18", "lstm", "gru"),
    *("gpt2", "positions", "losses"),
}
"""What the tests of this folder train: one of each family."""
REPRESENTATIVES = {"logistic regression", "lenet"}
"""What the default test command trains."""


def _marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    if name in REPRESENTATIVES:
        return (pytest.mark.representative,)
    return () if name in QUICK else (pytest.mark.slow,)


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=_marks(case.name)) for case in CASES],
)
def test_training_equals_eager_torch(case: Case, tmp_path: Path) -> None:
    found = differences(
        on_device(case, tmp_path), eager(case, torch.float64), eager(case, torch.float32)
    )
    assert not found, "\n".join(found)
