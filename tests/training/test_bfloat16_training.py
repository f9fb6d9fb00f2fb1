"""Training in bfloat16 with float32 weights ends where torch's own bfloat16 autocast does.

Both sides see the same data in the same order from the same initial weights, for several seeds of weights
and data. What autocast's final losses differ by among themselves is the spread; ours must lie within it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import samba_onnx as samba
from samba_onnx.sessions import SESSION

SEEDS = 3
LAST = 5
"""Steps whose losses are averaged: what a run ends with."""


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.layers = nn.Sequential(
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = functional.max_pool2d(torch.tanh(self.first(x)), 2)
        x = functional.max_pool2d(torch.tanh(self.second(x)), 2)
        return functional.cross_entropy(self.layers(x.flatten(1)), y)


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(x + self.norms[1](self.second(y)))


class SmallResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
        self.blocks, self.head = nn.Sequential(Block(16), Block(16)), nn.Linear(784, 10)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = self.blocks(functional.relu(self.norm(self.stem(x))))
        return functional.cross_entropy(self.head(functional.avg_pool2d(x, 2).flatten(1)), y)


class SmallGpt2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=4)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        config.bos_token_id = config.eos_token_id = 0
        self.model = GPT2LMHeadModel(config)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=x, use_cache=False).logits
        return functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def pictures(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return pictures of ten classes: a bright square in a place of its own each, in noise."""
    labels = torch.randint(0, 10, (32,), generator=generator)
    x = 0.5 * torch.randn(32, 1, 28, 28, generator=generator)
    for picture, label in zip(x, labels.tolist(), strict=True):
        row, column = 4 + 10 * (label // 5), 1 + 5 * (label % 5)
        picture[0, row : row + 5, column : column + 5] += 1.5
    return x, labels


def sequences(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences that count in steps of their own."""
    first = torch.randint(0, 64, (16, 1), generator=generator)
    step = torch.randint(1, 5, (16, 1), generator=generator)
    whole = (first + step * torch.arange(33)) % 64
    return whole[:, :-1], whole[:, 1:]


def autocast_losses(
    model: nn.Module, batches: list[tuple[Tensor, Tensor]], rate: float
) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x, y)
        loss.float().backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


class OnDevice:
    """A model that is compiled and traced once, and trained from the weights of each seed."""

    def __init__(
        self,
        model: nn.Module,
        batch: tuple[Tensor, Tensor],
        rate: float,
        path: Path,
        precision: str,
    ) -> None:
        SESSION.reset()
        samba.from_torch_model_(model)
        self.model = model
        self.optimizer = samba.optim.SGD(
            model.parameters(), lr=rate, momentum=0.9, weight_decay=0.0
        )
        first = wrapped(batch)
        SESSION.compile(model, first, self.optimizer, output=path, precision=precision, check=False)
        self.outputs = samba.utils.trace_graph(model, first, self.optimizer, pef=str(path))

    def losses(self, state: dict[str, Tensor], batches: list[tuple[Tensor, Tensor]]) -> list[float]:
        """Return the losses of a training from some weights, and from no momentum."""
        self.model.load_state_dict(state)
        self.optimizer.state.clear()
        SESSION.to_rdu(self.model, [self.optimizer])
        return [
            float(samba.to_torch(SESSION.run(wrapped(batch), self.outputs)[0]).mean())
            for batch in batches
        ]


def wrapped(batch: tuple[Tensor, Tensor]) -> tuple[samba.SambaTensor, ...]:
    names = ("x", "y")
    return tuple(samba.from_torch_tensor(t, name=n) for t, n in zip(batch, names, strict=True))


def made(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return make().train()


def drawn(
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]], seed: int, steps: int
) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [batch(generator) for _ in range(steps)]


@pytest.mark.parametrize(
    ("make", "batch", "steps", "rate"),
    [
        (LeNet, pictures, 40, 0.02),
        (SmallResNet, pictures, 12, 0.005),
        (SmallGpt2, sequences, 50, 0.1),
    ],
)
def test_training_ends_where_autocast_does(
    make: Callable[[], nn.Module],
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]],
    steps: int,
    rate: float,
    tmp_path: Path,
) -> None:
    data = [drawn(batch, seed, steps) for seed in range(SEEDS)]
    runs = {
        "autocast": [autocast_losses(made(make, n), data[n], rate) for n in range(SEEDS)],
    }
    for side in ("bf16", "mixed"):
        device = OnDevice(made(make, 0), data[0][0], rate, tmp_path / f"{side}.pef", side)
        states = [made(make, seed).state_dict() for seed in range(SEEDS)]
        runs[side] = [device.losses(*one) for one in zip(states, data, strict=True)]
    assert all(np.mean(one[-LAST:]) < 0.8 * one[0] for side in runs.values() for one in side)
    ends = {side: [float(np.mean(one[-LAST:])) for one in some] for side, some in runs.items()}
    own = np.array(ends["autocast"])
    spread = own.max() - own.min()
    print(f"{make.__name__}: spread {spread:.3f}, {ends}")
    SESSION.reset()
    for side in ("bf16", "mixed"):
        assert abs(np.mean(ends[side]) - own.mean()) <= spread
        assert np.abs(np.array(ends[side]) - own).max() <= spread
