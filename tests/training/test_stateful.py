"""Training that changes more than weights equals eager torch, step by step."""

from __future__ import annotations

import copy
import functools
import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.sessions import SambaSession
from tests.training.stateful import (
    DROPOUTS,
    RESULTS,
    STRUCTURES,
    WIDTH,
    Choice,
    Regression,
    around,
    case,
    draw,
    every_loss_that_ignores,
    ignored,
)
from tests.training.stateful_layers import EVERY
from tests.training.trajectory import Case, differences, eager, on_device, prepare


def check(case: Case, folder: Path) -> None:
    """Train on the device and in torch, and compare all that every step makes."""
    exact, single = eager(case, torch.float64), eager(case, torch.float32)
    assert differences(on_device(case, folder), exact, single) == []


@pytest.mark.parametrize("case", STRUCTURES, ids=str)
def test_unusual_structures_train_as_in_torch(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_layers_that_change_buffers_or_weights_train_as_in_torch(
    case: Case, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("name", DROPOUTS)
def test_a_dropout_of_rate_one_leaves_zeros(name: str, tmp_path: Path) -> None:
    check(case(name, around(lambda: DROPOUTS[name](1.0)), steps=2), tmp_path)


@pytest.mark.parametrize("name", DROPOUTS)
def test_a_dropout_whose_rate_becomes_one_leaves_zeros(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = around(lambda: DROPOUTS[name](0.5))().train()
    samba.from_torch_model_(model)
    torch.manual_seed(0)
    twin = around(lambda: DROPOUTS[name](1.0))().train()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    prepared = prepare(model, batch := draw(), [optimizer], tmp_path)
    loss, y = prepared.run(batch, hyperparam_dict={"p": 1.0})
    expected, result = twin(**batch)
    expected.backward()
    torch.testing.assert_close((loss, y), (expected.detach(), result.detach()))
    for path, parameter in twin.named_parameters():
        torch.testing.assert_close(prepared.gradients()[path], parameter.grad)


def test_a_dropped_number_that_is_not_finite_is_none_as_in_torch(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Dropout(1.0)).train()
    nn.init.constant_(model[0].weight, 3.0)
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    prepared = prepare(model, {"input": torch.ones(3, 2)}, [optimizer], tmp_path)
    assert not prepared.run()[0].any()
    assert prepared.run({"input": torch.full((3, 2), 3e38)})[0].isnan().all()


IGNORING = every_loss_that_ignores()
REDUCTIONS = ("mean", "sum", "none")
WAYS = [
    (name, reduction, images)
    for name, reduction, images in itertools.product(IGNORING, REDUCTIONS, (False, True))
    if not (images and name == "LinearCrossEntropyLoss")
]
"""All losses in all reductions, of rows and of places in images."""


@pytest.mark.parametrize(("name", "reduction", "images"), WAYS)
def test_batches_without_a_target_that_counts_leave_parameters_intact(
    name: str, reduction: str, images: bool, tmp_path: Path
) -> None:
    make = functools.partial(IGNORING[name], reduction)
    batches = ignored(make(), images)
    check(case(name, lambda: Choice(make(), images), batches, steps=4), tmp_path)
