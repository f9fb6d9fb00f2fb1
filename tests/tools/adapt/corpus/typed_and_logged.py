from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, Adam
from torch.optim.lr_scheduler import LambdaLR

log = logging.getLogger(__name__)


class Residual(nn.Module):
    def __init__(self, width: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def stream(count: int, size: int, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(size, 6, generator=generator)
        yield x, x.cumsum(dim=1)


def train_epoch(model: nn.Module, optimizer: Optimizer, schedule: LambdaLR, epoch: int) -> float:
    model.train()
    losses: list[float] = []
    begin = time.perf_counter()
    for x, y in stream(6, 16, seed=epoch):
        prediction: Tensor = model(x)
        loss: Tensor = nn.functional.mse_loss(prediction, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    log.info("epoch %d took %.2f s", epoch, time.perf_counter() - begin)
    return sum(losses) / len(losses)


def main(folder: Path = Path(".")) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), Residual(16), Residual(16), nn.Linear(16, 6))
    optimizer = Adam(model.parameters(), lr=1e-2)
    schedule = LambdaLR(optimizer, lambda step: 0.98**step)
    for epoch in range(4):
        print(f"{epoch} {train_epoch(model, optimizer, schedule, epoch):.4f}")
    torch.save({name: value.cpu() for name, value in model.state_dict().items()}, folder / "weights.pt")


if __name__ == "__main__":
    main()
