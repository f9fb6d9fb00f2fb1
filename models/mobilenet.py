"""MobileNetV3-Large (Howard et al., 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.example import Example, InputSpec, Variant
from models.initialization import calibrate_batch_norms, scale_output, spread_weights

__all__ = ["LARGE", "InvertedResidual", "MobileNetV3", "Row", "SqueezeExcitation", "build"]


@dataclass(frozen=True)
class Row:
    """One row of the paper's table: kernel, channels, squeeze-and-excitation, activation, stride."""

    kernel: int
    expanded: int
    out: int
    squeeze: bool
    hard_swish: bool
    stride: int


LARGE = (
    Row(3, 16, 16, False, False, 1),
    Row(3, 64, 24, False, False, 2),
    Row(3, 72, 24, False, False, 1),
    Row(5, 72, 40, True, False, 2),
    Row(5, 120, 40, True, False, 1),
    Row(5, 120, 40, True, False, 1),
    Row(3, 240, 80, False, True, 2),
    Row(3, 200, 80, False, True, 1),
    Row(3, 184, 80, False, True, 1),
    Row(3, 184, 80, False, True, 1),
    Row(3, 480, 112, True, True, 1),
    Row(3, 672, 112, True, True, 1),
    Row(5, 672, 160, True, True, 2),
    Row(5, 960, 160, True, True, 1),
    Row(5, 960, 160, True, True, 1),
)
"""Table 1 of the paper."""

_TINY = (
    Row(3, 8, 8, False, False, 1),
    Row(3, 24, 12, False, False, 2),
    Row(5, 36, 12, True, False, 1),
    Row(5, 36, 16, True, True, 2),
)


def _divisible(value: float) -> int:
    """The multiple of 8 nearest to a number of channels, at least 90 % of it."""
    rounded = max(8, int(value + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * value else rounded


def _convolution(
    channels: int, out: int, kernel: int, activation: nn.Module, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out, eps=0.001, momentum=0.01),
        activation,
    )


class SqueezeExcitation(nn.Module):
    """Weights every channel by what the pooled channels say."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = _divisible(channels / 4)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, maps: Tensor) -> Tensor:
        """Map (batch, channels, h, w) to the same shape."""
        weights: Tensor = self.gate(self.expand(torch.relu(self.reduce(self.pool(maps)))))
        return weights * maps


class InvertedResidual(nn.Module):
    """Expand, depthwise convolution, squeeze-and-excitation, project; added where shapes allow."""

    def __init__(self, channels: int, row: Row) -> None:
        super().__init__()

        def activation() -> nn.Module:
            return nn.Hardswish() if row.hard_swish else nn.ReLU()

        layers: list[nn.Module] = []
        if row.expanded != channels:
            layers.append(_convolution(channels, row.expanded, 1, activation()))
        layers.append(
            _convolution(
                row.expanded,
                row.expanded,
                row.kernel,
                activation(),
                stride=row.stride,
                groups=row.expanded,
            )
        )
        if row.squeeze:
            layers.append(SqueezeExcitation(row.expanded))
        layers.append(_convolution(row.expanded, row.out, 1, nn.Identity()))
        self.block = nn.Sequential(*layers)
        self.adds = row.stride == 1 and channels == row.out

    def forward(self, maps: Tensor) -> Tensor:
        """Map (batch, channels, h, w) to (batch, row.out, h / stride, w / stride)."""
        result: Tensor = self.block(maps)
        return result + maps if self.adds else result


class MobileNetV3(nn.Module):
    """A stem, inverted residuals, and a classifier with one hidden layer."""

    def __init__(self, rows: Sequence[Row], hidden: int = 1280, classes: int = 1000) -> None:
        super().__init__()
        channels = rows[0].expanded
        layers: list[nn.Module] = [_convolution(3, channels, 3, nn.Hardswish(), stride=2)]
        for row in rows:
            layers.append(InvertedResidual(channels, row))
            channels = row.out
        layers.append(_convolution(channels, 6 * channels, 1, nn.Hardswish()))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.hidden = nn.Linear(6 * channels, hidden)
        self.activation = nn.Hardswish()
        self.head = nn.Linear(hidden, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Map (batch, 3, h, w) to logits (batch, classes)."""
        pooled = torch.flatten(self.pool(self.features(image)), 1)
        logits: Tensor = self.head(self.activation(self.hidden(pooled)))
        return logits


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build MobileNetV3-Large for 224x224 images, or four narrow rows when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    full = variant == "full"
    module = MobileNetV3(LARGE) if full else MobileNetV3(_TINY, hidden=24, classes=10)
    size = 224 if full else 32
    spread_weights(module, seed, gain=2**0.5)
    calibrate_batch_norms(module, (8, 3, 128, 128) if full else (16, 3, 32, 32), seed)
    spec = InputSpec("image", (1, 3, size, size), ("batch", None, None, None), "image")
    example = Example(module, (spec,), ("logits",), seed)
    scale_output(module, example.inputs, module.head)
    return example
