"""What is set on an optimizer on the host counts, one number at a time; what no run can change is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.optim import SGD, Adam, OptimizerRecord, optimizer_record
from samba_onnx.sessions.host_settings import HostSettings


def settings_of(kind: Any, **options: Any) -> tuple[Any, OptimizerRecord, HostSettings]:
    """Return an optimizer of two groups, its record, and what watches it."""
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = kind([{"params": [weight]} for weight in weights], lr=0.5, **options)
    names = {f"w{place}": weight for place, weight in enumerate(weights)}
    record = optimizer_record(optimizer, names=names)
    return optimizer, record, HostSettings(optimizer, record)


@pytest.mark.parametrize("kind", [SGD, torch.optim.SGD])
def test_what_nobody_touched_is_the_same_record(kind: Any) -> None:
    _, record, settings = settings_of(kind, momentum=0.5)
    assert not settings.is_unchanged()
    assert settings.followed(record) is record
    assert settings.is_unchanged()


NUMBERS: list[tuple[Any, str, Any, dict[str, float]]] = [
    (SGD, "lr", 0.25, {"lr": 0.25}),
    (SGD, "lr", -0.25, {"lr": -0.25}),
    (SGD, "momentum", 0.75, {"momentum": 0.75}),
    (SGD, "momentum", 0.0, {"momentum": 0.0}),
    (SGD, "dampening", 0.125, {"dampening": 0.125}),
    (SGD, "weight_decay", 0.5, {"weight_decay": 0.5}),
    (Adam, "betas", (0.25, 0.5), {"beta1": 0.25, "beta2": 0.5}),
    (Adam, "betas", (0.0, 0.5), {"beta1": 0.0, "beta2": 0.5}),
    (Adam, "eps", 0.5, {"eps": 0.5}),
    (Adam, "weight_decay", 0.5, {"weight_decay": 0.5}),
]


@pytest.mark.parametrize(("kind", "key", "value", "changed"), NUMBERS)
def test_a_number_is_followed_in_its_group(
    kind: Any, key: str, value: Any, changed: dict[str, float]
) -> None:
    optimizer, record, settings = settings_of(kind, **({"momentum": 0.5} if kind is SGD else {}))
    settings.followed(record)
    optimizer.param_groups[1][key] = value
    assert not settings.is_unchanged()
    after = settings.followed(record)
    assert after.groups[0] == record.groups[0]
    assert after.groups[1].hyperparameters == {**record.groups[1].hyperparameters, **changed}
    # Once is enough: what a run sets later is not taken back.
    assert settings.is_unchanged()
    assert settings.followed(record) is record


def test_a_norm_is_followed_where_the_program_has_one() -> None:
    optimizer, record, settings = settings_of(SGD, max_grad_norm=1.0)
    assert settings.followed(record) is record
    optimizer.max_grad_norm = 2
    assert not settings.is_unchanged()
    after = settings.followed(record)
    assert after.max_grad_norm == 2.0
    assert after.groups == record.groups
    assert settings.followed(after) is after
    optimizer.max_grad_norm = None
    with pytest.raises(UsageError, match=r"^max_grad_norm is None now, .* compiled with one: comp"):
        settings.followed(after)
    other, plain, watching = settings_of(SGD)
    other.max_grad_norm = 2.0
    with pytest.raises(
        UsageError, match=r"^max_grad_norm is 2\.0 now, .* without one: compile the"
    ):
        watching.followed(plain)


def test_a_rate_that_is_a_tensor_may_change_in_place() -> None:
    optimizer, record, settings = settings_of(SGD)
    rate = torch.tensor(0.5)
    optimizer.param_groups[0]["lr"] = rate
    assert settings.followed(record) is record
    assert not settings.is_unchanged()
    rate.fill_(0.25)
    assert settings.followed(record).groups[0].hyperparameters["lr"] == 0.25


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        (SGD, "lr", math.nan, "lr of an optimizer is nan on the host, .* to a finite number$"),
        (SGD, "weight_decay", math.inf, "weight_decay of an optimizer is inf"),
        (Adam, "betas", (0.5, 1.0), "beta2 of an optimizer is 1.0 .* number from 0 to below 1$"),
        (Adam, "betas", (-0.5, 0.5), "beta1 of an optimizer is -0.5 .* number from 0 to below 1$"),
    ],
)
def test_a_number_that_no_step_can_be_made_with_is_refused(
    kind: Any, key: str, value: Any, message: str
) -> None:
    optimizer, record, settings = settings_of(kind)
    optimizer.param_groups[0][key] = value
    with pytest.raises(UsageError, match=message):
        settings.followed(record)


@pytest.mark.parametrize("key", ["nesterov", "maximize"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_choice_that_was_compiled_cannot_be_switched(key: str, compiled: bool) -> None:
    optimizer, record, settings = settings_of(SGD, momentum=0.5, **{key: compiled})
    settings.followed(record)
    optimizer.param_groups[1][key] = not compiled
    assert not settings.is_unchanged()
    with pytest.raises(UsageError, match=rf"{key} of SGD is {not compiled} now, but it was comp"):
        settings.followed(record)


def test_other_parameters_than_those_that_were_traced_are_refused() -> None:
    optimizer, record, settings = settings_of(SGD)
    settings.followed(record)
    optimizer.param_groups[1]["params"].append(nn.Parameter(torch.ones(1)))
    assert not settings.is_unchanged()
    with pytest.raises(UsageError, match="groups of SGD have other parameters"):
        settings.followed(record)


def test_schedulers_do_not_warn_of_a_first_step() -> None:
    optimizer, _, settings = settings_of(SGD)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    settings.stepped()
    scheduler.step()  # warnings are errors here
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]
