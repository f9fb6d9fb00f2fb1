"""SambaTensors are saved as plain tensors: loading needs nothing of this package."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import torch

import samba_onnx as samba
from samba_onnx import SambaParameter, SambaTensor


def _saved_and_loaded(value: object) -> object:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


def test_a_tensor_loads_as_a_plain_tensor() -> None:
    loaded = _saved_and_loaded(samba.full((2,), 3.0, name="x", requires_grad=True))
    assert type(loaded) is torch.Tensor
    assert loaded.tolist() == [3.0, 3.0]
    assert loaded.requires_grad


def test_a_parameter_loads_as_a_plain_parameter() -> None:
    loaded = _saved_and_loaded({"w": SambaParameter(torch.ones(2), requires_grad=False)})
    assert isinstance(loaded, dict)
    assert type(loaded["w"]) is torch.nn.Parameter
    assert not loaded["w"].requires_grad


def test_memory_shared_by_saved_tensors_is_saved_once() -> None:
    plain = torch.zeros(4)
    loaded = _saved_and_loaded([SambaTensor(plain), SambaTensor(plain[:2])])
    assert isinstance(loaded, list)
    loaded[1].fill_(5)
    assert loaded[0].tolist() == [5.0, 5.0, 0.0, 0.0]


def test_a_state_dict_loads_where_the_package_is_not_imported(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    samba.from_torch_model_(model)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    code = (
        "import sys, torch; state = torch.load('state.pt'); "
        "print('samba_onnx' in sys.modules, {type(v) is torch.Tensor for v in state.values()})"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert answer.stdout.strip() == "False {True}"


def test_a_whole_model_is_saved_as_a_torch_model() -> None:
    model = torch.nn.Linear(2, 3)
    expected = model(torch.ones(1, 2))
    samba.from_torch_model_(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert type(loaded.weight) is torch.nn.Parameter
    assert torch.equal(loaded(torch.ones(1, 2)), expected)
