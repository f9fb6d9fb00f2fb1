"""Optimizers on the host against torch's, and in turn with the device."""

from __future__ import annotations

import copy
import inspect
import io
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.optim import (
    SGD,
    Adam,
    AdamW,
    optimizer_record,
)
from tests.optim.running import prepare, set_gradients
from tests.tensor.memory_store import attached

KINDS = [
    (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (AdamW, torch.optim.AdamW, {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}),
    (Adam, torch.optim.Adam, {"lr": 0.01, "betas": (0.9, 0.99), "amsgrad": True}),
]


def model(seed: int = 0, dtype: torch.dtype = torch.float32, *, converted: bool = True) -> Any:
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(dtype)
    if converted:
        samba.from_torch_model_(made)
    return made


def differentiate(*models: nn.Module, seed: int = 5) -> None:
    for one in models:
        generator = torch.Generator().manual_seed(seed)
        for parameter in one.parameters():
            noise = torch.randn(tuple(parameter.shape), generator=generator)
            parameter.grad = noise.to(parameter.dtype)


def plain(one: nn.Module) -> list[torch.Tensor]:
    return [samba.to_torch(parameter).detach() for parameter in one.parameters()]


def trained(kind: Any, options: dict[str, Any], steps: int = 3, **model_options: Any) -> Any:
    one = model(**model_options)
    optimizer = kind(one.parameters(), **options)
    for step in range(steps):
        differentiate(one, seed=step)
        optimizer.step()
    return one, optimizer


@pytest.mark.parametrize(("ours", "theirs", "options"), KINDS)
@pytest.mark.parametrize("converted", [True, False])
def test_a_step_on_the_host_is_torchs(
    ours: Any, theirs: Any, options: dict[str, Any], converted: bool
) -> None:
    one, optimizer = trained(ours, options, converted=converted)
    other, reference = trained(theirs, options, converted=False)
    for got, wanted in zip(plain(one), plain(other), strict=True):
        assert torch.equal(got, wanted)
    state, wanted_state = optimizer.state_dict()["state"], reference.state_dict()["state"]
    for index, entry in wanted_state.items():
        for key, value in entry.items():
            assert type(state[index][key]) is torch.Tensor
            assert torch.equal(state[index][key], value)


def test_an_empty_list_is_a_group_without_parameters() -> None:
    for kind in (SGD, AdamW, Adam):
        optimizer: Any = kind([])
        assert [group["params"] for group in optimizer.param_groups] == [[]]
        optimizer.step()


def test_defaults_are_the_documented_ones() -> None:
    for kind in (AdamW, Adam):
        group = kind([nn.Parameter(torch.ones(1))]).param_groups[0]
        assert group["lr"] == 0.001
        assert group["betas"] == (0.9, 0.997)
        assert group["eps"] == 1e-8
        assert group["weight_decay"] == 0
    for kind in (AdamW, Adam, SGD):
        plain_one = kind([nn.Parameter(torch.ones(1))])
        group = plain_one.param_groups[0]
        assert not any(group.get(flag) for flag in ("amsgrad", "nesterov", "maximize"))
        assert (plain_one.max_grad_norm, plain_one.fp32_params) == (None, False)
        assert plain_one.argin_region_name == ""
    assert SGD([nn.Parameter(torch.ones(1))]).param_groups[0]["lr"] == 1e-3
    names = list(inspect.signature(AdamW).parameters)
    assert names[:5] == ["params", "lr", "betas", "eps", "weight_decay"]
    assert names[5:9] == ["amsgrad", "max_grad_norm", "fp32_params", "argin_region_name"]


@pytest.mark.parametrize("kind", [AdamW, Adam])
def test_every_argument_reaches_the_optimizer(kind: Any) -> None:
    weights = [nn.Parameter(torch.ones(1))]
    made = kind(weights, 0.5, (0.25, 0.75), 1e-3, 0.125, True, 2.0, True, "head", maximize=True)
    group = made.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.25, 0.75), 1e-3)
    assert (group["weight_decay"], group["amsgrad"], group["maximize"]) == (0.125, True, True)
    assert (made.max_grad_norm, made.fp32_params, made.argin_region_name) == (2.0, True, "head")


