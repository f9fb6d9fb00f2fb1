"""Optimizers on the device: hyperparameters, groups, norms, accumulation, odd parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn
from torch.optim import Optimizer

import samba_onnx as samba
from samba_onnx.sessions import SambaSession
from tests.training.small import CLOSE, Classifier, draw
from tests.training.trajectory import Prepared, prepare

Make = Callable[[Any, nn.Module], list[Optimizer]]


class Pair:
    """A model on the device, and its twin in eager torch."""

    def __init__(self, twin: nn.Module, make: Make, folder: Path, **options: Any) -> None:
        self.twin = twin
        model = copy.deepcopy(twin)
        samba.from_torch_model_(model)
        self.eager = make(torch.optim, twin)
        self.prepared = prepare(model, draw(), make(samba.optim, model), folder, **options)

    def step_eager(self, *batches: dict[str, Tensor], norm: float | None = None) -> None:
        for optimizer in self.eager:
            optimizer.zero_grad()
        for batch in batches:
            self.twin(**batch)[0].backward()
        if norm is not None:
            for optimizer in self.eager:
                listed = [p for group in optimizer.param_groups for p in group["params"]]
                nn.utils.clip_grad_norm_(listed, norm)
        for optimizer in self.eager:
            optimizer.step()

    def set_eager(self, **values: Any) -> None:
        for optimizer in self.eager:
            for group in optimizer.param_groups:
                group.update(values)

    def check(self, **tolerance: float) -> None:
        made = self.prepared.parameters()
        for name, parameter in self.twin.named_parameters():
            torch.testing.assert_close(
                made[name], parameter.detach(), **(tolerance or CLOSE), msg=lambda m, n=name: n + m
            )


def classifier() -> Classifier:
    torch.manual_seed(0)
    return Classifier().train()


def momentum(optim: Any, model: nn.Module) -> list[Optimizer]:
    return [optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)]


def adamw(optim: Any, model: nn.Module) -> list[Optimizer]:
    return [optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.1)]


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (momentum, {"lr": 0.05}),
        (momentum, {"momentum": 0.5}),
        (momentum, {"weight_decay": 0.2}),
        (adamw, {"lr": 0.05}),
        (adamw, {"betas": (0.5, 0.6)}),
        (adamw, {"weight_decay": 0.5, "eps": 1e-2}),
    ],
)
def test_hyperparameters_persist(tmp_path: Path, make: Make, values: dict[str, Any]) -> None:
    pair = Pair(classifier(), make, tmp_path)
    for given in ({}, values, {}, {}):
        batch = draw()
        pair.prepared.run(batch, hyperparam_dict=given)
        if given:
            pair.set_eager(**given)
        pair.step_eager(batch)
    pair.check()


def test_betas_one_by_one_and_names_of_other_programs(tmp_path: Path) -> None:
    pair = Pair(classifier(), adamw, tmp_path)
    batch = draw()
    pair.prepared.run(batch, hyperparam_dict={"beta1": 0.5, "beta2": 0.7, "unheard": 3})
    pair.set_eager(betas=(0.5, 0.7))
    pair.step_eager(batch)
    pair.check()


def test_a_schedule_of_learning_rates(tmp_path: Path) -> None:
    pair = Pair(classifier(), momentum, tmp_path)
    schedule = torch.optim.lr_scheduler.OneCycleLR(pair.eager[0], 0.2, total_steps=6)
    for _ in range(5):
        batch = draw()
        rate, moment = schedule.get_last_lr()[0], pair.eager[0].param_groups[0]["momentum"]
        pair.prepared.run(batch, hyperparam_dict={"lr": rate, "momentum": moment})
        pair.step_eager(batch)
        schedule.step()
    pair.check()


def two_kinds(optim: Any, model: nn.Module) -> list[Optimizer]:
    assert isinstance(model, Classifier)
    return [
        optim.SGD(model.inner.parameters(), lr=0.1, momentum=0.9),
        optim.AdamW(model.outer.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.1),
    ]


def test_optimizers_of_several_kinds_and_one_rate_for_all(tmp_path: Path) -> None:
    pair = Pair(classifier(), two_kinds, tmp_path)
    for rate in (None, 0.02, None):
        batch = draw()
        pair.prepared.run(batch, hyperparam_dict={} if rate is None else {"lr": rate})
        if rate is not None:
            pair.set_eager(lr=rate)
        pair.step_eager(batch)
    pair.check()


def test_regions_keep_hyperparameters_of_optimizers_apart(tmp_path: Path) -> None:
    twin = classifier()
    model = copy.deepcopy(twin)
    samba.from_torch_model_(model)
    mine = [
        samba.optim.AdamW(part.parameters(), lr=0.01, eps=1e-3, argin_region_name=region)
        for part, region in ((model.inner, "body"), (model.outer, "head"))
    ]
    prepared = prepare(model, draw(), mine, tmp_path)
    theirs = [
        torch.optim.AdamW(p.parameters(), lr=0.01, betas=(0.9, 0.997), eps=1e-3, weight_decay=0)
        for p in (twin.inner, twin.outer)
    ]
    batch = draw()
    prepared.run(batch, hyperparam_dict={"body_lr": 0.3, "head_weight_decay": 0.5})
    theirs[0].param_groups[0]["lr"] = 0.3
    theirs[1].param_groups[0]["weight_decay"] = 0.5
    twin(**batch)[0].backward()
    for optimizer in theirs:
        optimizer.step()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(prepared.parameters()[name], parameter.detach(), **CLOSE)


def test_groups_have_hyperparameters_of_their_own(tmp_path: Path) -> None:
    def make(optim: Any, model: nn.Module) -> list[Optimizer]:
        assert isinstance(model, Classifier)
        groups = [
            {"params": [model.inner.weight, model.outer.weight], "weight_decay": 0.3},
            {"params": [model.inner.bias, model.outer.bias], "lr": 0.5},
        ]
        return [optim.SGD(groups, lr=0.1, momentum=0.9)]

    pair = Pair(classifier(), make, tmp_path)
    for _ in range(3):
        batch = draw()
        pair.prepared.run(batch)
        pair.step_eager(batch)
    pair.check()


@pytest.mark.parametrize("accumulate", [False, True])
def test_norms_are_limited_in_their_own_section(
    tmp_path: Path, session: SambaSession, accumulate: bool
) -> None:
    twin = classifier()
    model = copy.deepcopy(twin)
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, max_grad_norm=0.05)
    prepared = prepare(
        model, draw(), [optimizer], tmp_path, config_dict={"gradient_accumulation": accumulate}
    )
    assert session.get_section_types() == {"FWD", "BCKWD", "GRADNORM", "OPT"} | (
        {"ZEROGRAD"} if accumulate else set()
    )
    reference = torch.optim.AdamW(
        twin.parameters(), lr=0.01, betas=(0.9, 0.997), eps=1e-3, weight_decay=0
    )
    for norm in (0.05, 0.5, 100.0):
        batch = draw()
        prepared.run(batch, hyperparam_dict={"max_grad_norm": norm})
        reference.zero_grad()
        twin(**batch)[0].backward()
        nn.utils.clip_grad_norm_(twin.parameters(), norm)
        reference.step()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(prepared.parameters()[name], parameter.detach(), **CLOSE)


def test_small_batches_accumulate_to_one_large_batch(tmp_path: Path, session: SambaSession) -> None:
    pair = Pair(classifier(), adamw, tmp_path, config_dict={"gradient_accumulation": True})
    assert session.get_section_types() == {"ZEROGRAD", "FWD", "BCKWD", "OPT"}
    prepared = pair.prepared
    prepared.outputs[0].sn_grad = torch.tensor(1 / 3)
    for _ in range(2):
        large = draw(12)
        session.run(section_types=["zerograd"])
        assert not any(g.any() for g in prepared.gradients().values())
        for part in range(3):
            small = {name: t[4 * part : 4 * part + 4] for name, t in large.items()}
            prepared.run(small, section_types=["fwd", "bckwd"])
        session.run(section_types=["opt"])
        pair.step_eager(large)
        for name, parameter in pair.twin.named_parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(prepared.gradients()[name], parameter.grad, **CLOSE)
    pair.check()
    # A run of the whole schedule begins with ZEROGRAD: it is a step of its own.
    prepared.outputs[0].sn_grad = torch.tensor(1.0)
    batch = draw()
    prepared.run(batch)
    pair.step_eager(batch)
    pair.check()


class Odd(nn.Module):
    """Frozen, tied and idle parameters, and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 6)
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        self.twice = nn.Linear(6, 6)
        self.idle = nn.Linear(3, 3)
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        states = x + self.words(label)
        states = self.twice(torch.tanh(self.twice(self.frozen(states))))
        logits = self.head(states)
        return F.cross_entropy(logits, label), logits


