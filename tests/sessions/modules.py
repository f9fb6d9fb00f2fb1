"""Small modules for the session's tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Two layers; returns probabilities and logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 5)
        self.outer = nn.Linear(5, 3)

    def forward(self, features: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.outer(torch.relu(self.inner(features))) + shift
        return torch.softmax(logits, -1), logits


class Nested(nn.Module):
    """Nested inputs, some of them unused or no tensors; nested outputs, one of them None."""

    def forward(
        self,
        pair: tuple[Tensor, Tensor],
        options: dict[str, Tensor | None],
        unused: Tensor | None = None,
        flag: bool = False,
    ) -> dict[str, object]:
        left, right = pair
        total = left - right + options["bias"]
        return {"total": total, "nothing": None, "parts": (left * 2, [right * 3])}


class Memory(nn.Module):
    """Appends a row to a cache at a position."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, columns))
        self.rows = rows

    def forward(self, row: Tensor, position: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        at = torch.arange(self.rows).unsqueeze(-1) == position
        cache = torch.where(at, row * self.scale, cache)
        return cache.sum(0), cache


class Fill(nn.Module):
    """Fills a cache in one go."""

    def __init__(self, scale: nn.Parameter) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        cache = rows * self.scale
        return cache.sum(0), cache * 1.0


class Counter(nn.Module):
    """A buffer that every run changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x.sum(0)
        return x + self.total


class Doubled(nn.Module):
    """Twice its input."""

    def forward(self, value: Tensor) -> Tensor:
        return value * 2


class Dropping(nn.Module):
    """Two dropouts, with and without weights around them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 64)
        self.first = nn.Dropout(0.25)
        self.second = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(self.linear(x)) * 2.0).square().mean()
