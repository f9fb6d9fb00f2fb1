"""ResNet-50 (He et al., 2015) in the v1.5 form: a bottleneck strides in its 3x3 convolution."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.example import Example, InputSpec, Variant
from models.initialization import calibrate_batch_norms, scale_output, spread_weights

__all__ = ["Bottleneck", "ResNet", "build"]

_EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up, added to the input or to a projection of it."""

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        widened = planes * _EXPANSION
        self.conv1 = nn.Conv2d(channels, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, widened, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(widened)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != widened:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, widened, 1, stride, bias=False), nn.BatchNorm2d(widened)
            )

    def forward(self, maps: Tensor) -> Tensor:
        """Map (batch, channels, h, w) to (batch, 4 * planes, h / stride, w / stride)."""
        branch = torch.relu(self.bn1(self.conv1(maps)))
        branch = torch.relu(self.bn2(self.conv2(branch)))
        branch = self.bn3(self.conv3(branch))
        return torch.relu(branch + self.downsample(maps))


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks, and a linear classifier over the pooled maps."""

    def __init__(self, blocks: Sequence[int], width: int = 64, classes: int = 1000) -> None:
        """Build the layers.

        Args:
            blocks: The number of bottlenecks in each stage; (3, 4, 6, 3) is ResNet-50.
            width: The planes of the stem and of the first stage.
            classes: The number of outputs.
        """
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        layers: list[nn.Module] = []
        channels = width
        for stage, count in enumerate(blocks):
            planes = width * 2**stage
            for block in range(count):
                stride = 2 if block == 0 and stage > 0 else 1
                layers.append(Bottleneck(channels, planes, stride))
                channels = planes * _EXPANSION
        self.layers = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Map (batch, 3, h, w) to logits (batch, classes)."""
        maps = self.maxpool(torch.relu(self.bn1(self.conv1(image))))
        pooled = self.avgpool(self.layers(maps))
        logits: Tensor = self.fc(torch.flatten(pooled, 1))
        return logits


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build ResNet-50 for 224x224 images, or one block of each stage at width 8 when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    full = variant == "full"
    module = ResNet((3, 4, 6, 3)) if full else ResNet((2, 1, 1, 1), width=8, classes=10)
    size = 224 if full else 32
    spread_weights(module, seed, gain=2**0.5)
    # Statistics hardly depend on the image's size; a smaller one keeps building quick.
    calibrate_batch_norms(module, (8, 3, 96, 96) if full else (16, 3, 32, 32), seed)
    spec = InputSpec("image", (1, 3, size, size), ("batch", None, None, None), "image")
    example = Example(module, (spec,), ("logits",), seed)
    scale_output(module, example.inputs, module.fc)
    return example
