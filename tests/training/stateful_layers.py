"""Layers that change buffers or weights while they run, each in a small model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.nn.utils.parametrize import register_parametrization

from tests.training.stateful import RESULTS, ROWS, UNITS, WIDTH, around, case, reshaped
from tests.training.trajectory import Case


def _normalisations() -> dict[str, Callable[[], nn.Module]]:
    """Return all layers of torch.nn with running statistics, in all ways to keep these."""
    kinds = [(nn.BatchNorm1d, 3), (nn.BatchNorm2d, 4), (nn.BatchNorm3d, 5)]
    kinds += [(nn.InstanceNorm1d, 3), (nn.InstanceNorm2d, 4), (nn.InstanceNorm3d, 5)]
    layers: dict[str, Callable[[], nn.Module]] = {}
    ways: list[dict[str, Any]] = [
        {"momentum": None},
        {"momentum": 0.3, "affine": True},
        {"momentum": 1.0, "affine": False},
        {"momentum": 0.0, "eps": 1e-3},
    ]
    for kind, rank in kinds:
        for options in ways:
            arguments = {"track_running_stats": True, **options}
            text = ", ".join(f"{key}={value}" for key, value in options.items())
            layers[f"{kind.__name__}({text})"] = lambda kind=kind, rank=rank, arguments=arguments: (
                reshaped(rank, kind(UNITS, **arguments), places=4)
            )
    layers["BatchNorm1d without statistics"] = lambda: nn.BatchNorm1d(
        UNITS, track_running_stats=False
    )
    layers["BatchNorm1d of rows"] = lambda: nn.BatchNorm1d(UNITS, momentum=None)
    layers["SyncBatchNorm"] = lambda: nn.SyncBatchNorm(UNITS, momentum=None)
    layers["LazyBatchNorm1d"] = _materialised
    return layers


def _materialised() -> nn.Module:
    layer = nn.LazyBatchNorm1d(momentum=None)
    layer(torch.randn(2, UNITS))
    return layer


NORMALISATIONS = [case(name, around(make)) for name, make in _normalisations().items()]


class Symmetric(nn.Module):
    """Makes a square matrix symmetric."""

    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).mT


class Averaged(nn.Module):
    """A parametrization with a buffer of its own, which every use moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(UNITS, UNITS))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(x, alpha=0.1)
        return x - self.mean


def _square(change: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: change(nn.Linear(UNITS, UNITS))


def _convolution(change: Callable[[nn.Module], nn.Module], kind: type[nn.Module]) -> Any:
    return lambda: reshaped(3, change(kind(UNITS, UNITS, 3, padding=1)), places=4)


PARAMETRIZED = [
    case(name, around(make))
    for name, make in {
        "spectral_norm": _square(spectral_norm),
        "spectral_norm, two iterations": _square(lambda m: spectral_norm(m, n_power_iterations=2)),
        "spectral_norm of a convolution": _convolution(spectral_norm, nn.Conv1d),
        "spectral_norm of a transposed one": _convolution(spectral_norm, nn.ConvTranspose1d),
        "parametrizations.spectral_norm": _square(parametrizations.spectral_norm),
        "parametrizations.spectral_norm, three iterations": _square(
            lambda m: parametrizations.spectral_norm(m, n_power_iterations=3)
        ),
        "parametrizations.spectral_norm of a convolution": _convolution(
            parametrizations.spectral_norm, nn.Conv1d
        ),
        "weight_norm": _square(weight_norm),
        "parametrizations.weight_norm": _square(parametrizations.weight_norm),
        "orthogonal": _square(parametrizations.orthogonal),
        "orthogonal by Cayley": _square(
            lambda m: parametrizations.orthogonal(m, orthogonal_map="cayley")
        ),
        "symmetric": _square(lambda m: register_parametrization(m, "weight", Symmetric())),
        "two of them": _square(
            lambda m: register_parametrization(
                register_parametrization(m, "weight", Symmetric()), "weight", Averaged()
            )
        ),
    }.items()
]


class Average(nn.Module):
    """Divides by a moving average of magnitudes that includes the batch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(UNITS))
        self.register_buffer("last", torch.zeros(UNITS))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale.copy_(0.9 * self.scale + 0.1 * x.detach().abs().mean(0))
            self.last.copy_(x.detach()[-1])  # written and never read
        return x / (self.scale + 1e-3)


class Corrected(nn.Module):
    """Subtracts a moving average, corrected for its start by a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(UNITS))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.steps += 1
            self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean / (1 - 0.9**self.steps)


class Replaced(nn.Module):
    """Gives a buffer a new tensor in each step, as losses do that keep a centre."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(1, UNITS))

    def forward(self, x: Tensor) -> Tensor:
        self.centre = self.centre * 0.9 + x.detach().mean(0, keepdim=True) * 0.1
        return x - self.centre


class Queue(nn.Module):
    """Compares with the last batches, which it keeps in a queue, as contrastive learning does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.randn(3 * ROWS, UNITS))

    def forward(self, x: Tensor) -> Tensor:
        queue = self.queue.clone()
        near = torch.softmax(x @ queue.mT, 1) @ queue
        self.queue.copy_(torch.cat([x.detach(), self.queue[:-ROWS]]))
        return x + near


