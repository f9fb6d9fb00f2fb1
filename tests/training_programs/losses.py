"""Losses that people write themselves."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


class FocalLoss(nn.Module):
    def __init__(self, gamma: float = 2.0, alpha: float = 0.25) -> None:
        super().__init__()
        self.gamma, self.alpha = gamma, alpha

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        bce = functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
        pt = torch.exp(-bce)
        weight = self.alpha * targets + (1 - self.alpha) * (1 - targets)
        return (weight * (1 - pt) ** self.gamma * bce).mean()


def dice(probs: Tensor, target: Tensor, smooth: float = 1.0) -> Tensor:
    axes = tuple(range(1, probs.ndim))
    both = (probs * target).sum(axes)
    return 1 - ((2 * both + smooth) / (probs.sum(axes) + target.sum(axes) + smooth)).mean()


def segmentation(on: Machine) -> Weights:
    """Focal and dice losses added up, one a module and one a function."""

    class Segmenter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(1, 6, 3, 2, 1)
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
            self.out = nn.Conv2d(7, 1, 3, padding=1)
            self.focal = FocalLoss()

        def forward(self, image: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            h = self.up(functional.leaky_relu(self.down(image)))
            logits = self.out(torch.cat([h, image], 1))
            return 10 * self.focal(logits, mask) + dice(logits.sigmoid(), mask), logits

    def batch() -> dict[str, Tensor]:
        image = torch.rand(4, 1, 8, 8)
        return {"image": image, "mask": (functional.avg_pool2d(image, 3, 1, 1) > 0.5).float()}

    trainer = on.trainer(Segmenter(), batch(), sgd(0.1), losses=[0])
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def smoothed_labels(on: Machine) -> Weights:
    """Smoothing by hand with ``scatter_``, class weights, and a confidence penalty."""

    class LabelSmoothing(nn.Module):
        def __init__(self, classes: int, smoothing: float = 0.1) -> None:
            super().__init__()
            self.on, self.off = 1 - smoothing, smoothing / (classes - 1)
            self.register_buffer("weight", torch.linspace(0.5, 1.5, classes))

        def forward(self, logits: Tensor, target: Tensor) -> Tensor:
            logp = logits.log_softmax(dim=-1)
            with torch.no_grad():
                true = torch.full_like(logp, self.off)
                true.scatter_(1, target.data.unsqueeze(1), self.on)
            entropy = -(logp.exp() * logp).sum(-1)
            return ((-true * logp * self.weight).sum(-1) - 0.1 * entropy).mean()

    class Net(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 4))
            self.__dict__["criterion"] = LabelSmoothing(4)

        def forward(self, x: Tensor, target: Tensor) -> Tensor:
            return self.criterion(super().forward(x), target)

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(10, 5), "target": torch.randint(4, (10,))}

    trainer = on.trainer(Net(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def random_field(on: Machine) -> Weights:
    """A CRF over the states of a GRU: the forward algorithm by logsumexp, with masks for lengths."""

    class CRF(nn.Module):
        def __init__(self, tags: int) -> None:
            super().__init__()
            self.start = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
            self.end = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
            self.transitions = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))

        def numerator(self, e: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
            rows = torch.arange(tags.shape[1])
            score = self.start[tags[0]] + e[0, rows, tags[0]]
            for i in range(1, len(tags)):
                step = self.transitions[tags[i - 1], tags[i]] + e[i, rows, tags[i]]
                score = score + step * mask[i]
            last = tags[mask.long().sum(0) - 1, rows]
            return score + self.end[last]

        def normaliser(self, e: Tensor, mask: Tensor) -> Tensor:
            score = self.start + e[0]
            for i in range(1, len(e)):
                wide = score.unsqueeze(2) + self.transitions + e[i].unsqueeze(1)
                score = torch.where(mask[i].unsqueeze(1), torch.logsumexp(wide, 1), score)
            return torch.logsumexp(score + self.end, dim=1)

        def forward(self, e: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
            return (self.normaliser(e, mask) - self.numerator(e, tags, mask)).mean()

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn = nn.Embedding(12, 6), nn.GRU(6, 8)
            self.fc, self.crf = nn.Linear(8, 3), CRF(3)

        def forward(self, words: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
            return self.crf(self.fc(self.rnn(self.embed(words))[0]), tags, mask)

    def batch() -> dict[str, Tensor]:
        words = torch.randint(12, (6, 5))
        lengths = torch.randint(2, 7, (5,))
        return {"words": words, "tags": words % 3, "mask": torch.arange(6)[:, None] < lengths}

    trainer = on.trainer(Tagger(), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def uncertain_tasks(on: Machine) -> Weights:
    """Kendall's weights of tasks: logarithms of variances that are learnt with the rest."""

    class Losses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_vars = nn.ParameterDict({k: nn.Parameter(torch.zeros(())) for k in ("r", "c")})

        def forward(self, **losses: Tensor) -> Tensor:
            total = 0.0
            for name, loss in losses.items():
                total += torch.exp(-self.log_vars[name]) * loss + self.log_vars[name]
            return total

    class MultiTask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(5, 12)
            self.heads = nn.ModuleDict({"r": nn.Linear(12, 1), "c": nn.Linear(12, 3)})
            self.combine = Losses()

        def forward(self, x: Tensor, value: Tensor, kind: Tensor) -> dict[str, Tensor]:
            h = self.shared(x).sigmoid()
            r = functional.mse_loss(self.heads["r"](h).squeeze(-1), value)
            c = functional.cross_entropy(self.heads["c"](h), kind)
            return {"r": r, "c": c, "loss": self.combine(r=r, c=c)}

    def batch() -> dict[str, Tensor]:
        x = torch.randn(10, 5)
        return {"x": x, "value": 2 * x[:, 0], "kind": x[:, :3].argmax(1)}

    trainer = on.trainer(MultiTask(), batch(), sgd(0.1), losses=[2])
    for _ in range(20):
        on.note(*trainer.step(batch()))
    return trainer.weights()


