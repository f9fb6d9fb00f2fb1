"""Known networks, and operators of all kinds, train on the device as in eager torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training import assorted, language, vision
from tests.training.trajectory import Case, differences, eager, on_device

CASES = (*vision.CASES, *language.CASES, *assorted.CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_training_equals_eager_torch(case: Case, tmp_path: Path) -> None:
    found = differences(
        on_device(case, tmp_path), eager(case, torch.float64), eager(case, torch.float32)
    )
    assert not found, "\n".join(found)
