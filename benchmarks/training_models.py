"""Models that the training benchmarks train, with the data of one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from benchmarks.convolutional_networks import (
    Classified,
    WaveNet,
    convnext_atto,
    efficientnet_b0,
    mobilenet_v2,
)
from models.mobilenet import LARGE, MobileNetV3
from models.resnet import ResNet
from models.unet import UNet


@dataclass(frozen=True)
class Training:
    """A model and how it is trained."""

    build: Callable[[], nn.Module]
    """Makes the model; its first output is the loss."""
    draw: Callable[[], dict[str, Tensor]]
    """Draws the inputs of a step, by the parameters of ``forward``."""
    optimize: Callable[..., Optimizer]
    """Makes the optimizer of ``torch.optim`` or ``samba.optim``, whichever is given."""
    foreach: bool = True
    """What torch's optimizer is quickest with: its loop over parameters where they are few."""


class LogisticRegression(nn.Module):
    """Logistic regression on images of 28x28, as the vendor's first example has it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(784, 10)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and logits."""
        logits = self.layer(x)
        return functional.cross_entropy(logits, y), logits


class LeNet(nn.Module):
    """LeNet-5 on images of 28x28."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2).flatten(1)
        x = functional.relu(self.fc2(functional.relu(self.fc1(x))))
        return functional.cross_entropy(self.fc3(x), y)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 with the stem for large images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        widths = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
        self.blocks = nn.Sequential(
            *(
                block
                for inputs, outputs, stride in widths
                for block in (_Block(inputs, outputs, stride), _Block(outputs, outputs, 1))
            )
        )
        self.fc = nn.Linear(512, 1000)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss."""
        x = functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1)
        return functional.cross_entropy(self.fc(x), y)


class RecurrentClassifier(nn.Module):
    """One recurrent layer over a sequence, and a class from its last state."""

    def __init__(self, layer: type[nn.LSTM | nn.GRU]) -> None:
        """Take the class of the layer."""
        super().__init__()
        self.lstm = layer(32, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss."""
        states, _ = self.lstm(x)
        return functional.cross_entropy(self.head(states[:, -1]), y)


class LossOnly(nn.Module):
    """A model of ``transformers`` that gives its loss only."""

    def __init__(self, model: nn.Module) -> None:
        """Take the model."""
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> Tensor:
        """Return the loss of a batch."""
        loss: Tensor = self.model(**inputs).loss
        return loss


class _LanguageLoss(LossOnly):
    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(input_ids=input_ids, labels=labels)


def gpt2(**sizes: int) -> nn.Module:
    """Return GPT-2 without dropout, whose loss is that of the next token.

    Args:
        **sizes: As of ``GPT2Config``; those of the 124M model by default.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)  # type: ignore[arg-type]
    return _LanguageLoss(GPT2LMHeadModel(config))


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        num_hidden_layers=4,
        hidden_size=512,
        num_attention_heads=8,
        intermediate_size=2048,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return _LanguageLoss(BertForMaskedLM(config))


def _images(batch: int, *shape: int, classes: int) -> dict[str, Tensor]:
    return {"x": torch.randn(batch, *shape), "y": torch.randint(0, classes, (batch,))}


def _vit() -> nn.Module:
    from transformers import ViTConfig

    from models.vit import Vit

    config = ViTConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=96,
    )
    config.num_labels = 1000
    return Classified(Vit(config))


def _masks() -> dict[str, Tensor]:
    return {"x": torch.randn(4, 3, 96, 96), "y": torch.randint(0, 2, (4, 96, 96))}


def _sound() -> dict[str, Tensor]:
    levels = torch.randint(0, 256, (2, 2049))
    samples = functional.one_hot(levels[:, :-1], 256).float().transpose(1, 2).contiguous()
    return {"x": samples, "y": levels[:, 1:].contiguous()}


def tokens(batch: int, length: int, words: int) -> dict[str, Tensor]:
    """Return tokens that are their own labels.

    Args:
        batch: Number of sequences.
        length: Of each.
        words: Size of the vocabulary.
    """
    drawn = torch.randint(0, words, (batch, length))
    return {"input_ids": drawn, "labels": drawn.clone()}


def _sgd(optim: Any, model: nn.Module, **options: Any) -> Optimizer:
    made: Optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **options)
    return made


def _decaying_sgd(optim: Any, model: nn.Module, **options: Any) -> Optimizer:
    made: Optimizer = optim.SGD(
        model.parameters(), lr=0.0015, momentum=0.0, weight_decay=3e-4, **options
    )
    return made


def _adamw(optim: Any, model: nn.Module, **options: Any) -> Optimizer:
    made: Optimizer = optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.01, **options
    )
    return made


TRAININGS = {
    "logistic_regression": Training(
        LogisticRegression, lambda: _images(1, 784, classes=10), _decaying_sgd, foreach=False
    ),
    "lenet": Training(LeNet, lambda: _images(32, 1, 28, 28, classes=10), _sgd),
    "resnet18": Training(ResNet18, lambda: _images(16, 3, 64, 64, classes=1000), _sgd),
    "gpt2_small": Training(
        lambda: gpt2(n_layer=4, n_embd=256, n_head=4, n_positions=128, vocab_size=4096),
        lambda: tokens(4, 128, 4096),
        _adamw,
    ),
    "bert_small": Training(_bert, lambda: tokens(4, 128, 30522), _adamw),
    "lstm": Training(
        lambda: RecurrentClassifier(nn.LSTM), lambda: _images(16, 256, 32, classes=10), _sgd
    ),
    "lstm_128": Training(
        lambda: RecurrentClassifier(nn.LSTM), lambda: _images(16, 128, 32, classes=10), _sgd
    ),
    "gru": Training(
        lambda: RecurrentClassifier(nn.GRU), lambda: _images(16, 256, 32, classes=10), _sgd
    ),
    "mobilenet_v2": Training(mobilenet_v2, lambda: _images(8, 3, 96, 96, classes=1000), _sgd),
    "mobilenet_v3": Training(
        lambda: Classified(MobileNetV3(LARGE)),
        lambda: _images(8, 3, 96, 96, classes=1000),
        _sgd,
    ),
    "efficientnet_b0": Training(efficientnet_b0, lambda: _images(8, 3, 96, 96, classes=1000), _sgd),
    "convnext_atto": Training(convnext_atto, lambda: _images(8, 3, 96, 96, classes=1000), _adamw),
    "wavenet": Training(WaveNet, _sound, _adamw),
    "unet": Training(lambda: Classified(UNet((16, 32, 64, 128))), _masks, _adamw),
    "resnet50": Training(
        lambda: Classified(ResNet((3, 4, 6, 3))), lambda: _images(8, 3, 96, 96, classes=1000), _sgd
    ),
    "vit_small": Training(_vit, lambda: _images(4, 3, 96, 96, classes=1000), _adamw),
    "gpt2": Training(gpt2, lambda: tokens(1, 128, 50257), _adamw),
    "gpt2_batch4": Training(gpt2, lambda: tokens(4, 128, 50257), _adamw),
}
"""By name."""
