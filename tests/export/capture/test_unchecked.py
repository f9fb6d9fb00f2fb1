"""Functions that look at values in torch, in modules that are traced without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.errors import UsageError
from samba_onnx.export.capture import unchecked
from tests.export.training_models import trained

COUNTS, WEIGHTS = torch.tensor([1, 3, 2, 1, 1]), torch.tensor([0.5, 2.0, 1.0, 0.25, 3.0])


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("counts", [None, COUNTS])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("correction", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 5), (5,), (1, 5)])
@pytest.mark.parametrize("integers", [False, True])
def test_covariances_are_torchs(
    counts: Tensor | None,
    weights: Tensor | None,
    correction: int,
    shape: tuple[int, ...],
    integers: bool,
) -> None:
    value = torch.randint(-9, 9, shape) if integers else torch.randn(shape)
    options: dict[str, Any] = {
        "correction": correction,
        "fweights": counts,
        "aweights": weights,
    }
    found = unchecked.covariance(value, **options)
    torch.testing.assert_close(found, torch.cov(value, **options))


@pytest.mark.filterwarnings("ignore:cov")
@pytest.mark.parametrize("shape", [(3, 1), (1,), (2, 0)])
def test_covariances_of_too_few_observations_are_torchs(shape: tuple[int, ...]) -> None:
    value = torch.randn(shape)
    torch.testing.assert_close(unchecked.covariance(value), torch.cov(value), equal_nan=True)


@pytest.mark.parametrize("shape", [(3, 5), (5,)])
def test_correlations_are_torchs(shape: tuple[int, ...]) -> None:
    value = torch.randn(shape)
    torch.testing.assert_close(unchecked.correlation(value), torch.corrcoef(value))


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 4, 6])
def test_combinations_are_torchs(count: int, replacement: bool) -> None:
    value = torch.randn(5)
    found = unchecked.combinations(value, count, replacement)
    assert torch.equal(found, torch.combinations(value, count, replacement))


@pytest.mark.parametrize("shape", [(4, 3), (4, 1), (4,)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("full", [False, True])
def test_losses_of_variances_are_torchs(shape: tuple[int, ...], reduction: str, full: bool) -> None:
    value, target = torch.randn(2, 4, 3, dtype=torch.float64).requires_grad_()
    variance = torch.rand(shape, dtype=torch.float64).requires_grad_()
    results = []
    for function in (unchecked.gaussian_nll_loss, functional.gaussian_nll_loss):
        loss = function(value, target, variance, full=full, eps=0.5, reduction=reduction)
        results.append([loss, *torch.autograd.grad(loss.sum(), [value, variance])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def test_a_loss_of_one_variance_is_torchs() -> None:
    value, target = torch.randn(2, 4)
    found = unchecked.gaussian_nll_loss(value, target, 0.25)
    torch.testing.assert_close(found, functional.gaussian_nll_loss(value, target, 0.25))


def test_variances_of_another_size_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\[4, 3\] is given var of \[3\]"):
        unchecked.gaussian_nll_loss(torch.ones(4, 3), torch.ones(4, 3), torch.ones(3))


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "loss of variances": lambda x, y: nn.GaussianNLLLoss()(x, y, x.exp()),
    "covariances": lambda x, y: x.t().cov().square().sum(),
    "correlations": lambda x, y: torch.corrcoef(x).sin().sum(),
    "combinations": lambda x, y: torch.combinations(x[0], 2).prod(1).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_modules_train_with_them(name: str) -> None:
    class Called(nn.Linear):
        def forward(self, value: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            found = super().forward(value)
            return found, LOSSES[name](found, target)

    trained(Called(4, 3), (torch.randn(6, 4), torch.randn(6, 3)), loss_indices=[1])
