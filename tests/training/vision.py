"""Networks for images and vectors, in tiny sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn

from models.mobilenet import MobileNetV3, Row
from models.resnet import Bottleneck
from models.unet import UNet
from tests.training.trajectory import Case, adamw, sgd


class Classified(nn.Module):
    """A network that maps an image to logits, and the loss of them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(image)
        return self.criterion(logits, label), logits


class LeNet(nn.Module):
    """Two convolutions with pooling, three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        maps = F.max_pool2d(self.conv1(image).relu(), 2)
        maps = F.max_pool2d(self.conv2(maps).relu(), 2).flatten(1)
        logits = self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(maps)))))
        return self.criterion(logits, label), logits


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, added to the input or to a projection of it."""

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, maps: Tensor) -> Tensor:
        branch = torch.relu(self.bn1(self.conv1(maps)))
        return torch.relu(self.bn2(self.conv2(branch)) + self.downsample(maps))


def resnet(block: type[nn.Module], expansion: int) -> nn.Module:
    width = 8
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        block(width, width, 1),
        block(width * expansion, width * 2, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width * 2 * expansion, 5),
    ]
    return Classified(nn.Sequential(*layers))


class Segmented(nn.Module):
    """A U-Net and the loss of every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.network = UNet((4, 8), classes=3)

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(image)
        return F.cross_entropy(logits, label), logits


class LayerNorm2d(nn.LayerNorm):
    """Layer normalisation over channels that come second."""

    def forward(self, maps: Tensor) -> Tensor:
        return super().forward(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """Depthwise convolution, normalisation, an inverted bottleneck, and a learned scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, maps: Tensor) -> Tensor:
        inner = self.norm(self.depthwise(maps).permute(0, 2, 3, 1))
        inner = self.down(F.gelu(self.up(inner))) * self.scale
        return maps + inner.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    return Classified(
        nn.Sequential(
            nn.Conv2d(3, 8, 4, 4),
            LayerNorm2d(8),
            ConvNextBlock(8),
            LayerNorm2d(8),
            nn.Conv2d(8, 16, 2, 2),
            ConvNextBlock(16),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.LayerNorm(16),
            nn.Linear(16, 5),
        )
    )


def mobilenet() -> nn.Module:
    rows = (Row(3, 8, 8, False, False, 1), Row(5, 24, 12, True, True, 2))
    return Classified(MobileNetV3(rows, hidden=24, classes=5))


def vectors() -> dict[str, Tensor]:
    return {"image": torch.randn(8, 20), "label": torch.randint(0, 10, (8,))}


def images(size: int, classes: int = 5, batch: int = 4, channels: int = 3) -> dict[str, Tensor]:
    return {
        "image": torch.randn(batch, channels, size, size),
        "label": torch.randint(0, classes, (batch,)),
    }


def pixels() -> dict[str, Tensor]:
    return {"image": torch.randn(2, 3, 8, 8), "label": torch.randint(0, 3, (2, 8, 8))}


def perceptron() -> nn.Module:
    layers = (nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 10))
    return Classified(nn.Sequential(*layers))


CASES = (
    Case("logistic regression", lambda: Classified(nn.Linear(20, 10)), vectors, sgd, steps=5),
    Case("perceptron", perceptron, vectors, adamw, steps=5),
    Case("lenet", LeNet, lambda: images(28, 10, 8, 1), sgd),
    Case("resnet18", lambda: resnet(BasicBlock, 1), lambda: images(32), sgd),
    Case("resnet50", lambda: resnet(Bottleneck, 4), lambda: images(32), sgd),
    Case("mobilenet", mobilenet, lambda: images(32), adamw),
    Case("unet", Segmented, pixels, sgd),
    Case("convnext", convnext, lambda: images(32), adamw),
)