class Codebook(nn.Module):
    """A codebook whose entries follow moving averages of what is nearest to them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(6, UNITS))
        self.register_buffer("sizes", torch.ones(6))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, z: Tensor) -> Tensor:
        nearest = torch.cdist(z.detach(), self.codes).argmin(1)
        if self.training:
            with torch.no_grad():
                chosen = F.one_hot(nearest, 6).to(z.dtype)
                self.sizes.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
                self.sums.mul_(0.9).add_(chosen.mT @ z, alpha=0.1)
                total = self.sizes.sum()
                smooth = (self.sizes + 1e-5) / (total + 6e-5) * total
                self.codes.copy_(self.sums / smooth.unsqueeze(1))
        return z + (F.embedding(nearest, self.codes) - z).detach()


BUFFERED = [
    case(kind.__name__, around(kind)) for kind in (Average, Corrected, Replaced, Queue, Codebook)
]


class Lookup(nn.Module):
    """A regression on rows of a table."""

    def __init__(self, table: nn.Module, *, tied: bool = False) -> None:
        super().__init__()
        self.table = table
        self.outer = nn.Linear(WIDTH, RESULTS)
        self.tied = tied

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.table(x)
        y = self.outer(rows if rows.dim() == 2 else rows.mean(1))
        loss = F.mse_loss(y, target)
        if self.tied:
            loss = loss + 0.1 * F.cross_entropy(rows[:, 0] @ self.table.weight.mT, x[:, 0])
        return loss, y


class Function(nn.Module):
    """The same by the function, on a parameter that is looked up twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCABULARY, WIDTH) * 3)

    def forward(self, x: Tensor) -> Tensor:
        once = F.embedding(x, self.weight, max_norm=2.0)
        return once + F.embedding(x.flip(0), self.weight, max_norm=1.0, norm_type=1.0)


class BagFunction(nn.Module):
    """Bags by the function, with their own weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCABULARY, WIDTH) * 3)
        self.shares = nn.Parameter(torch.rand(ROWS, 3))

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding_bag(
            x, self.weight, max_norm=1.0, mode="sum", per_sample_weights=self.shares
        )


VOCABULARY = 10


def draw_indices() -> dict[str, Tensor]:
    indices = torch.randint(0, VOCABULARY, (ROWS, 3))
    return {"x": indices, "target": torch.randn(ROWS, RESULTS)}


def _table(**options: Any) -> nn.Module:
    return nn.Embedding(VOCABULARY, WIDTH, max_norm=1.0, **options)


def _bag(**options: Any) -> nn.Module:
    return nn.EmbeddingBag(VOCABULARY, WIDTH, max_norm=1.0, **options)


TABLES = [
    case(name, build, draw_indices)
    for name, build in {
        "Embedding": lambda: Lookup(_table()),
        "Embedding, padded, by another norm": lambda: Lookup(
            _table(norm_type=1.0, padding_idx=2, scale_grad_by_freq=True)
        ),
        "Embedding by the largest element": lambda: Lookup(_table(norm_type=float("inf"))),
        "Embedding that is tied": lambda: Lookup(_table(), tied=True),
        "Embedding that is frozen": lambda: Lookup(_table().requires_grad_(False)),
        "embedding": lambda: Lookup(Function()),
        "EmbeddingBag": lambda: Lookup(_bag()),
        "EmbeddingBag, sums": lambda: Lookup(_bag(mode="sum", padding_idx=1)),
        "EmbeddingBag, maxima": lambda: Lookup(_bag(mode="max")),
        "embedding_bag": lambda: Lookup(BagFunction()),
    }.items()
]


class Teacher(nn.Module):
    """Follows a teacher whose parameters are averages of its own, as MoCo and BYOL do."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Sequential(nn.Linear(WIDTH, UNITS), nn.BatchNorm1d(UNITS))
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.outer = nn.Linear(UNITS, RESULTS)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        own = self.student(x)
        with torch.no_grad():
            for average, parameter in zip(
                self.teacher.parameters(), self.student.parameters(), strict=True
            ):
                average.data = 0.9 * average.data + 0.1 * parameter.data
            other = self.teacher(x)
        y = self.outer(own)
        return F.mse_loss(y, target) + F.mse_loss(own, other), y


class Clipped(nn.Linear):
    """Keeps its weights small, as critics of Wasserstein GANs do."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.clamp_(-0.2, 0.2)
        return super().forward(x)


class Constrained(nn.Linear):
    """Keeps the rows of its weight short, as networks of EEG signals do."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.5)
        return super().forward(x)


class Shifted(nn.Module):
    """Keeps the statistics of two batches, each in a part of one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(2, UNITS))

    def forward(self, x: Tensor) -> Tensor:
        self.means[0] = self.means[1]
        self.means[1] = x.detach().mean(0)
        return x - self.means.sum(0)


WRITTEN = [
    case("Teacher", Teacher),
    case("Clipped", around(lambda: Clipped(UNITS, UNITS))),
    case("Constrained", around(lambda: Constrained(UNITS, UNITS))),
    case("Shifted", around(Shifted)),
]

EVERY: list[Case] = [*NORMALISATIONS, *PARAMETRIZED, *BUFFERED, *TABLES, *WRITTEN]
"""All cases."""