def optimal_transport(on: Machine) -> Weights:
    """Sinkhorn's iterations in the log domain, between what a network maps and a target cloud."""

    class Mapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.t = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            c = ((x + self.t(x))[:, None] - y[None]).abs().pow(2).sum(-1)
            eps, u, v = 0.5, torch.zeros(len(x)), torch.zeros(len(y))
            log_n = -torch.log(torch.tensor(float(len(x))))
            for _ in range(8):
                u = eps * (log_n - torch.logsumexp((v[None] - c) / eps, 1))
                v = eps * (log_n - torch.logsumexp((u[:, None] - c) / eps, 0))
            plan = ((u[:, None] + v[None] - c) / eps).exp()
            return (plan * c).sum()

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(9, 2), "y": 0.5 * torch.randn(9, 2) + 2}

    trainer = on.trainer(Mapped(), batch(), sgd(0.02))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def soft_time_warping(on: Machine) -> Weights:
    """Soft-DTW: a table that Python fills cell by cell with soft minima."""

    class SoftDTW(nn.Module):
        def __init__(self, gamma: float = 0.5) -> None:
            super().__init__()
            self.net, self.gamma = nn.Conv1d(1, 1, 3, padding=1), gamma

        def softmin(self, *cells: Tensor) -> Tensor:
            return -self.gamma * torch.logsumexp(torch.stack(cells) / -self.gamma, 0)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            made = self.net(x.unsqueeze(1)).squeeze(1)
            d = (made.unsqueeze(2) - y.unsqueeze(1)) ** 2
            n, m = d.shape[1:]
            far = torch.full((len(x),), 1e5)
            table = {(0, 0): torch.zeros(len(x))}
            for i, j in itertools.product(range(1, n + 1), range(1, m + 1)):
                near = [(i - 1, j), (i, j - 1), (i - 1, j - 1)]
                table[i, j] = d[:, i - 1, j - 1] + self.softmin(*(table.get(p, far) for p in near))
            return table[n, m].mean()

    def batch() -> dict[str, Tensor]:
        phase = torch.rand(5, 1)
        x = torch.sin(torch.arange(5) + phase)
        return {"x": x, "y": 2 * torch.sin(torch.arange(4) * 1.2 + phase)}

    trainer = on.trainer(SoftDTW(), batch(), sgd(0.01))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def centres(on: Machine) -> Weights:
    """Center loss, whose centres have an optimizer of their own, beside softmax."""

    class CenterLoss(nn.Module):
        def __init__(self, classes: int, dim: int) -> None:
            super().__init__()
            self.centers = nn.Parameter(torch.randn(classes, dim))

        def forward(self, x: Tensor, labels: Tensor) -> Tensor:
            b, k = x.size(0), self.centers.size(0)
            distmat = torch.pow(x, 2).sum(dim=1, keepdim=True).expand(b, k)
            distmat = distmat + torch.pow(self.centers, 2).sum(1, keepdim=True).expand(k, b).t()
            distmat = torch.addmm(distmat, x, self.centers.t(), beta=1, alpha=-2)
            mask = labels.unsqueeze(1).expand(b, k).eq(torch.arange(k).long().expand(b, k))
            return (distmat * mask.float()).clamp(min=1e-12, max=1e12).sum() / b

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Linear(5, 12), nn.PReLU(), nn.Linear(12, 2))
            self.fc = nn.Linear(2, 4)
            self.xent, self.cent = nn.CrossEntropyLoss(), CenterLoss(4, 2)

        def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            f = self.features(x)
            return self.xent(self.fc(f), labels) + 0.1 * self.cent(f, labels), f

    def make(optim: object, model: Net) -> list[torch.optim.Optimizer]:
        rest = [p for n, p in model.named_parameters() if not n.startswith("cent")]
        return [optim.SGD(rest, lr=0.05, momentum=0.9), optim.SGD(model.cent.parameters(), lr=0.5)]

    def batch() -> dict[str, Tensor]:
        labels = torch.randint(4, (12,))
        return {"x": functional.one_hot(labels, 5) + 0.3 * torch.randn(12, 5), "labels": labels}

    trainer = on.trainer(Net(), batch(), make)
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def survival(on: Machine) -> Weights:
    """Cox's partial likelihood: times are sorted in ``forward``, risk sets by ``logcumsumexp``."""

    class Cox(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.risk = nn.Sequential(nn.Linear(4, 8), nn.ELU(), nn.Linear(8, 1, bias=False))

        def forward(self, x: Tensor, time: Tensor, event: Tensor) -> Tensor:
            order = torch.argsort(time, descending=True)
            h, e = self.risk(x[order]).squeeze(-1), event[order]
            return -((h - torch.logcumsumexp(h, 0)) * e).sum() / e.sum()

    def batch() -> dict[str, Tensor]:
        x = torch.randn(12, 4)
        time = torch.rand(12) * torch.exp(-x[:, 0])
        return {"x": x, "time": time, "event": (time < 1).float()}

    trainer = on.trainer(Cox(), batch(), adam(0.01))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def hand_written_and_beside_others(on: Machine) -> Weights:
    """A scalar loss by hand beside its prediction and a metric, and nobody says which is the loss."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 1)

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            made = self.net(x).squeeze(-1)
            loss = torch.log(torch.cosh(made - y)).mean()
            return loss, made.pow(2).mean()

    def batch() -> dict[str, Tensor]:
        x = torch.randn(8, 4)
        return {"x": x, "y": x.sum(1)}

    trainer = on.trainer(Net(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def loss_by_a_number(on: Machine) -> Weights:
    """The scale of the targets is taken out of them as a number: ``float(y.abs().max())``."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            scale = float(y.abs().max())
            return functional.mse_loss(self.net(x).squeeze(-1), y / scale)

    def batch() -> dict[str, Tensor]:
        x = torch.randn(8, 4)
        return {"x": x, "y": x.sum(1) * 3}

    trainer = on.trainer(Net(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    segmentation,
    smoothed_labels,
    random_field,
    uncertain_tasks,
    optimal_transport,
    soft_time_warping,
    centres,
    survival,
    hand_written_and_beside_others,
    loss_by_a_number,
]