@pytest.mark.parametrize("make", [momentum, adamw])
def test_frozen_tied_idle_and_repeated_parameters(
    tmp_path: Path, session: SambaSession, make: Make
) -> None:
    torch.manual_seed(0)
    pair = Pair(Odd().train(), make, tmp_path)
    before = {name: p.clone() for name, p in pair.twin.named_parameters()}
    for _ in range(3):
        batch = draw()
        pair.prepared.run(batch)
        pair.step_eager(batch)
    pair.check()
    made = pair.prepared.parameters()
    for name in ("frozen.weight", "frozen.bias", "idle.weight", "idle.bias"):
        assert torch.equal(made[name], before[name])
    assert set(pair.prepared.gradients()) == {"words.weight", "twice.weight", "twice.bias"}
    session.to_cpu(pair.prepared.model)
    model = pair.prepared.model
    assert isinstance(model, Odd)
    assert model.head.weight is model.words.weight
    weights = session.get_weight_names()
    assert len([name for name in weights if "words" in name or "head" in name]) == 1


def test_bfloat16_parameters_with_float32_copies(tmp_path: Path, session: SambaSession) -> None:
    """The copy follows float32 steps on the device's gradients, the weight is its rounding."""
    model = classifier().bfloat16()
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-3, fp32_params=True)

    def batch() -> dict[str, Tensor]:
        return {**(made := draw()), "x": made["x"].bfloat16()}

    prepared = prepare(model, batch(), [optimizer], tmp_path)
    masters = {
        n: nn.Parameter(samba.to_torch(p).detach().float()) for n, p in model.named_parameters()
    }
    reference = torch.optim.AdamW(
        masters.values(), lr=1e-3, betas=(0.9, 0.997), eps=1e-3, weight_decay=0
    )
    for _ in range(5):
        prepared.run(batch())
        for name, gradient in prepared.gradients().items():
            assert gradient.dtype == torch.bfloat16
            masters[name].grad = gradient.float()
        reference.step()
    for name, parameter in model.named_parameters():
        copy_ = session.optim_dict[f"{parameter.sn_name}__master"].sn_data
        torch.testing.assert_close(copy_, masters[name].detach(), **CLOSE)
        assert torch.equal(parameter.sn_data, copy_.bfloat16())
    # Steps are too small for bfloat16 alone: most weights would have stayed what they were.
    moved = (masters["inner.weight"] - classifier().inner.weight.bfloat16()).abs()
    assert 0 < moved.max() < 0.01


