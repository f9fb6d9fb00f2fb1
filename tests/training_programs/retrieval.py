"""Retrieval and representations: contrast, queues, centres and margins."""

from __future__ import annotations

import collections
import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def views(count: int = 8, width: int = 6) -> tuple[Tensor, Tensor]:
    """Two noisy views of the same things."""
    thing = torch.randn(count, width)
    return thing + 0.1 * torch.randn_like(thing), thing + 0.1 * torch.randn_like(thing)


def encoder(cin: int = 6, hidden: int = 16, cout: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(cin, hidden), nn.Tanh(), nn.Linear(hidden, cout))


class NTXent(nn.Module):
    """SimCLR's loss with the diagonal filled in place."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        n = z1.shape[0]
        z = functional.normalize(torch.cat([z1, z2]), dim=1)
        sim = z @ z.t() / self.temperature
        sim.fill_diagonal_(-1e4)
        positive = torch.cat([torch.arange(n) + n, torch.arange(n)])
        return functional.cross_entropy(sim, positive)


def simclr(on: Machine) -> Weights:
    """SimCLR's contrast of two views, in a module whose class does not tell that it is a loss."""

    class SimCLR(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.criterion = encoder(), NTXent(0.5)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.criterion(self.f(a), self.f(b))

    trainer = on.trainer(SimCLR(), dict(zip("ab", views(), strict=True)), sgd(0.2))
    for _ in range(20):
        a, b = views()
        on.note(trainer.step({"a": a, "b": b})[0])
    return trainer.weights()


def triplet(on: Machine) -> Weights:
    """Hard positives and negatives are mined inside the batch, by masks, maxima and minima."""

    class Mining(nn.Module):
        def __init__(self, margin: float = 0.5) -> None:
            super().__init__()
            self.net, self.margin = encoder(cout=4), margin

        def forward(self, x: Tensor, who: Tensor) -> dict[str, Tensor]:
            e = self.net(x)
            distance = torch.cdist(e, e)
            same = who[:, None] == who[None, :]
            eye = torch.eye(len(x), dtype=torch.bool)
            far = torch.where(same & ~eye, distance, torch.zeros(())).amax(1)
            near = torch.where(same, torch.full((), 1e3), distance).amin(1)
            return {"loss": functional.relu(far - near + self.margin).mean(), "embedding": e}

    def batch() -> dict[str, Tensor]:
        who = torch.arange(12) % 4
        return {"x": functional.one_hot(who, 6) + 0.4 * torch.randn(12, 6), "who": who}

    trainer = on.trainer(Mining(), batch(), sgd(0.05))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def momentum_contrast(on: Machine) -> Weights:
    """MoCo with the queue on the host: a deque whose keys a momentum encoder of torch computes."""

    class MoCo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = encoder()

        def forward(self, x: Tensor, key: Tensor, queue: Tensor) -> tuple[Tensor, Tensor]:
            q = functional.normalize(self.q(x), dim=1)
            positive = torch.einsum("nc,nc->n", q, key).unsqueeze(-1)
            logits = torch.cat([positive, torch.einsum("nc,kc->nk", q, queue)], dim=1) / 0.2
            return functional.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long)), q

    model = MoCo()
    keys = copy.deepcopy(model.q)
    queue = collections.deque(functional.normalize(torch.randn(24, 8), dim=1), maxlen=24)

    def batch() -> dict[str, Tensor]:
        x, other = views()
        with torch.no_grad():
            key = functional.normalize(keys(other), dim=1)
        return {"x": x, "key": key, "queue": torch.stack(list(queue))}

    trainer = on.trainer(model, batch(), sgd(0.1, momentum=0.9))
    for _ in range(20):
        drawn = batch()
        on.note(trainer.step(drawn)[0])
        queue.extend(drawn["key"])
        for name, value in trainer.weights().items():
            keys.get_parameter(name.removeprefix("q.")).data.mul_(0.9).add_(0.1 * value)
    return trainer.weights()


def queue_in_buffers(on: Machine) -> Weights:
    """MoCo as published: the queue, its pointer and the momentum encoder are written by ``forward``."""

    class MoCo(nn.Module):
        def __init__(self, length: int = 24) -> None:
            super().__init__()
            self.encoder_q, self.encoder_k = encoder(), encoder()
            for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
                k.data.copy_(q.data)
                k.requires_grad = False
            self.register_buffer("queue", functional.normalize(torch.randn(8, length), dim=0))
            self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def _momentum(self) -> None:
            for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
                k.data = k.data * 0.9 + q.data * 0.1

        @torch.no_grad()
        def _enqueue(self, keys: Tensor) -> None:
            place = (self.ptr + torch.arange(len(keys))) % self.queue.shape[1]
            self.queue[:, place] = keys.T
            self.ptr.copy_((self.ptr + len(keys)) % self.queue.shape[1])

        def forward(self, x: Tensor, other: Tensor) -> Tensor:
            q = functional.normalize(self.encoder_q(x), dim=1)
            with torch.no_grad():
                self._momentum()
                k = functional.normalize(self.encoder_k(other), dim=1)
            logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()], 1)
            self._enqueue(k)
            return functional.cross_entropy(logits / 0.2, torch.zeros(len(x), dtype=torch.long))

    def make(optim: Any, model: nn.Module) -> torch.optim.Optimizer:
        return optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1)

    trainer = on.trainer(MoCo(), dict(zip(("x", "other"), views(), strict=True)), make)
    for _ in range(20):
        x, other = views()
        on.note(trainer.step({"x": x, "other": other})[0])
    return trainer.weights()


