"""Small networks of every family that the check is tried on, and their inputs.

Deep and narrow on purpose: errors of float32 grow with depth, whatever the width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional


def _normalised(inner: int, outer: int, size: int = 3, **options: int) -> nn.Sequential:
    """Return a convolution and its normalisation."""
    padding = size // 2
    convolution = nn.Conv2d(inner, outer, size, padding=padding, bias=False, **options)  # type: ignore[arg-type]
    return nn.Sequential(convolution, nn.BatchNorm2d(outer))


class Residual(nn.Module):
    """The block of ResNet-18."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = _normalised(inner, outer, stride=stride)
        self.second = _normalised(outer, outer)
        self.shortcut = _normalised(inner, outer, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


class Dense(nn.Module):
    """The layer of DenseNet: normalised, activated, convolved, and put beside what there was."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inner)
        self.layer = nn.Conv2d(inner, 8, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layer(torch.relu(self.norm(x)))], 1)


class Inverted(nn.Module):
    """The block of MobileNetV3: depthwise, squeezed and excited, with hard activations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = _normalised(width, 2 * width, 1)
        self.depthwise = _normalised(2 * width, 2 * width, 5, groups=2 * width)
        self.squeeze = nn.Conv2d(2 * width, width, 1)
        self.excite = nn.Conv2d(width, 2 * width, 1)
        self.narrow = _normalised(2 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = functional.hardswish(self.depthwise(functional.hardswish(self.wide(x))))
        scale = self.excite(torch.relu(self.squeeze(functional.adaptive_avg_pool2d(wide, 1))))
        return x + self.narrow(wide * functional.hardsigmoid(scale))


class Classifier(nn.Module):
    """A body, what is left of every channel, and the loss of a layer behind it."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.head(self.body(x).mean((2, 3)))
        return functional.cross_entropy(scores, label), scores


def _stem(width: int) -> nn.Sequential:
    return nn.Sequential(_normalised(3, width), nn.ReLU(), nn.MaxPool2d(2))


def resnet() -> nn.Module:
    """ResNet in small."""
    blocks = [Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 1), Residual(16, 32, 2)]
    return Classifier(nn.Sequential(_stem(8), *blocks), 32)


def densenet() -> nn.Module:
    """DenseNet in small, with its transition."""
    first = [Dense(8 + 8 * index) for index in range(6)]
    transition = [nn.BatchNorm2d(56), nn.ReLU(), nn.Conv2d(56, 16, 1), nn.AvgPool2d(2)]
    second = [Dense(16 + 8 * index) for index in range(6)]
    return Classifier(nn.Sequential(_stem(8), *first, *transition, *second), 64)


def mobilenet() -> nn.Module:
    """MobileNetV3 in small."""
    return Classifier(nn.Sequential(_stem(8), *(Inverted(8) for _ in range(4))), 8)


class Branches(nn.Module):
    """The block of Inception: several ways side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = _normalised(8, 8, 1)
        self.wide = _normalised(8, 8, 5)
        self.pooled = _normalised(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.avg_pool2d(x, 3, stride=1, padding=1)
        ways = [
            self.narrow(x),
            self.wide(x),
            self.pooled(pooled),
            functional.max_pool2d(x, 3, 1, 1),
        ]
        return torch.relu(torch.cat(ways, 1))


def inception() -> nn.Module:
    """Inception in small."""
    narrowing = [_normalised(32, 8, 1), nn.ReLU6()]
    return Classifier(nn.Sequential(_stem(8), Branches(), *narrowing, Branches()), 32)


class Segmentation(nn.Module):
    """FCN in small: scores for every pixel, enlarged again."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [Residual(8, 16, 2), Residual(16, 32, 2), Residual(32, 32, 1)]
        self.body = nn.Sequential(_stem(8), *blocks)
        self.head = nn.Conv2d(32, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.head(self.body(x))
        enlarged: Tensor = functional.interpolate(scores, x.shape[-2:], mode="bilinear")
        return enlarged


class Transformer(nn.Module):
    """Two layers of a transformer over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, 16)
        self.positions = nn.Parameter(0.02 * torch.randn(7, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 20)

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(self.tokens(x) + self.positions)
        scores = self.head(hidden)
        return functional.cross_entropy(scores.flatten(0, 1), label.flatten()), scores


class Recurrent(nn.Module):
    """Two layers of an LSTM and one of a GRU, over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 12, 2, batch_first=True)
        self.gru = nn.GRU(12, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 20)

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.head(self.gru(self.lstm(self.tokens(x))[0])[0])
        return functional.cross_entropy(scores.flatten(0, 1), label.flatten()), scores


CNNS: Final[Mapping[str, Callable[[], nn.Module]]] = MappingProxyType(
    {"resnet": resnet, "densenet": densenet, "mobilenet": mobilenet, "inception": inception}
)
"""Networks with batch normalisations, by the family that they are small models of."""
SEQUENCES: Final[Mapping[str, Callable[[], nn.Module]]] = MappingProxyType(
    {"transformer": Transformer, "recurrent": Recurrent}
)
"""Networks over tokens."""


def images(size: int = 16, batch: int = 4) -> tuple[Tensor, Tensor]:
    """Return images and their classes."""
    return torch.randn(batch, 3, size, size), torch.randint(0, 5, (batch,))


def tokens() -> tuple[Tensor, Tensor]:
    """Return tokens and those that come next."""
    return torch.randint(0, 20, (3, 7)), torch.randint(0, 20, (3, 7))


def as_trained(module: nn.Module, seed: int) -> nn.Module:
    """Give all batch normalisations parameters and statistics as they have after some training.

    Args:
        module: Changed in place.
        seed: Seed of the numbers.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(like: Tensor, low: float, high: float) -> Tensor:
        return torch.rand(like.shape, generator=generator) * (high - low) + low

    with torch.no_grad():
        for inner in module.modules():
            if isinstance(inner, nn.BatchNorm2d):
                inner.weight.copy_(uniform(inner.weight, 0.1, 1.6))
                inner.bias.copy_(uniform(inner.bias, -0.5, 0.5))
                assert inner.running_mean is not None
                assert inner.running_var is not None
                inner.running_mean.copy_(uniform(inner.bias, -0.5, 0.5))
                inner.running_var.copy_(uniform(inner.bias, 0.2, 2.2))
    return module
