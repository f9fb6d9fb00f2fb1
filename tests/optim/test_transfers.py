"""State of optimizers on its way to and from the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import NoDeviceError, UsageError
from samba_onnx.optim import (
    ROUNDING_STEPS,
    SGD,
    AdamW,
    state_materializers,
    steps_done,
    to_cpu,
    to_rdu,
)
from tests.optim.test_host import differentiate, model, trained
from tests.tensor.memory_store import attached


def places(one: Any, *keys: str) -> dict[str, torch.Tensor]:
    return {
        f"{p.sn_name}__{key}": torch.full(tuple(p.shape), 7.0)
        for p in one.parameters()
        for key in keys
    }


def test_state_that_the_host_does_not_have_is_what_torch_begins_with() -> None:
    half = model(dtype=torch.bfloat16)
    optimizer = AdamW(half.parameters(), fp32_params=True)
    with attached(**places(half, "exp_avg", "exp_avg_sq", "master")) as store:
        optimizer.rdu()
        assert optimizer.device_steps == (0,)
        for parameter in half.parameters():
            name = parameter.sn_name
            assert not store.places[f"{name}__exp_avg"].any()
            wanted = samba.to_torch(parameter).detach().float()
            assert torch.equal(store.places[f"{name}__master"], wanted)


def test_state_begins_in_the_type_of_its_parameter() -> None:
    weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    made = state_materializers(AdamW([weight]), {"w": weight})
    assert {make(weight).dtype for make in made.values()} == {torch.bfloat16}


def test_what_was_never_sent_is_not_read() -> None:
    one = model()
    optimizer = AdamW(one.parameters())
    with attached(**places(one, "exp_avg", "exp_avg_sq")) as store:
        optimizer.cpu()
        assert store.transfers == []
    assert not optimizer.state


def test_before_the_first_step_there_is_no_state_to_read() -> None:
    one, optimizer = trained(AdamW, {})
    optimizer.device_steps = (0,)
    with attached(**places(one, "exp_avg", "exp_avg_sq")) as store:
        optimizer.cpu()
        assert store.transfers == []
    assert not optimizer.state


def test_reading_makes_new_tensors_unless_it_is_in_place() -> None:
    one, optimizer = trained(AdamW, {})
    optimizer.device_steps = (9,)
    before = optimizer.state[one[0].weight]["exp_avg"]
    values = before.clone()
    with attached(**places(one, "exp_avg", "exp_avg_sq")):
        optimizer.cpu()
    assert torch.equal(before, values)
    tensor = optimizer.state[one[0].weight]["exp_avg"]
    with attached(**places(one, "exp_avg", "exp_avg_sq")):
        optimizer.cpu(inplace=True)
    assert optimizer.state[one[0].weight]["exp_avg"] is tensor
    assert bool((tensor == 7).all())
    assert steps_done(optimizer) == (9,)


def test_frozen_parameters_have_nothing_on_the_device() -> None:
    one, optimizer = trained(SGD, {"lr": 0.1, "momentum": 0.9})
    for layer in ("__0__", "__1__"):
        present = {n: t for n, t in places(one, "momentum_buffer").items() if layer in n}
        with attached(**present) as store:
            optimizer.rdu()
            assert {place for _, place in store.transfers} == set(present)
    assert optimizer.device_steps == (1,)


def test_without_a_program_there_is_nowhere_to_copy_to() -> None:
    _, optimizer = trained(AdamW, {})
    with pytest.raises(NoDeviceError, match="no program is loaded"):
        optimizer.rdu()
    with attached(other=torch.zeros(1)), pytest.raises(NoDeviceError, match="no such tensor"):
        optimizer.cpu()
    with pytest.raises(NoDeviceError, match="no program is loaded"):
        SGD(model().parameters()).rdu()
    with pytest.raises(NoDeviceError, match="no program is loaded"):
        SGD([model()[0].weight]).rdu()


def test_an_optimizer_of_parameters_without_elements_needs_no_device() -> None:
    weight = nn.Parameter(torch.ones(0, 4))
    optimizer = AdamW([weight])
    assert to_rdu(optimizer, {"w": weight}) == (0,)
    to_cpu(optimizer, (0,), {"w": weight})
    assert not optimizer.state


def test_uneven_steps_cannot_go_to_the_device() -> None:
    one, optimizer = trained(AdamW, {})
    optimizer.state[one[0].weight]["step"] += 1
    with pytest.raises(UsageError, match="of a group 3 times and others 4 times"):
        optimizer.rdu()


def test_groups_may_have_made_different_numbers_of_steps() -> None:
    one = model()
    first, *rest = one.parameters()
    optimizer = AdamW([{"params": [first]}, {"params": rest}])
    for step in range(3):
        differentiate(one, seed=step)
        if step:
            first.grad = None
        optimizer.step()
    assert steps_done(optimizer) == (1, 3)
    with attached(**places(one, "exp_avg", "exp_avg_sq")):
        optimizer.rdu()
        assert optimizer.device_steps == (1, 3)
        optimizer.state.clear()
        optimizer.cpu()
    assert [int(optimizer.state[p]["step"]) for p in (first, *rest)] == [1, 3, 3, 3][
        : 1 + len(rest)
    ]


def test_optimizers_of_torch_are_copied_by_name() -> None:
    one = model(converted=False)
    names = {f"model__{name.replace('.', '__')}": p for name, p in one.named_parameters()}
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9)
    differentiate(one)
    optimizer.step()
    memory = {f"{n}__momentum_buffer": torch.zeros(tuple(p.shape)) for n, p in names.items()}
    with attached(**memory) as store:
        assert to_rdu(optimizer, names) == (1,)
        for tensor in store.places.values():
            tensor += 1
        before = optimizer.state[one[0].weight]["momentum_buffer"]
        wanted = before + 1
        to_cpu(optimizer, (1,), names)
        assert torch.equal(optimizer.state[one[0].weight]["momentum_buffer"], wanted)
        assert torch.equal(before + 1, wanted), "the host's own tensor stays as it was"
        # One whose state was never on the host: nobody has said that its steps round at random.
        fresh = torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9)
        to_cpu(fresh, (1,), names)
        assert torch.equal(fresh.state[one[0].weight]["momentum_buffer"], wanted)
        assert not any(ROUNDING_STEPS in group for group in fresh.param_groups)


def test_state_is_made_when_the_device_asks_for_it() -> None:
    half = model(dtype=torch.bfloat16)
    optimizer = AdamW(half.parameters(), lr=0.1, fp32_params=True)
    weight = half[0].weight
    made = state_materializers(optimizer)
    assert len(made) == 3 * len(list(half.parameters()))
    average, master = (made[f"{weight.sn_name}__{key}"] for key in ("exp_avg", "master"))
    assert torch.equal(average(weight), torch.zeros(4, 3))
    assert torch.equal(master(weight), samba.to_torch(weight).detach().float())
    differentiate(half)
    optimizer.step()
    assert torch.equal(average(weight), optimizer.state[weight]["exp_avg"])
    master(weight).zero_()
    assert optimizer.state[weight]["master"].any(), "the device has a copy"
    unnamed = nn.Parameter(torch.ones(2))
    assert list(state_materializers(torch.optim.SGD([unnamed]), {"w": unnamed})) == [
        "w__momentum_buffer"
    ]
