"""Small models that several tests train."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn

BATCH, WIDTH, CLASSES = 4, 6, 3


class Classifier(nn.Module):
    """Two linear layers; returns a loss and logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 8)
        self.outer = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.outer(torch.tanh(self.inner(x)))
        return F.cross_entropy(logits, label), logits


def draw(batch: int = BATCH) -> dict[str, Tensor]:
    return {"x": torch.randn(batch, WIDTH), "label": torch.randint(0, CLASSES, (batch,))}


# Sums of a handful of float32 products in another order, over a few steps.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def gradients_of(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """What eager torch computes."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    made = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {n: g for n, g in zip(named, made, strict=True) if g is not None}
