"""A torch model of the user's, from its export to a PEF: what the PEF says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from samba_onnx.workflows.porting import port
from samba_onnx.workflows.torch_models import TorchModel
from tests.export.capture.test_caches import Attending


@pytest.mark.parametrize("check", [True, False])
def test_a_pef_says_which_cache_was_left_out(check: bool, tmp_path: Path) -> None:
    model = TorchModel("attending", Attending().eval(), (torch.randn(1, 2, 1, 4),), {})
    with port(model, str(tmp_path / "x.pef"), check=check, sample=False) as pef:
        assert [note for note in pef.manifest.notes if "DynamicCache" in note]
