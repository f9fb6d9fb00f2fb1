"""Whole modules go to the device and come back."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch.nn.utils import parametrizations

import samba_onnx as samba
from samba_onnx.errors import NoDeviceError
from samba_onnx.sessions.module_transfers import (
    sync_buffers_to_cpu,
    sync_buffers_to_rdu,
    to_cpu,
    to_rdu,
)
from tests.sessions.conftest import Compiled, Parts


def test_parameters_are_sent_and_fetched(parts: Parts, compiled: Compiled) -> None:
    for copy in (to_cpu, to_rdu, sync_buffers_to_cpu, sync_buffers_to_rdu):
        with pytest.raises(NoDeviceError, match="no program is loaded"):
            copy(compiled.model)
    parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    device = parts.program.required_device()
    bias = compiled.model.outer.bias
    before = bias.data.clone()
    place = bias.data_ptr()
    device.write("classifier__outer__bias", (2 * before).numpy())
    to_cpu(compiled.model, inplace=True)
    torch.testing.assert_close(samba.to_torch(bias.data), samba.to_torch(2 * before))
    assert bias.data_ptr() == place
    with torch.no_grad():
        bias.copy_(before)
    to_rdu(compiled.model)
    assert device.read("classifier__outer__bias").tolist() == before.tolist()
    # It has no buffers, so that there is nothing to do.
    count = len(device.ledger.transfers)
    sync_buffers_to_cpu(compiled.model)
    sync_buffers_to_rdu(compiled.model)
    assert len(device.ledger.transfers) == count


WRITING: dict[str, Callable[[], torch.nn.Module]] = {
    "BatchNorm1d(momentum=None)": lambda: torch.nn.BatchNorm1d(3, momentum=None),
    "InstanceNorm1d": lambda: torch.nn.InstanceNorm1d(3, track_running_stats=True, affine=True),
    "spectral_norm": lambda: parametrizations.spectral_norm(torch.nn.Linear(4, 2)),
    "max_norm": lambda: torch.nn.Sequential(_Indices(), torch.nn.Embedding(5, 2, max_norm=0.5)),
}


class _Indices(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.abs().long().clamp(0, 4)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", WRITING)
def test_what_runs_without_an_optimizer_write_is_torchs(
    name: str, training: bool, session: samba.SambaSession, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = WRITING[name]().train(training)
    twin = deepcopy(model)
    samba.from_torch_model_(model)
    batches = [3 * torch.randn(5, 3, 4) for _ in range(3)]
    inputs = (samba.from_torch_tensor(batches[0].clone(), name="x"),)
    path = session.compile(model, inputs, output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, inputs, pef=path)
    for batch in batches:
        (result,) = session.run((samba.from_torch_tensor(batch, name="x"),), outputs)
        with torch.no_grad():
            torch.testing.assert_close(samba.to_torch(result), twin(batch))
    session.to_cpu(model)
    for ours, theirs in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(samba.to_torch(ours).detach(), theirs)


class Watching(torch.nn.Module):
    """Keeps what it was given last, without ever reading it, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.full((2,), 7.0))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last.copy_(x)
        self.steps += 1
        return x * 2


@pytest.mark.parametrize("converted", [True, False])
def test_a_buffer_that_is_only_written_comes_back(
    converted: bool, session: samba.SambaSession, tmp_path: Path
) -> None:
    model = Watching()
    if converted:
        samba.from_torch_model_(model)
    x = samba.from_torch_tensor(torch.tensor([1.0, 2.0]), name="x")
    path = session.compile(model, (x,), output=tmp_path / "m.pef")
    assert (model.last.tolist(), model.steps.item()) == ([7.0, 7.0], 0)
    outputs = samba.utils.trace_graph(model, (x,), pef=path)
    session.to_cpu(model)  # before anything was run
    assert (model.last.tolist(), model.steps.item()) == ([7.0, 7.0], 0)
    for _ in range(2):
        session.run((x,), outputs)
    assert sorted(session.tensor_dict["buffers"]) == ["watching__last", "watching__steps"]
    session.to_cpu(model)
    assert (model.last.tolist(), model.steps.item()) == ([1.0, 2.0], 2)


class Tied(torch.nn.Module):
    """One weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
        self.two.weight = self.one.weight
        self.three = torch.nn.Linear(2, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.three(self.two(self.one(x)))


def test_what_is_tied_is_copied_once(parts: Parts, tmp_path: Path) -> None:
    model, x = Tied(), samba.ones(1, 2, name="x")
    samba.from_torch_model_(model)
    path = samba.session.compile(model, (x,), output=tmp_path / "m.pef", check=False)
    parts.tracer.trace(model, (x,), pef=path)
    ledger = parts.program.required_device().ledger
    for copy_ in (to_rdu, to_cpu):
        before = len(ledger.transfers)
        copy_(model)
        assert len(ledger.transfers) - before == 2