def test_bfloat16_training_follows_eager_bfloat16(tmp_path: Path) -> None:
    """Within the rounding of bfloat16: torch's own difference from float32, times three."""
    twin = classifier().bfloat16()
    exact = copy.deepcopy(twin).float()
    model = copy.deepcopy(twin)
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    first = draw()
    prepared = prepare(model, {**first, "x": first["x"].bfloat16()}, [optimizer], tmp_path)
    batch = draw()
    low = {**batch, "x": batch["x"].bfloat16()}
    prepared.run(low, section_types=["FWD", "BCKWD"])
    twin(**low)[0].backward()
    exact(**{**low, "x": low["x"].float()})[0].backward()
    for (name, rounded), true in zip(twin.named_parameters(), exact.parameters(), strict=True):
        assert rounded.grad is not None
        assert true.grad is not None
        own = (rounded.grad.float() - true.grad).abs().max()
        error = (prepared.gradients()[name].float() - true.grad).abs().max()
        assert error <= 3 * own + 2**-8 * true.grad.abs().max(), name


def test_the_state_of_optimizers_is_on_the_device(tmp_path: Path, session: SambaSession) -> None:
    pair = Pair(classifier(), adamw, tmp_path)
    names = [p.sn_name for p in pair.prepared.model.parameters()]
    assert session.optim_dict.keys() == {
        f"{name}__{key}" for name in names for key in ("exp_avg", "exp_avg_sq")
    }
    for state in session.optim_dict.values():
        assert not state.sn_data.any()
    batch = draw()
    pair.prepared.run(batch)
    pair.step_eager(batch)
    for name, parameter in pair.twin.named_parameters():
        place = pair.prepared.model.get_parameter(name).sn_name
        for key in ("exp_avg", "exp_avg_sq"):
            wanted = pair.eager[0].state[parameter][key]
            state = session.optim_dict[f"{place}__{key}"]
            torch.testing.assert_close(state.sn_data, wanted, rtol=1e-5, atol=1e-9)
            # Written by hand, it is what the next step starts from.
            state.sn_data = wanted * 2
            wanted.mul_(2)
    batch = draw()
    pair.prepared.run(batch)
    pair.step_eager(batch)
    pair.check()


