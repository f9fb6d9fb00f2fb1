"""Fake quantisation, counts and sparse gradients, trained on the device as in torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao import quantization
from torch.ao.nn import qat
from torch.nn import functional

from tests.training.trajectory import Case, differences, eager, on_device, sgd


class Net(nn.Module):
    """A layer with something behind it, and a loss."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        result = self.inner(self.first(x))
        return functional.mse_loss(result, torch.ones_like(result)), result


class Learnt(nn.Module):
    """Steps whose size and zero point are trained."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels,), 0.07))
        self.zero = nn.Parameter(torch.full((channels,), 3.2))

    def forward(self, x: Tensor) -> Tensor:
        if len(self.scale) == 1:
            return torch._fake_quantize_learnable_per_tensor_affine(
                x, self.scale, self.zero, 0, 15, 0.5
            )
        operands = (self.scale, self.zero, 1, 0, 15, 0.5)
        return torch._fake_quantize_learnable_per_channel_affine(x, *operands)


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def fused() -> nn.Module:
    observer = quantization.MovingAverageMinMaxObserver
    limits = {"quant_min": 0, "quant_max": 255}
    return quantization.FusedMovingAvgObsFakeQuantize(observer=observer, **limits)


def observing() -> nn.Module:
    observer: Any = quantization.MinMaxObserver
    return quantization.FakeQuantize(observer=observer, quant_min=0, quant_max=255)


def linear() -> nn.Module:
    config = quantization.get_default_qat_qconfig("fbgemm")
    layer = qat.Linear(5, 3, qconfig=config)
    layer(torch.randn(2, 5))  # gives its observers their sizes
    return layer


STEPS = torch.tensor([0.1, 0.2, 0.05, 0.3, 0.02])
QUANTISED: dict[str, Callable[[], nn.Module]] = {
    "steps of one size": lambda: Function(
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15)
    ),
    "steps of channels": lambda: Function(
        lambda x: torch.fake_quantize_per_channel_affine(
            x, STEPS, torch.zeros(5, dtype=torch.int32), 1, -8, 7
        )
    ),
    "learnt steps": lambda: Learnt(1),
    "learnt steps of channels": lambda: Learnt(5),
    "a moving range": fused,
    "a range": observing,
    "a linear layer": linear,
}


@pytest.mark.filterwarnings("ignore::samba_onnx.errors.BranchWarning")  # an observer's own
@pytest.mark.parametrize("name", QUANTISED)
def test_fake_quantisation_trains_as_in_torch(name: str, tmp_path: Path) -> None:
    """Not against float64: there another number lies on the edge of a step."""
    case = Case(name, lambda: Net(QUANTISED[name]()), lambda: {"x": torch.randn(8, 6)}, sgd)
    single = eager(case, torch.float32)
    made = on_device(case, tmp_path)
    assert differences(made, single, single) == []


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(7))

    def forward(self, labels: Tensor) -> tuple[Tensor]:
        counts = torch.bincount(labels.reshape(-1), minlength=7)
        sums = labels.reshape(-1).bincount(self.weight.detach()[labels.reshape(-1)], 7)
        return (((counts + sums) * self.weight).square().mean(),)


class Sparse(nn.Module):
    def __init__(self, kind: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.table = kind(7, 4, sparse=True, **options)

    def forward(self, labels: Tensor) -> tuple[Tensor]:
        return (self.table(labels).square().mean(),)


def plain_sgd(optim: Any, model: nn.Module) -> list[Any]:
    return [optim.SGD(model.parameters(), lr=0.1)]


LOOKED_UP: dict[str, Callable[[], nn.Module]] = {
    "counts": Counting,
    "rows with sparse gradients": lambda: Sparse(nn.Embedding),
    "bags with sparse gradients": lambda: Sparse(nn.EmbeddingBag, mode="sum"),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_counts_and_sparse_gradients_train_as_in_torch(name: str, tmp_path: Path) -> None:
    case = Case(name, LOOKED_UP[name], lambda: {"labels": torch.randint(0, 7, (5, 3))}, plain_sgd)
    exact, single = (dense(eager(case, dtype)) for dtype in (torch.float64, torch.float32))
    assert differences(on_device(case, tmp_path), exact, single) == []


def dense(trajectory: Any) -> Any:
    """Write sparse gradients out, with zeros."""
    for step in trajectory.steps:
        step.update({name: value.to_dense() for name, value in step.items()})
    return trajectory
