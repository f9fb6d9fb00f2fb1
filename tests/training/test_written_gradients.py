"""Gradients that the user wrote are those that the device trains with.

Every kind is trained on the device and in eager torch, with active dropout compared at rate 0, and
every parameter, gradient and output of every step must be the same.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.capture.recording_rules import RuleRecorder
from samba_onnx.export.differentiation import joint
from samba_onnx.pef import load_pef
from samba_onnx.sessions import SESSION
from tests.training.trajectory import (
    Case,
    Prepared,
    differences,
    eager,
    on_device,
    prepare,
    prepare_case,
    sgd,
)
from tests.training.written_gradients import (
    BETWEEN,
    KINDS,
    REGISTER,
    Net,
    build,
    case,
    plain,
    trainable,
)


def assert_same(trained: Case, folder: Path) -> None:
    references = eager(trained, torch.float64), eager(trained, torch.float32)
    assert differences(on_device(trained, folder), *references) == []


@pytest.mark.filterwarnings("ignore::samba_onnx.errors.BranchWarning")
@pytest.mark.parametrize("name", list(BETWEEN))
def test_rules_in_forward(tmp_path: Path, name: str) -> None:
    assert_same(case(name, lambda: Net(BETWEEN[name])), tmp_path)


@pytest.mark.parametrize("name", list(REGISTER))
def test_registered_hooks(tmp_path: Path, name: str) -> None:
    assert_same(case(name, build(REGISTER[name])), tmp_path)


def step_of(prepared: Prepared, batch: dict[str, Tensor], **options: Any) -> None:
    prepared.run(batch, section_types=["FWD"], **options)
    SESSION.run(section_types=["BCKWD"], **options)


@pytest.mark.parametrize("kind", list(KINDS))
def test_accumulated_gradients(tmp_path: Path, kind: str) -> None:
    trained = case(kind, KINDS[kind])
    prepared = prepare_case(trained, tmp_path, gradient_accumulation=True)
    twin, batches = trained.model(), trained.batches()
    optimizer = sgd(torch.optim, twin)[0]
    for _ in range(2):
        optimizer.zero_grad()
        SESSION.run(section_types=["ZEROGRAD"])
        for batch in batches:
            step_of(prepared, batch)
            twin(**batch)[0].backward()
        optimizer.step()
        SESSION.run(section_types=["OPT"])
        assert_state(prepared, twin)


def assert_state(prepared: Prepared, twin: nn.Module) -> None:
    gradients, parameters = prepared.gradients(), prepared.parameters()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(parameters[name], parameter.detach(), rtol=2e-5, atol=1e-6)
        if parameter.grad is None:
            assert name not in gradients
        else:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", list(KINDS))
def test_active_dropout(tmp_path: Path, kind: str) -> None:
    """The device's rate is set to 0 for the comparison; the check had done the same."""
    trained = case(kind, KINDS[kind])
    model = trained.model()
    model.dropout.p = 0.5
    samba.from_torch_model_(model)
    batches = trained.batches()
    prepared = prepare(model, batches[0], sgd(samba.optim, model), tmp_path)
    with load_pef(prepared.path) as pef:
        assert any("rates of all dropouts at 0" in note for note in pef.manifest.notes)
    twin = trained.model()
    optimizer = sgd(torch.optim, twin)[0]
    for batch in batches:
        prepared.run(batch, hyperparam_dict={"p": 0.0})
        optimizer.zero_grad()
        twin(**batch)[0].backward()
        optimizer.step()
        assert_state(prepared, twin)


@pytest.mark.parametrize("kind", list(KINDS))
def test_frozen_parameters(tmp_path: Path, kind: str) -> None:
    def frozen() -> Net:
        net = KINDS[kind]()
        net.first.weight.requires_grad_(False)
        net.inner.weight.requires_grad_(False)
        return net

    assert_same(case(kind, frozen, optimize=trainable), tmp_path)


@pytest.mark.parametrize("name", ["parameter", "accumulated in place", "module"])
def test_hooks_after_the_conversion(tmp_path: Path, name: str) -> None:
    trained = case(name, lambda: Net(plain))
    model, twin = trained.model(), trained.model()
    samba.from_torch_model_(model)
    REGISTER[name](model)
    REGISTER[name](twin)
    batches = trained.batches()
    prepared = prepare(model, batches[0], sgd(samba.optim, model), tmp_path)
    optimizer = sgd(torch.optim, twin)[0]
    for batch in batches:
        prepared.run(batch)
        optimizer.zero_grad()
        twin(**batch)[0].backward()
        optimizer.step()
        assert_state(prepared, twin)


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("kind", list(KINDS))
def test_the_check_runs_what_the_user_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, rate: float
) -> None:
    """An exporter that forgets any of these is told by the check, with active dropouts as well."""
    monkeypatch.setattr(RuleRecorder, "recording", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(joint, "register_hooks", lambda *_: None)
    monkeypatch.setattr(joint, "after_accumulation", lambda own, leaf, gradient, known: gradient)
    trained = case(kind, KINDS[kind])
    model = trained.model()
    model.dropout.p = rate
    samba.from_torch_model_(model)
    with pytest.raises(ExportMismatchError, match="the gradient of"):
        prepare(model, trained.batches()[0], sgd(samba.optim, model), tmp_path)