def test_every_argument_reaches_sgd() -> None:
    own: dict[str, Any] = {"max_grad_norm": 2.0, "fp32_params": True, "argin_region_name": "head"}
    weights = [nn.Parameter(torch.ones(1))]
    made = SGD(weights, 0.5, 0.25, 0, 0.125, True, maximize=True, **own)
    group = made.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.5, 0.25, 0.125)
    assert (group["nesterov"], group["maximize"]) == (True, True)
    assert {name: getattr(made, name) for name in own} == own


@pytest.mark.parametrize(("ours", "theirs", "options"), KINDS)
def test_state_goes_to_and_from_optimizers_of_torch(
    ours: Any, theirs: Any, options: dict[str, Any]
) -> None:
    one, optimizer = trained(ours, options)
    other, reference = trained(theirs, options, converted=False)
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    reference.load_state_dict(torch.load(buffer, weights_only=True))
    # A state_dict refers to the state itself.
    optimizer.load_state_dict(copy.deepcopy(reference.state_dict()))
    differentiate(one, other)
    optimizer.step()
    reference.step()
    for got, wanted in zip(plain(one), plain(other), strict=True):
        assert torch.equal(got, wanted)


def test_loading_state_keeps_the_prefixes_of_groups() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = SGD([{"params": [weight], "argin_region_name": "head"}], lr=0.1)
    optimizer.load_state_dict(torch.optim.SGD([weight], lr=0.2).state_dict())
    assert optimizer_record(optimizer, names={"w": weight}).groups[0].argin_region_name == "head"


def test_state_that_was_never_made_can_be_loaded() -> None:
    first, second = (nn.Parameter(torch.ones(2, dtype=torch.bfloat16)) for _ in range(2))
    optimizer = AdamW([first, second], fp32_params=True)
    first.grad = torch.ones_like(first)
    optimizer.step()
    resumed = AdamW([first, second], fp32_params=True)
    resumed.load_state_dict(optimizer.state_dict())
    assert resumed.state[first]["master"].dtype == torch.float32
    assert second not in resumed.state


@pytest.mark.parametrize("converted", [True, False])
def test_clipping_on_the_host_is_torchs_and_leaves_gradients_alone(converted: bool) -> None:
    one, other = model(converted=converted), model(converted=False)
    optimizer = SGD(one.parameters(), lr=0.1, max_grad_norm=0.5)
    differentiate(one, other)
    optimizer.step()
    before = [parameter.grad.clone() for parameter in other.parameters()]
    nn.utils.clip_grad_norm_(other.parameters(), 0.5)
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    for got, wanted in zip(plain(one), plain(other), strict=True):
        assert torch.equal(got, wanted)
    for parameter, gradient in zip(one.parameters(), before, strict=True):
        assert torch.equal(parameter.grad, gradient)


@pytest.mark.parametrize(("ours", "theirs", "options"), KINDS)
def test_master_weights_on_the_host_are_the_weights_of_float32(
    ours: Any, theirs: Any, options: dict[str, Any]
) -> None:
    half = model(dtype=torch.bfloat16)
    wide = model(dtype=torch.bfloat16, converted=False).float()
    optimizer = ours(half.parameters(), fp32_params=True, **options)
    reference = theirs(wide.parameters(), **options)
    for step in range(3):
        differentiate(half, seed=step)
        for parameter, twin in zip(half.parameters(), wide.parameters(), strict=True):
            twin.grad = parameter.grad.float()
        optimizer.step()
        reference.step()
    for parameter, twin in zip(half.parameters(), wide.parameters(), strict=True):
        assert torch.equal(optimizer.state[parameter]["master"], twin.detach())
        assert torch.equal(samba.to_torch(parameter).detach(), twin.detach().bfloat16())
    resumed = ours(half.parameters(), fp32_params=True, **options)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for parameter, twin in zip(half.parameters(), wide.parameters(), strict=True):
        assert torch.equal(resumed.state[parameter]["master"], twin.detach())


def test_a_weight_that_was_loaded_since_is_not_overwritten_by_its_old_master() -> None:
    half, optimizer = trained(SGD, {"lr": 0.1, "fp32_params": True}, dtype=torch.bfloat16)
    with torch.no_grad():
        for parameter in half.parameters():
            samba.to_torch(parameter).fill_(2.0)
            parameter.grad = torch.zeros_like(samba.to_torch(parameter))
    optimizer.step()
    assert all(bool((values == 2).all()) for values in plain(half))


