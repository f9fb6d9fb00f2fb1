"""Losses and their gradients, against torch's own kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.export.operators.harness import check_operator

aten = torch.ops.aten


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def chances(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def integers(high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


every_reduction = pytest.mark.parametrize("reduction", [0, 1, 2], ids=["none", "mean", "sum"])
every_shape = pytest.mark.parametrize("shape", [(), (7,), (3, 4, 5)])
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def slope_of(shape: tuple[int, ...], reduction: int) -> torch.Tensor:
    return normal(*shape, seed=9) if reduction == 0 else torch.tensor(0.7)


@every_shape
@every_reduction
@every_dtype
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mse_loss", ()),
        ("smooth_l1_loss", (1.0,)),
        ("smooth_l1_loss", (0.3,)),
        ("smooth_l1_loss", (0.0,)),
        ("huber_loss", (1.0,)),
        ("huber_loss", (0.4,)),
    ],
)
def test_differences(
    name: str,
    options: tuple[float, ...],
    shape: tuple[int, ...],
    reduction: int,
    dtype: torch.dtype,
) -> None:
    pair = normal(*shape).to(dtype), normal(*shape, seed=1).to(dtype)
    check_operator(getattr(aten, name).default, *pair, reduction, *options)
    backward = getattr(aten, f"{name}_backward").default
    slope = slope_of(shape, reduction).to(dtype)
    check_operator(backward, slope, *pair, reduction, *options)


@every_shape
@every_reduction
def test_losses_that_have_no_gradient_of_their_own(shape: tuple[int, ...], reduction: int) -> None:
    value, target = normal(*shape), chances(*shape, seed=1)
    check_operator(aten.l1_loss.default, value, target, reduction)
    check_operator(aten.kl_div.default, value, target, reduction)
    check_operator(aten.kl_div.default, value, target.log(), reduction, log_target=True)
    check_operator(aten.kl_div.default, value, target.round(), reduction)
    counts = integers(5, *shape, seed=2).float()
    rest = (1e-8, reduction)
    check_operator(aten.poisson_nll_loss.default, value, counts, True, True, *rest)
    check_operator(aten.poisson_nll_loss.default, chances(*shape), counts, False, False, *rest)


@every_shape
@every_reduction
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy(shape: tuple[int, ...], reduction: int, weighted: bool) -> None:
    value, target = chances(*shape), chances(*shape, seed=1)
    weight = chances(*shape, seed=2) if weighted else None
    check_operator(aten.binary_cross_entropy.default, value, target, weight, reduction)
    slope = slope_of(shape, reduction)
    backward = aten.binary_cross_entropy_backward.default
    check_operator(backward, slope, value, target, weight, reduction)


@every_reduction
def test_binary_cross_entropy_at_the_borders(reduction: int) -> None:
    value = torch.tensor([0.0, 1.0, 0.0, 1.0, 1e-7, 1 - 1e-7, 1e-30])
    target = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    check_operator(aten.binary_cross_entropy.default, value, target, None, reduction)
    slope = slope_of((7,), reduction)
    check_operator(
        aten.binary_cross_entropy_backward.default, slope, value, target, None, reduction
    )


def test_binary_cross_entropy_of_small_chances() -> None:
    value = torch.tensor([1e-8, 3e-6, 1e-5])
    check_operator(aten.binary_cross_entropy.default, value, torch.zeros(3), None, 0)


@every_reduction
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("positive", [False, True])
def test_binary_cross_entropy_with_logits(reduction: int, weighted: bool, positive: bool) -> None:
    value, target = normal(3, 4, 5) * 20, chances(3, 4, 5, seed=1)
    weight = chances(3, 4, 5, seed=2) if weighted else None
    extra = chances(5, seed=3) * 4 if positive else None
    check_operator(
        aten.binary_cross_entropy_with_logits.default, value, target, weight, extra, reduction
    )


@every_shape
@every_reduction
def test_soft_margin_loss(shape: tuple[int, ...], reduction: int) -> None:
    value, target = normal(*shape) * 4, integers(2, *shape, seed=1).float() * 2 - 1
    check_operator(aten.soft_margin_loss.default, value, target, reduction)
    slope = slope_of(shape, reduction)
    check_operator(aten.soft_margin_loss_backward.default, slope, value, target, reduction)


CHOICES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((5,), ()),
    ((6, 5), (6,)),
    ((2, 5, 3, 4), (2, 3, 4)),
]
every_choice = pytest.mark.parametrize(("shape", "positions"), CHOICES)


def targets(positions: tuple[int, ...], ignored: int | None) -> torch.Tensor:
    target = integers(5, *positions, seed=4)
    if ignored is not None and positions:
        target.view(-1)[::3] = ignored
    return target


@every_choice
@every_reduction
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_negative_log_likelihood(
    shape: tuple[int, ...],
    positions: tuple[int, ...],
    reduction: int,
    weighted: bool,
    ignored: int,
) -> None:
    value = torch.log_softmax(normal(*shape), min(1, len(shape) - 1))
    target = targets(positions, ignored)
    weight = chances(5, seed=2) if weighted else None
    rest = (target, weight, reduction, ignored)
    middle = "2d" if len(shape) == 4 else ""
    forward = getattr(aten, f"nll_loss{middle}_forward").default
    check_operator(forward, value, *rest)
    check_operator(aten.nll_loss_nd.default, value, *rest)
    slope = slope_of(positions, reduction)
    total = forward(value, *rest)[1]
    backward = getattr(aten, f"nll_loss{middle}_backward").default
    check_operator(backward, slope, value, *rest, total)


@every_choice
@every_reduction
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("ignored", [-100, 2, None])
def test_cross_entropy(
    shape: tuple[int, ...],
    positions: tuple[int, ...],
    reduction: int,
    weighted: bool,
    smoothing: float,
    ignored: int | None,
) -> None:
    value, weight = normal(*shape), chances(5, seed=2) if weighted else None
    target: Any
    if ignored is None:
        target = torch.softmax(normal(*shape, seed=3), min(1, len(shape) - 1))
    else:
        target = targets(positions, ignored)
    check_operator(
        aten.cross_entropy_loss.default,
        value,
        target,
        weight,
        reduction,
        -100 if ignored is None else ignored,
        smoothing,
    )


def test_nothing_but_ignored_labels() -> None:
    value, target = normal(3, 5), torch.full((3,), -100)
    check_operator(aten.cross_entropy_loss.default, value, target)
    check_operator(aten.nll_loss_forward.default, value, target, None, 2, -100)