def test_weights_and_gradients_may_be_written(tmp_path: Path, session: SambaSession) -> None:
    pair = Pair(classifier(), momentum, tmp_path)
    prepared: Prepared = pair.prepared
    prepared.run(draw(), section_types=["fwd", "bckwd"])
    for name, parameter in pair.twin.named_parameters():
        mine = prepared.model.get_parameter(name)
        value, parameter.grad = torch.randn_like(parameter), torch.randn_like(parameter)
        mine.sn_data, mine.sn_grad = value, parameter.grad
        parameter.data = value
    session.run(section_types=["OPT"])
    pair.eager[0].step()
    pair.check()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "maximize": True}),
        ("AdamW", {"lr": 0.01, "amsgrad": True, "eps": 1e-3}),
        ("Adam", {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-3}),
    ],
)
def test_optimizers_of_torch_are_compiled_as_they_are(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    def make(optim: Any, model: nn.Module) -> list[Optimizer]:
        del optim
        return [getattr(torch.optim, kind)(model.parameters(), **options)]

    pair = Pair(classifier(), make, tmp_path)
    for _ in range(4):
        batch = draw()
        pair.prepared.run(batch)
        pair.step_eager(batch)
    pair.check()
    samba.session.to_cpu(pair.prepared.model, pair.prepared.optimizers)
    mine, theirs = pair.prepared.optimizers[0].state_dict(), pair.eager[0].state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    for number, state in theirs["state"].items():
        for key, value in state.items():
            if value is not None:
                torch.testing.assert_close(
                    samba.to_torch(mine["state"][number][key]), value, rtol=1e-5, atol=1e-7
                )


@pytest.mark.parametrize("make", [momentum, adamw, two_kinds])
def test_a_hundred_steps(tmp_path: Path, make: Make) -> None:
    """Roundings of a hundred steps, in float32: a hundred units in the last place of a weight."""
    pair = Pair(classifier(), make, tmp_path)
    for _ in range(100):
        batch = draw()
        pair.prepared.run(batch)
        pair.step_eager(batch)
    pair.check(rtol=0, atol=100 * torch.finfo(torch.float32).eps)
