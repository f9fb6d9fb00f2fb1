"""Training that changes more than weights equals eager torch, step by step."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.sessions import SambaSession
from tests.training.stateful import RESULTS, STRUCTURES, WIDTH, Regression, draw
from tests.training.trajectory import Case, differences, eager, on_device, prepare


def check(case: Case, folder: Path) -> None:
    """Train on the device and in torch, and compare all that every step makes."""
    exact, single = eager(case, torch.float64), eager(case, torch.float32)
    assert differences(on_device(case, folder), exact, single) == []


@pytest.mark.parametrize("case", STRUCTURES, ids=str)
def test_unusual_structures_train_as_in_torch(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


def test_two_models_that_share_a_module_train_it_in_turns(
    tmp_path: Path, session: SambaSession
) -> None:
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    models = [Regression(shared, nn.Linear(WIDTH, RESULTS)).train() for _ in range(2)]
    twins = copy.deepcopy(models)
    paths = []
    for number, model in enumerate(models):  # the second is converted when the first is compiled
        samba.from_torch_model_(model, f"m{number}")
        own = dict(model.named_parameters(remove_duplicate=False))
        optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
        paths.append(prepare(model, draw(), [optimizer], tmp_path / str(number)).path)
        for path, parameter in model.named_parameters(remove_duplicate=False):
            assert parameter is own[path]
    for number in (0, 1, 0):
        model, twin, batch = models[number], twins[number], draw()
        inputs = {n: samba.from_torch_tensor(t, name=n) for n, t in batch.items()}
        optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
        outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=paths[number])
        loss, _ = session.run(inputs, outputs)
        session.to_cpu(model)
        expected, _ = twin(**batch)
        gradients = torch.autograd.grad(expected, list(twin.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
        torch.testing.assert_close(samba.to_torch(loss), expected.detach())
        for ours, theirs in zip(
            models[0].state_dict().values(), twins[0].state_dict().values(), strict=True
        ):
            torch.testing.assert_close(samba.to_torch(ours).detach(), theirs)
