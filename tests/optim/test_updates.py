"""Steps of the OPT and GRADNORM parts against torch.optim, from the same gradients."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from samba_onnx.export.programs.optimizers import (
    clip_coefficient_name,
    gradient_name,
)
from samba_onnx.optim import SGD, Adam, AdamW
from samba_onnx.program.kinds import SectionType
from tests.optim.running import prepare, set_gradients
from tests.optim.update_cases import CASES, parameters

STEPS = 100
TOLERANCE = 2e-6
"""Absolute, after 100 steps of weights between -4 and 4, whose spacing in float32 is up to 4.8e-7.
The largest difference that was seen is 9.5e-7, of nesterov; torch itself is as far from float64."""


def new_gradients(names: Mapping[str, torch.Tensor], generator: torch.Generator) -> None:
    for tensor in names.values():
        noise = torch.randn(tensor.shape, generator=generator)
        tensor.grad = (0.1 * noise + 0.02 * tensor.detach()).to(tensor.dtype)


def rate(step: int) -> float:
    return 0.02 * (1 + math.cos(step / 30))


def largest_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.double() - theirs.detach().double()).abs().max())


@pytest.mark.parametrize(
    ("ours", "theirs", "options", "dtype", "tolerance"),
    [
        *((*case, torch.float32, TOLERANCE) for case in CASES),
        *((*CASES[index], torch.float64, 1e-13) for index in (8, -5, -12)),
    ],
)
def test_hundred_steps_equal_those_of_torch(
    ours: Any, theirs: Any, options: dict[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    names = parameters(dtype)
    defaults = {} if ours is SGD else {"betas": (0.9, 0.997), "weight_decay": 0}
    torchs = theirs(names.values(), **{"lr": 0.0, **defaults, **options})
    runner = prepare([ours(names.values(), **{"lr": 0.0, **options})], names)
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        new_gradients(names, generator)
        set_gradients(runner, names)
        torchs.param_groups[0]["lr"] = rate(step)
        torchs.step()
        runner.run(hyperparameters={"lr": rate(step)})
    for name, tensor in names.items():
        assert largest_difference(runner.memory[name], tensor) <= tolerance, name
        for key, value in torchs.state[tensor].items():
            if key != "step" and value is not None:
                difference = largest_difference(runner.memory[f"{name}__{key}"], value)
                assert difference <= tolerance, (name, key)


@pytest.mark.parametrize(
    ("ours", "theirs", "changes"),
    [
        (SGD, torch.optim.SGD, {"weight_decay": 0.3}),
        (AdamW, torch.optim.AdamW, {"weight_decay": 0.3, "eps": 1e-3, "betas": (0.5, 0.6)}),
        (Adam, torch.optim.Adam, {"weight_decay": 0.3, "eps": 1e-3, "betas": (0.5, 0.6)}),
    ],
)
def test_hyperparameters_of_a_run_override_those_of_the_optimizer(
    ours: Any, theirs: Any, changes: dict[str, Any]
) -> None:
    names = parameters()
    runner = prepare([ours(names.values(), lr=0.0)], names)
    torchs = theirs(names.values(), lr=0.1, **changes)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        new_gradients(names, generator)
        set_gradients(runner, names)
        torchs.step()
        runner.run(hyperparameters={"lr": 0.1, **changes})
    for name, tensor in names.items():
        assert largest_difference(runner.memory[name], tensor) <= TOLERANCE


SCHEDULES: dict[str, tuple[Any, Any, dict[str, Any], list[dict[str, Any]]]] = {
    "momentum is set": (SGD, torch.optim.SGD, {}, [{}, {}, {"momentum": 0.9}, {}, {}]),
    "momentum comes and goes": (
        SGD,
        torch.optim.SGD,
        {"momentum": 0.8},
        [{}, {}, {"momentum": 0.0}, {}, {"momentum": 0.5}, {"momentum": 0}, {"momentum": 0.95}, {}],
    ),
    "dampening": (
        SGD,
        torch.optim.SGD,
        {},
        [{"dampening": 0.3}, {}, {"momentum": 0.9}, {}, {"momentum": 0.0}, {"momentum": 0.7}, {}],
    ),
    "nesterov without": (
        SGD,
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
        [{}, {}, {"momentum": 0.0}, {}, {"momentum": 0.6, "weight_decay": 0.1}, {}],
    ),
    "maximize": (
        SGD,
        torch.optim.SGD,
        {"maximize": True},
        [{}, {"weight_decay": 0.1}, {"momentum": 0.9}, {}, {"weight_decay": 0.0}],
    ),
    "decay of SGD": (
        SGD,
        torch.optim.SGD,
        {},
        [{}, {"weight_decay": 0.1}, {}, {"weight_decay": 0}],
    ),
    **{
        f"{kind.__name__}": (
            kind,
            getattr(torch.optim, kind.__name__),
            {"amsgrad": kind is Adam},
            [
                {},
                {"weight_decay": 0.1},
                {"betas": (0.5, 0.7)},
                {"eps": 1e-3},
                {"betas": (0.0, 0.9), "weight_decay": 0.0},
                {"betas": (0.95, 0.9999), "eps": 1e-8},
                {},
            ],
        )
        for kind in (Adam, AdamW)
    },
}
"""What a run sets before each step, of an optimizer that was compiled with other values."""


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_number_may_change_at_every_step(name: str) -> None:
    ours, theirs, options, schedule = SCHEDULES[name]
    names = parameters()
    defaults = {} if ours is SGD else {"betas": (0.9, 0.997), "weight_decay": 0}
    torchs = theirs(names.values(), **{"lr": 0.05, **defaults, **options})
    runner = prepare([ours(names.values(), lr=0.0, **options)], names)
    generator = torch.Generator().manual_seed(1)
    current: dict[str, Any] = {"lr": 0.05}
    for changes in schedule:
        current |= changes
        new_gradients(names, generator)
        set_gradients(runner, names)
        torchs.param_groups[0].update(changes)
        torchs.step()
        runner.run(hyperparameters=current)
        for parameter, tensor in names.items():
            assert largest_difference(runner.memory[parameter], tensor) <= TOLERANCE
    has_state = ours is not SGD or any(step.get("momentum") for step in (options, *schedule))
    assert all(bool(torchs.state[tensor]) == has_state for tensor in names.values())
    for parameter, tensor in names.items():
        for key, value in torchs.state[tensor].items():
            if key != "step" and value is not None:
                difference = largest_difference(runner.memory[f"{parameter}__{key}"], value)
                assert difference <= TOLERANCE, (parameter, key)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_without_momentum_a_bad_gradient_leaves_no_trace(value: float) -> None:
    names = parameters()
    runner = prepare([SGD(names.values(), lr=0.1)], names)
    before = {name: runner.memory[name].clone() for name in names}
    for name in names:
        runner.memory[gradient_name(name)].fill_(value)
    runner.run()
    for name in names:
        assert not runner.memory[name].isfinite().any()
        assert not runner.memory[f"{name}__momentum_buffer"].any()
        runner.memory[name].copy_(before[name])
        runner.memory[gradient_name(name)].fill_(1.0)
    runner.run()
    for name in names:
        torch.testing.assert_close(runner.memory[name], before[name] - 0.1)


@pytest.mark.parametrize("limit", [0.0, 0.5, 1e6])
@pytest.mark.parametrize(("ours", "theirs"), [(SGD, torch.optim.SGD), (AdamW, torch.optim.AdamW)])
def test_gradients_are_clipped_as_torch_clips_them(ours: Any, theirs: Any, limit: float) -> None:
    names = parameters()
    torchs = theirs(names.values(), lr=0.05, weight_decay=0)
    options = {} if ours is SGD else {"betas": (0.9, 0.999)}
    optimizer = ours(names.values(), lr=0.05, max_grad_norm=limit, **options)
    runner = prepare([optimizer], names)
    assert [part.type for part in runner.parts.update] == [SectionType.GRADNORM, SectionType.OPT]
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        new_gradients(names, generator)
        set_gradients(runner, names)
        norm = nn.utils.clip_grad_norm_(names.values(), limit)
        torchs.step()
        runner.run()
        coefficient = runner.memory[clip_coefficient_name(runner.records[0])]
        assert float(coefficient) == pytest.approx(min(1.0, limit / (float(norm) + 1e-6)), rel=5e-7)
    for name, tensor in names.items():
        assert largest_difference(runner.memory[name], tensor) <= TOLERANCE


def test_the_norm_of_many_numbers_is_exact_where_torchs_is_not() -> None:
    # float32 sums of 3 million equal-signed squares in one go lose 4 digits.
    weight = nn.Parameter(torch.zeros(1733, 1801))
    weight.grad = torch.rand(weight.shape, generator=torch.Generator().manual_seed(0)) + 1
    names = {"w": weight}
    runner = prepare([SGD([weight], lr=0.0, max_grad_norm=1.0)], names)
    set_gradients(runner, names)
    runner.run()
    exact = 1 / (np.linalg.norm(weight.grad.numpy().astype(np.float64)) + 1e-6)
    got = float(runner.memory[clip_coefficient_name(runner.records[0])])
    assert got == pytest.approx(exact, rel=1e-6)


def test_a_gradient_that_is_not_a_number_is_not_clipped_away() -> None:
    names = parameters()
    runner = prepare([SGD(names.values(), lr=0.1, max_grad_norm=1.0)], names)
    new_gradients(names, torch.Generator())
    names["model__w1"].grad[3] = math.nan  # type: ignore[index]
    set_gradients(runner, names)
    runner.run()
    assert bool(runner.memory["model__w0"].isnan().all())  # as of torch


def test_optimizers_and_groups_keep_to_their_own_parameters() -> None:
    names = parameters()
    first, second, *rest = names.values()
    torchs_groups: list[dict[str, Any]] = [{"params": [first], "lr": 0.1}, {"params": [second]}]
    theirs = [
        torch.optim.AdamW(torchs_groups, lr=0.01),
        torch.optim.SGD(rest, lr=0.02, momentum=0.5),
    ]
    first_groups: list[dict[str, Any]] = [
        {"params": [first], "lr": 0.1},
        {"params": [second], "weight_decay": 0.01},
    ]
    ours = [
        AdamW(
            first_groups,
            lr=0.01,
            betas=(0.9, 0.999),
            weight_decay=0.01,
            max_grad_norm=1e6,
        ),
        SGD(rest, lr=0.02, momentum=0.5, argin_region_name="rest", max_grad_norm=0.5),
    ]
    runner = prepare(ours, names)
    generator = torch.Generator().manual_seed(1)
    for step in range(10):
        new_gradients(names, generator)
        set_gradients(runner, names)
        if step == 5:
            theirs[1].param_groups[0]["lr"] = 0.2
        nn.utils.clip_grad_norm_(rest, 0.5)
        for optimizer in theirs:
            optimizer.step()
        runner.run(hyperparameters={"rest_lr": 0.2} if step >= 5 else {})
    for name, tensor in names.items():
        assert largest_difference(runner.memory[name], tensor) <= TOLERANCE
    kinds = [part.type for part in runner.parts.update]
    assert kinds == [SectionType.GRADNORM] * 2 + [SectionType.OPT] * 2


@pytest.mark.parametrize(
    ("ours", "options"),
    [(SGD, {"momentum": 0.9}), (AdamW, {"weight_decay": 0.1}), (Adam, {"amsgrad": True})],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_computed_in_float32_and_rounded_once(
    ours: Any, options: dict[str, Any], dtype: torch.dtype
) -> None:
    names = parameters(dtype)
    runner = prepare([ours(names.values(), lr=0.05, **options)], names)
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        wide = {name: nn.Parameter(runner.memory[name].float()) for name in names}
        reference = ours(wide.values(), lr=0.05, **options)
        for name, tensor in wide.items():
            state = {
                key.removeprefix(f"{name}__"): value.float()
                for key, value in runner.memory.items()
                if key.startswith(f"{name}__") and key != gradient_name(name)
            }
            if ours is not SGD:
                state["step"] = torch.tensor(float(runner.steps[0][0]))
            reference.state[tensor] = state
        new_gradients(names, generator)
        for name, tensor in wide.items():
            tensor.grad = names[name].grad.float()  # type: ignore[union-attr]
        set_gradients(runner, names)
        runner.run()
        reference.step()
        for name, tensor in wide.items():
            # Where float32's last bit differs, rounding may go the other way.
            spacing = torch.finfo(dtype).eps
            got, wanted = runner.memory[name], tensor.detach().to(dtype)
            torch.testing.assert_close(got, wanted, rtol=spacing, atol=1e-7)
            assert float((got != wanted).float().mean()) <= 0.02


@pytest.mark.parametrize(
    ("ours", "options"),
    [(SGD, {}), (SGD, {"momentum": 0.9}), (AdamW, {"weight_decay": 0.1}), (Adam, {})],
)
def test_master_weights_follow_float32(ours: Any, options: dict[str, Any]) -> None:
    names = parameters(torch.bfloat16)
    wide = {name: nn.Parameter(tensor.detach().float()) for name, tensor in names.items()}
    reference = ours(wide.values(), lr=0.003, **options)
    runner = prepare([ours(names.values(), lr=0.003, fp32_params=True, **options)], names)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        new_gradients(names, generator)
        for name, tensor in wide.items():
            tensor.grad = names[name].grad.float()  # type: ignore[union-attr]
        set_gradients(runner, names)
        runner.run()
        reference.step()
    for name, tensor in wide.items():
        master = runner.memory[f"{name}__master"]
        assert largest_difference(master, tensor) <= TOLERANCE
        assert torch.equal(runner.memory[name], master.bfloat16())
        # The point of it: bfloat16 alone cannot follow.
        assert runner.memory[name].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("ours", "options"),
    [(SGD, {"momentum": 0.9, "dampening": 0.2}), (AdamW, {"amsgrad": True}), (Adam, {})],
)
def test_a_step_continues_bit_for_bit_in_another_runner(ours: Any, options: dict[str, Any]) -> None:
    names = parameters()
    first = prepare([ours(names.values(), lr=0.05, **options)], names)
    generator = torch.Generator().manual_seed(1)
    gradients = []
    for _ in range(12):
        new_gradients(names, generator)
        gradients.append(copy.deepcopy({n: t.grad for n, t in names.items()}))
    second = prepare([ours(names.values(), lr=0.05, **options)], names)
    for number, step in enumerate(gradients):
        for runner in (first, second) if number >= 6 else (first,):
            for name, gradient in step.items():
                assert gradient is not None
                runner.memory[gradient_name(name)].copy_(gradient)
        if number == 6:
            for name, tensor in first.memory.items():
                second.memory[name].copy_(tensor)
            second.steps = list(first.steps)
        first.run()
        if number >= 6:
            second.run()
    for name in names:
        assert torch.equal(first.memory[name], second.memory[name])