def test_a_closure_is_called_once_with_gradients_enabled() -> None:
    one = model()
    optimizer = AdamW(one.parameters())
    calls = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = one(torch.ones(1, 3)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        calls.append(loss)
        return loss

    before = [values.clone() for values in plain(one)]
    assert optimizer.step(closure) is calls[0]
    assert len(calls) == 1
    assert not torch.equal(plain(one)[0], before[0])


def test_hooks_are_called_once_and_schedulers_count_steps() -> None:
    torch.optim.SGD([nn.Parameter(torch.ones(1))])  # torch wraps the step of its class now
    one = model()
    optimizer = SGD(one.parameters(), lr=1.0)
    called: list[Any] = []
    optimizer.register_step_post_hook(lambda *arguments: called.append(arguments))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    differentiate(one)
    optimizer.step()
    scheduler.step()
    assert len(called) == 1
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_parameters_come_in_many_forms() -> None:
    one = model()
    ordered = OrderedDict.fromkeys(one.parameters())
    forms: tuple[Any, ...] = (
        one.parameters(),
        list(one.parameters()),
        ordered.keys(),
        one.named_parameters(),
        [{"params": list(one.parameters())[:1], "lr": 0.5}, {"params": list(one.parameters())[1:]}],
    )
    for parameters in forms:
        names = optimizer_record(AdamW(parameters)).parameters
        assert names[0] == "sequential__0__weight"
        assert len(names) == 4
    grown = SGD([one[0].weight], lr=0.1)
    grown.add_param_group({"params": [one[1].weight], "lr": 0.3})
    assert [g.hyperparameters["lr"] for g in optimizer_record(grown).groups] == [0.1, 0.3]


def test_a_copy_is_whole() -> None:
    _, optimizer = trained(AdamW, {"max_grad_norm": 1.0, "argin_region_name": "x"})
    optimizer.device_steps = (4,)
    twin = copy.deepcopy(optimizer)
    assert (twin.max_grad_norm, twin.fp32_params, twin.argin_region_name) == (1.0, False, "x")
    assert twin.device_steps == (4,)


def test_gradients_may_be_clipped_to_nothing() -> None:
    one = model()
    optimizer = SGD(one.parameters(), lr=0.1, max_grad_norm=0.0)
    before = [values.clone() for values in plain(one)]
    differentiate(one)
    assert optimizer.step() is None
    for got, wanted in zip(plain(one), before, strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("norm", [-1.0, float("nan")])
def test_a_negative_norm_is_refused(norm: float) -> None:
    with pytest.raises(UsageError, match="max_grad_norm"):
        AdamW([nn.Parameter(torch.ones(1))], max_grad_norm=norm)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2}),
        (AdamW, {"lr": 0.01, "amsgrad": True}),
        (AdamW, {"lr": 0.01, "dtype": torch.bfloat16, "fp32_params": True}),
    ],
)
def test_host_and_device_take_turns(kind: Any, options: dict[str, Any]) -> None:
    dtype = options.pop("dtype", torch.float32) if "dtype" in options else torch.float32
    moved, stayed = model(dtype=dtype), model(dtype=dtype)
    optimizer, reference = (kind(one.parameters(), **options) for one in (moved, stayed))
    names = {p.sn_name: p for p in moved.parameters()}
    runner = prepare([optimizer], names)
    for step in range(6):
        differentiate(moved, stayed, seed=step)
        reference.step()
        if step % 2:
            optimizer.step()
            continue
        with attached(**runner.memory) as store:
            optimizer.rdu()
            runner.memory.update({n: t.copy_(store.places[n]) for n, t in runner.memory.items()})
        for name, parameter in names.items():
            runner.memory[name].copy_(samba.to_torch(parameter).detach())
        set_gradients(runner, names)
        runner.steps = [optimizer.device_steps]
        runner.run()
        (optimizer.device_steps,) = runner.steps
        with attached(**runner.memory) as store:
            optimizer.cpu()
            assert all(kind == "read" for kind, _ in store.transfers)
        for name, parameter in names.items():
            samba.to_torch(parameter).detach().copy_(runner.memory[name])
    # Sums of up to six steps, whose last bits may differ; bfloat16 weights may round differently.
    tolerance = 1e-6 if dtype == torch.float32 else torch.finfo(dtype).eps
    for got, wanted in zip(plain(moved), plain(stayed), strict=True):
        torch.testing.assert_close(got, wanted, rtol=tolerance, atol=1e-6)
