"""Modules of few names: lazy parameters, reports, bounds, switches."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from samba_onnx import SambaParameter, from_torch_model_
from samba_onnx.errors import OutputError, UnsupportedSymbolError
from samba_onnx.sambaflow.samba.env import use_mock_samba_runtime
from samba_onnx.sambaflow.samba.lazy_param import RNGProviderFactory, lazy_param
from samba_onnx.sambaflow.samba.materialize import materialize
from samba_onnx.sambaflow.samba.utils import fix_rdu_affinity
from samba_onnx.sambaflow.samba.utils.benchmark_acc import AccuracyReport
from samba_onnx.sambaflow.samba.utils.numeric import MAX_BF16_TRUNCATE_NORMAL_REL
from samba_onnx.sessions import SESSION
from samba_onnx.tensor import SambaTensor


def test_lazy_parameters_get_values_when_materialized() -> None:
    with lazy_param():
        assert SESSION.use_lazy_param()
        with lazy_param():
            model = nn.Linear(3, 2)
        assert SESSION.use_lazy_param()
    assert not SESSION.use_lazy_param()
    from_torch_model_(model)
    assert isinstance(model.weight, SambaTensor)
    assert not model.weight.has_data
    with materialize(model) as same:
        assert same is model
        assert model.weight.has_data
    assert model.weight.has_data
    assert model.weight.torch().abs().max() > 0


def test_quantized_modules_are_refused_by_name() -> None:
    refused = pytest.raises(UnsupportedSymbolError, match=r"lazy_param\(quantized=True\)")
    with refused, lazy_param(quantized=True):
        pass


def test_materializers_draw_from_torchs_generator() -> None:
    provider = RNGProviderFactory().build_provider()
    parameter = SambaParameter(
        shape=(400, 50),
        dtype=torch.bfloat16,
        materializer=lambda p: provider().normal(1.0, 0.5, p.shape, dtype=p.dtype),
    )
    torch.manual_seed(3)
    values = parameter.torch_tensor()
    torch.manual_seed(3)
    expected = torch.normal(1.0, 0.5, (400, 50)).bfloat16()
    assert torch.equal(values, expected)


def test_a_report_has_what_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "acc.json"
    AccuracyReport(val_accuracy=92.5, batch_size=1, num_iterations=3).save(path)
    assert json.loads(path.read_text()) == {
        "val_accuracy": 92.5,
        "batch_size": 1,
        "num_iterations": 3,
    }
    AccuracyReport(val_metrics={"acc": torch.tensor(0.5)}).save(str(path))  # type: ignore[dict-item]
    assert json.loads(path.read_text()) == {"val_metrics": {"acc": 0.5}}
    with pytest.raises(OutputError):
        AccuracyReport().save(path / "deeper.json")


def test_cutting_off_to_bfloat16_stays_within_the_bound() -> None:
    values = torch.rand(10_000) * 1000 + 1e-3
    cut = (values.view(torch.int32) & -65536).view(torch.float32)
    relative = ((values - cut) / values).max().item()
    assert MAX_BF16_TRUNCATE_NORMAL_REL / 2 < relative < MAX_BF16_TRUNCATE_NORMAL_REL


def test_the_runtime_is_not_made_up() -> None:
    assert use_mock_samba_runtime() is False


def test_every_rank_has_tiles_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SF_RNT_TILE_AFFINITY", "")
    masks = []
    for rank in range(9):
        monkeypatch.setattr("samba_onnx.utils.affinity.get_rank", lambda rank=rank: rank)
        fix_rdu_affinity()
        masks.append(int(os.environ["SF_RNT_TILE_AFFINITY"], 16))
    assert masks[0] == 0xF
    assert sum(masks[:8]) == 0xFFFF_FFFF
    assert masks[8] == masks[0]
