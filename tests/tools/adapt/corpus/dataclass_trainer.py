from __future__ import annotations

import logging
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger(__name__)


@dataclass
class Config:
    hidden: int = 24
    classes: int = 3
    lr: float = 3e-3
    epochs: int = 3
    batch: int = 20
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 0.5


class Spirals(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, count: int, classes: int) -> None:
        g = torch.Generator().manual_seed(7)
        self.x = torch.randn(count, 2, generator=g)
        self.y = torch.randint(0, classes, (count,), generator=g)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.y[i]


class Classifier(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, cfg.hidden), nn.GELU(), nn.Linear(cfg.hidden, cfg.hidden), nn.GELU())
        self.head = nn.Linear(cfg.hidden, cfg.classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Trainer:
    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self.model = Classifier(cfg).to(self.device)
        self.loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, betas=cfg.betas)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=cfg.epochs)
        self.loader = DataLoader(Spirals(200, cfg.classes), batch_size=cfg.batch, shuffle=True)
        self.history: list[float] = []

    def step(self, x: Tensor, y: Tensor) -> float:
        x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
        self.opt.zero_grad(set_to_none=True)
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
        self.opt.step()
        return loss.item()

    def fit(self) -> None:
        for epoch in range(self.cfg.epochs):
            self.model.train()
            total = sum(self.step(x, y) for x, y in self.loader)
            self.sched.step()
            self.history.append(total / len(self.loader))
            print(f"[{epoch}] {self.history[-1]:.4f} lr={self.sched.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    Trainer(Config()).fit()
