"""Networks of depthwise and dilated convolutions, as their papers have them, for the training benchmarks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


class Classified(nn.Module):
    """The loss of a network that maps images to logits."""

    def __init__(self, network: nn.Module) -> None:
        """Take the network."""
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss."""
        return functional.cross_entropy(self.network(x), y)


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int, groups: int, act: Callable[[], nn.Module]
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        act(),
    )


class _Squeeze(nn.Module):
    """Weights every channel by what the pooled channels say."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.adaptive_avg_pool2d(x, 1)
        gate: Tensor = self.expand(functional.silu(self.reduce(pooled)))
        return x * gate.sigmoid()


class _Inverted(nn.Module):
    """An expansion, a depthwise convolution and a projection, added to the input where shapes allow it."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, factor: int, *, squeezes: bool
    ) -> None:
        super().__init__()
        act = nn.SiLU if squeezes else nn.ReLU6
        wide = inputs * factor
        layers: list[nn.Module] = [] if factor == 1 else [_convolution(inputs, wide, 1, 1, 1, act)]
        layers.append(_convolution(wide, wide, kernel, stride, wide, act))
        if squeezes:
            layers.append(_Squeeze(wide, max(1, inputs // 4)))
        layers.append(_convolution(wide, outputs, 1, 1, 1, nn.Identity))
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


_MOBILE = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 32, 3, 2, 3),
    (6, 64, 4, 2, 3),
    (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)
"""MobileNetV2 (Sandler et al., 2018), table 2: factor, channels, blocks, stride of the first, kernel."""
_EFFICIENT = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
"""EfficientNet-B0 (Tan and Le, 2019), table 1, likewise."""


def _inverted(rows: tuple[tuple[int, ...], ...], *, squeezes: bool) -> nn.Module:
    act = nn.SiLU if squeezes else nn.ReLU6
    layers: list[nn.Module] = [_convolution(3, 32, 3, 2, 1, act)]
    channels = 32
    for factor, outputs, blocks, stride, kernel in rows:
        for block in range(blocks):
            first = stride if block == 0 else 1
            layers.append(_Inverted(channels, outputs, kernel, first, factor, squeezes=squeezes))
            channels = outputs
    layers += [_convolution(channels, 1280, 1, 1, 1, act), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return Classified(nn.Sequential(*layers, nn.Linear(1280, 1000)))


def mobilenet_v2() -> nn.Module:
    """Return MobileNetV2 of width 1."""
    return _inverted(_MOBILE, squeezes=False)


def efficientnet_b0() -> nn.Module:
    """Return EfficientNet-B0 without dropout and without paths that are left out by chance."""
    return _inverted(_EFFICIENT, squeezes=True)


class _ChannelNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _NextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(functional.gelu(self.wide(y)))
        moved: Tensor = y.permute(0, 3, 1, 2)
        return x + moved


def convnext_atto() -> nn.Module:
    """Return ConvNeXt (Liu et al., 2022) in the size that is called atto."""
    widths, depths = (40, 80, 160, 320), (2, 2, 6, 2)
    layers: list[nn.Module] = [nn.Conv2d(3, 40, 4, 4), _ChannelNorm(40, eps=1e-6)]
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            before = widths[stage - 1]
            layers += [_ChannelNorm(before, eps=1e-6), nn.Conv2d(before, width, 2, 2)]
        layers += [_NextBlock(width) for _ in range(depth)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(320), nn.Linear(320, 1000)]
    return Classified(nn.Sequential(*layers))


class WaveNet(nn.Module):
    """A stack of gated, dilated convolutions over samples of sound (van den Oord et al., 2016)."""

    def __init__(self, width: int = 32, layers: int = 10, levels: int = 256) -> None:
        """Build the layers.

        Args:
            width: Channels of the residual path; twice as many are in the path around it.
            layers: Each of twice the dilation of the one before.
            levels: Of quantised samples.
        """
        super().__init__()
        self.embedding = nn.Conv1d(levels, width, 1)
        self.gates = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 2, dilation=2**layer) for layer in range(layers)
        )
        self.residuals = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.skips = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))
        self.head = nn.Sequential(
            nn.ReLU(), nn.Conv1d(2 * width, levels, 1), nn.ReLU(), nn.Conv1d(levels, levels, 1)
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of the levels that follow."""
        x = self.embedding(x)
        total: Tensor | None = None
        for layer, (gate, residual, skip) in enumerate(
            zip(self.gates, self.residuals, self.skips, strict=True)
        ):
            seen, open_ = gate(functional.pad(x, (2**layer, 0))).chunk(2, 1)
            inner = seen.tanh() * open_.sigmoid()
            total = skip(inner) if total is None else total + skip(inner)
            x = x + residual(inner)
        return functional.cross_entropy(self.head(total), y)
