"""U-Net (Ronneberger et al., 2015), padded and batch-normalised as most people run it today."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.example import Example, InputSpec, Variant
from models.initialization import calibrate_batch_norms, scale_output, spread_weights

__all__ = ["UNet", "build"]


def _double_convolution(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(),
        nn.Conv2d(out, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """A contracting path, and an expanding path that sees the maps of the contracting one."""

    def __init__(self, widths: Sequence[int], classes: int = 2) -> None:
        """Build the layers.

        Args:
            widths: The channels at each resolution; each is half the next.
            classes: The number of output channels.
        """
        super().__init__()
        self.down = nn.ModuleList(
            _double_convolution(before, after)
            for before, after in zip((3, *widths[:-1]), widths, strict=True)
        )
        self.pool = nn.MaxPool2d(2)
        rising = list(reversed(widths))
        pairs = list(itertools.pairwise(rising))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.merge = nn.ModuleList(_double_convolution(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Map (batch, 3, h, w) to logits (batch, classes, h, w)."""
        kept: list[Tensor] = []
        maps = image
        for level, block in enumerate(self.down):
            maps = block(maps if level == 0 else self.pool(maps))
            kept.append(maps)
        kept.pop()
        for rise, merge in zip(self.up, self.merge, strict=True):
            maps = merge(torch.cat([kept.pop(), rise(maps)], dim=1))
        logits: Tensor = self.head(maps)
        return logits


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build U-Net with 64 to 1024 channels for 256x256 images, or 8 to 32 for 32x32 when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    full = variant == "full"
    module = UNet((64, 128, 256, 512, 1024) if full else (8, 16, 32))
    size = 256 if full else 32
    spread_weights(module, seed, gain=2**0.5)
    calibrate_batch_norms(module, (2, 3, 64, 64) if full else (4, 3, 32, 32), seed)
    spec = InputSpec("image", (1, 3, size, size), ("batch", None, None, None), "image")
    example = Example(module, (spec,), ("logits",), seed)
    scale_output(module, example.inputs, module.head)
    return example
