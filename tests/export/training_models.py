"""Small modules to train, and how they are compared with torch."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.export.programs.training import export_training
from tests.export.training_runs import Machine, compare


class WithLoss(nn.Module):
    """A model and the cross entropy of its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def logits(self, *given: Tensor) -> Tensor:
        found = self.model(*given)
        logits: Tensor = found[0] if isinstance(found, tuple) else found
        return logits

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        *given, labels = inputs
        logits = self.logits(*given)
        flat = logits.reshape(-1, logits.shape[-1])
        return functional.cross_entropy(flat, labels.reshape(-1)), logits


class Residual(nn.Module):
    """A block of ResNet, with its sums and activations in place."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out, momentum=0.3)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Conv2d(channels, out, 1, stride)

    def forward(self, value: Tensor) -> Tensor:
        found = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(value)))))
        found += self.shortcut(value)
        result: Tensor = self.relu(found)
        return result


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 1, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Residual(4, 8, 2),
        Residual(8, 8, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def mobilenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.Hardswish(inplace=True),
        nn.Conv2d(8, 8, 5, 1, 2, groups=8, bias=False),
        nn.BatchNorm2d(8, eps=1e-3, momentum=0.01),
        nn.ReLU6(inplace=True),
        nn.Conv2d(8, 6, 1),
        nn.Hardsigmoid(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(6 * 16, 5),
    )


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout2d(0.4),
        nn.Flatten(),
        nn.Linear(4 * 36, 10),
        nn.Dropout(0.25),
        nn.Linear(10, 3),
    )


class Shared(nn.Module):
    """Tied, frozen and unused parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.aside = nn.Linear(4, 2)
        self.unused = nn.Linear(4, 2)

    def forward(self, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.sin(self.frozen(self.embedding(tokens)))
        return functional.cross_entropy(self.head(hidden), labels), self.aside(hidden)


def trained(module: nn.Module, inputs: Any, **options: Any) -> Machine:
    """Run one step without dropout, and compare all of it with torch."""
    module = without_dropout(module)
    machine = prepared(module, inputs, **options)
    machine.run()
    compare(machine, module, inputs)
    return machine


def prepared(module: nn.Module, inputs: Any, **options: Any) -> Machine:
    machine = Machine(export_training(module, inputs, **options))
    machine.load(module)
    machine.give(inputs)
    return machine


def without_dropout(module: nn.Module) -> nn.Module:
    for inner in module.modules():
        if isinstance(inner, nn.modules.dropout._DropoutNd):
            inner.p = 0.0
    return module


def with_labels(model: nn.Module, given: tuple[Tensor, ...]) -> tuple[WithLoss, tuple[Tensor, ...]]:
    module = WithLoss(model.train())
    with torch.no_grad():
        shape = copy.deepcopy(module).logits(*given).shape
    return module, (*given, torch.randint(0, shape[-1], shape[:-1]))