def byol(on: Machine) -> Weights:
    """A predictor, a target that is detached, and a target network that ``forward`` moves in place."""

    class BYOL(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online, self.predictor = encoder(), encoder(8, 8, 8)
            self.target = copy.deepcopy(self.online).requires_grad_(False)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            with torch.no_grad():
                for mine, theirs in zip(
                    self.target.parameters(), self.online.parameters(), strict=True
                ):
                    mine.mul_(0.95).add_(theirs, alpha=0.05)
            loss = 0
            for one, two in ((a, b), (b, a)):
                p = self.predictor(self.online(one))
                loss = (
                    loss + 2 - 2 * functional.cosine_similarity(p, self.target(two).detach()).mean()
                )
            return loss

    def make(optim: Any, model: BYOL) -> torch.optim.Optimizer:
        return optim.SGD([*model.online.parameters(), *model.predictor.parameters()], lr=0.2)

    trainer = on.trainer(BYOL(), dict(zip("ab", views(), strict=True)), make)
    for _ in range(20):
        on.note(trainer.step(dict(zip("ab", views(), strict=True)))[0])
    return trainer.weights()


def siamese(on: Machine) -> Weights:
    """Signatures: one convolutional network for both, and the contrastive loss of Hadsell."""

    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cnn = nn.Sequential(
                nn.Conv2d(1, 6, 3), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(54, 5)
            )

        def forward_once(self, x: Tensor) -> Tensor:
            return self.cnn(x)

        def forward(self, left: Tensor, right: Tensor, differ: Tensor) -> Tensor:
            distance = functional.pairwise_distance(
                self.forward_once(left), self.forward_once(right)
            )
            near = (1 - differ) * distance.pow(2)
            apart = differ * torch.clamp(1.5 - distance, min=0.0).pow(2)
            return torch.mean(near + apart)

    chance = np.random.default_rng(7)
    shapes = chance.normal(size=(3, 8, 8)).astype(np.float32)

    def batch() -> dict[str, Tensor]:
        one, two = chance.integers(0, 3, (2, 6))
        noise = 0.2 * chance.normal(size=(2, 6, 1, 8, 8)).astype(np.float32)
        return {
            "left": torch.from_numpy(shapes[one][:, None] + noise[0]),
            "right": torch.from_numpy(shapes[two][:, None] + noise[1]),
            "differ": torch.from_numpy((one != two).astype(np.float32)),
        }

    trainer = on.trainer(Siamese(), batch(), adam(0.005))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def barlow_twins(on: Machine) -> Weights:
    """A cross-correlation of batch-normalised embeddings; its off-diagonal by a view and strides."""

    class BarlowTwins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = encoder(cout=5)
            self.bn = nn.BatchNorm1d(5, affine=False)

        @staticmethod
        def off_diagonal(x: Tensor) -> Tensor:
            n, _ = x.shape
            return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()

        def forward(self, y1: Tensor, y2: Tensor) -> Tensor:
            z1, z2 = self.backbone(y1), self.backbone(y2)
            c = self.bn(z1).T @ self.bn(z2)
            c.div_(len(y1))
            on_diag = torch.diagonal(c).add_(-1).pow_(2).sum()
            return on_diag + 0.05 * self.off_diagonal(c).pow_(2).sum()

    def batch() -> dict[str, Tensor]:
        return dict(zip(("y1", "y2"), views(16), strict=True))

    trainer = on.trainer(BarlowTwins().train(), batch(), sgd(0.02))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def arc_face(on: Machine) -> Weights:
    """An additive angular margin: cosines are changed at the label by scatter, or left where too wide."""

    class ArcMarginProduct(nn.Module):
        def __init__(self, s: float = 8.0, m: float = 0.3) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.FloatTensor(5, 8))
            nn.init.xavier_uniform_(self.weight)
            self.s, self.cos_m, self.sin_m = s, np.cos(m), np.sin(m)
            self.th, self.mm = np.cos(np.pi - m), np.sin(np.pi - m) * m

        def forward(self, x: Tensor, label: Tensor) -> Tensor:
            cosine = functional.linear(functional.normalize(x), functional.normalize(self.weight))
            sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(1e-6, 1))
            phi = cosine * self.cos_m - sine * self.sin_m
            phi = torch.where(cosine > self.th, phi, cosine - self.mm)
            one_hot = torch.zeros(cosine.size())
            one_hot.scatter_(1, label.view(-1, 1).long(), 1)
            return self.s * (one_hot * phi + (1.0 - one_hot) * cosine)

    class Faces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.margin = encoder(), ArcMarginProduct()

        def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            out = self.margin(self.embed(x), label)
            return nn.functional.cross_entropy(out, label), out

    def batch() -> dict[str, Tensor]:
        label = torch.randint(5, (10,))
        return {"x": functional.one_hot(label, 6) + 0.2 * torch.randn(10, 6), "label": label}

    trainer = on.trainer(Faces(), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    simclr,
    triplet,
    momentum_contrast,
    queue_in_buffers,
    byol,
    siamese,
    barlow_twins,
    arc_face,
]
