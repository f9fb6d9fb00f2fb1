"""Unusual networks: sets, points, capsules, flows, energies and soft trees."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import orthogonal

from tests.training_programs.machines import Machine, Weights, adam, sgd


def squash(x: Tensor, dim: int = -1) -> Tensor:
    norm = (x**2).sum(dim=dim, keepdim=True)
    return norm / (1 + norm) * x / (norm.sqrt() + 1e-8)


def capsules(on: Machine) -> Weights:
    """Routing by agreement: three rounds, the first two without gradients, and a margin loss."""

    class CapsNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 8, 3, stride=2)
            self.W = nn.Parameter(0.3 * torch.randn(1, 18, 3, 5, 4))

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            u = squash(self.conv(x).relu().view(x.size(0), 18, 4))
            u_hat = (self.W @ u[:, :, None, :, None]).squeeze(-1)
            b = torch.zeros(x.size(0), 18, 3, 1)
            temp = u_hat.detach()
            for r in range(3):
                c = b.softmax(dim=2)
                v = squash((c * (temp if r < 2 else u_hat)).sum(dim=1))
                if r < 2:
                    b = b + (temp * v.unsqueeze(1)).sum(-1, keepdim=True)
            length = v.norm(dim=-1)
            hot = torch.eye(3).index_select(0, y)
            loss = hot * (0.9 - length).clamp(min=0) ** 2
            loss = loss + 0.5 * (1 - hot) * (length - 0.1).clamp(min=0) ** 2
            return loss.sum(-1).mean(), length

    def batch() -> dict[str, Tensor]:
        y = torch.randint(3, (5,))
        return {"x": torch.rand(5, 1, 7, 7) + y.view(5, 1, 1, 1) / 2, "y": y}

    trainer = on.trainer(CapsNet(), batch(), adam(0.01), losses=[0])
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


class MAB(nn.Module):
    """The multihead attention block of set transformers, heads split and put back by ``cat``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.fc_q, self.fc_k, self.fc_v, self.fc_o = (nn.Linear(width, width) for _ in range(4))
        self.ln = nn.LayerNorm(width)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        q, k, v = self.fc_q(q), self.fc_k(k), self.fc_v(k)
        split = q.size(-1) // self.heads
        q_, k_, v_ = (torch.cat(t.split(split, 2), 0) for t in (q, k, v))
        a = torch.softmax(q_.bmm(k_.transpose(1, 2)) / math.sqrt(q.size(-1)), 2)
        o = torch.cat((q_ + a.bmm(v_)).split(q.size(0), 0), 2)
        return self.ln(o + functional.relu(self.fc_o(o)))


def set_transformer(on: Machine) -> Weights:
    """Inducing points and pooling by a seed; the largest number of a set is to be told."""

    class SetTransformer(nn.Module):
        def __init__(self, width: int = 8) -> None:
            super().__init__()
            self.embed = nn.Linear(1, width)
            self.induce = nn.Parameter(torch.empty(1, 3, width))
            self.seed = nn.Parameter(torch.empty(1, 1, width))
            for parameter in (self.induce, self.seed):
                nn.init.xavier_uniform_(parameter)
            self.blocks = nn.ModuleList(MAB(width, 2) for _ in range(3))
            self.out = nn.Linear(width, 1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x = self.embed(x)
            h = self.blocks[0](self.induce.repeat(x.size(0), 1, 1), x)
            x = self.blocks[1](x, h)
            pooled = self.blocks[2](self.seed.expand(x.size(0), -1, -1), x)
            return functional.l1_loss(self.out(pooled).squeeze(), y)

    def batch() -> dict[str, Tensor]:
        x = torch.rand(8, 6, 1) * 4
        return {"x": x, "y": x.amax((1, 2))}

    trainer = on.trainer(SetTransformer(), batch(), sgd(0.01))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def point_cloud(on: Machine) -> Weights:
    """PointNet with a learnt alignment that is kept near orthogonal, and neighbours by distance."""

    class PointNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tnet = nn.Sequential(nn.Conv1d(3, 8, 1), nn.Tanh())
            self.align = nn.Linear(8, 9)
            self.edge = nn.Conv2d(6, 8, 1)
            self.head = nn.Linear(8, 2)
            nn.init.zeros_(self.align.weight)
            self.align.bias.data = torch.eye(3).flatten()

        def forward(self, points: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            t = self.align(self.tnet(points.mT).mean(-1)).view(-1, 3, 3)
            x = torch.bmm(points, t)
            near = torch.cdist(x, x).topk(4, largest=False).indices
            rows = torch.arange(x.size(0)).view(-1, 1, 1)
            neighbours = x[rows, near]
            centre = x.unsqueeze(2).expand_as(neighbours)
            e = self.edge(torch.cat([centre, neighbours - centre], -1).permute(0, 3, 1, 2))
            logits = self.head(functional.softplus(e).mean(-1).amax(-1))
            apart = (torch.eye(3) - t @ t.mT).pow(2).sum((1, 2)).mean()
            return functional.cross_entropy(logits, label) + 0.01 * apart, logits

    def batch() -> dict[str, Tensor]:
        label = torch.randint(2, (5,))
        points = torch.randn(5, 10, 3)
        flat = points * torch.tensor([1.0, 1.0, 0.1])
        return {"points": torch.where(label[:, None, None] == 1, flat, points), "label": label}

    trainer = on.trainer(PointNet(), batch(), sgd(0.05))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def real_nvp(on: Machine) -> Weights:
    """Affine couplings with alternating masks, activation norms, and an orthogonal mixing between."""

    class Coupling(nn.Module):
        def __init__(self, mask: Tensor) -> None:
            super().__init__()
            self.register_buffer("mask", mask)
            self.scale = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2), nn.Tanh())
            self.shift = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            kept = x * self.mask
            s = self.scale(kept) * (1 - self.mask)
            t = self.shift(kept) * (1 - self.mask)
            return kept + (1 - self.mask) * (x * s.exp() + t), s.sum(-1)

    class RealNVP(nn.Module):
        def __init__(self, depth: int = 4) -> None:
            super().__init__()
            masks = [torch.tensor([float(i % 2), float((i + 1) % 2)]) for i in range(depth)]
            self.flows = nn.ModuleList(map(Coupling, masks))
            self.mix = orthogonal(nn.Linear(2, 2, bias=False))
            self.log_scale = nn.Parameter(torch.zeros(2))
            self.base = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))

        def forward(self, x: Tensor) -> Tensor:
            logdet = self.log_scale.sum()
            z = self.mix(x * self.log_scale.exp())
            for flow in self.flows:
                z, ld = flow(z)
                logdet = logdet + ld
            return -(self.base.log_prob(z) + logdet).mean()

    def batch() -> dict[str, Tensor]:
        angle = torch.rand(16) * 6.28
        return {"x": torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(16, 2)}

    trainer = on.trainer(RealNVP(), batch(), adam(0.01))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def spline_flow(on: Machine) -> Weights:
    """Rational-quadratic splines: bins found by ``searchsorted``, their edges gathered."""

    class SplineFlow(nn.Module):
        def __init__(self, bins: int = 5) -> None:
            super().__init__()
            self.bins = bins
            self.net = nn.Sequential(nn.Linear(1, 12), nn.ReLU(), nn.Linear(12, 3 * bins - 1))

        def forward(self, x: Tensor, given: Tensor) -> Tensor:
            w, h, d = self.net(given).split([self.bins, self.bins, self.bins - 1], -1)
            w, h = (0.02 + 0.9 * t.softmax(-1) for t in (w, h))
            d = functional.pad(functional.softplus(d) + 0.02, (1, 1), value=1.0)
            left, bottom = (functional.pad(t.cumsum(-1), (1, 0)) for t in (w, h))
            k = torch.searchsorted(left[:, 1:-1].contiguous(), x)

            def pick(values: Tensor, i: Tensor) -> Tensor:
                return values.gather(1, i)

            theta = (x - pick(left, k)) / pick(w, k)
            slope = pick(h, k) / pick(w, k)
            d0, d1 = pick(d, k), pick(d, k + 1)
            mid = theta * (1 - theta)
            below = slope + (d0 + d1 - 2 * slope) * mid
            y = pick(bottom, k) + pick(h, k) * (slope * theta**2 + d0 * mid) / below
            top = slope**2 * (d1 * theta**2 + 2 * slope * mid + d0 * (1 - theta) ** 2)
            logdet = top.log() - 2 * below.log()
            u = torch.special.ndtri(y.clamp(0.01, 0.99))
            return (0.5 * u**2 - logdet).mean()

    def batch() -> dict[str, Tensor]:
        given = torch.rand(16, 1)
        return {"x": (0.3 * given + 0.5 * torch.rand(16, 1)).clamp(0.02, 0.98), "given": given}

    trainer = on.trainer(SplineFlow(), batch(), sgd(0.05))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def energy_based(on: Machine) -> Weights:
    """Langevin steps inside ``forward`` find the negatives; noise is an input, chains start from data."""

    class EBM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 1))

        def forward(self, x: Tensor, noise: Tensor) -> Tensor:
            fake = x.detach()
            for step in noise:
                fake = fake.detach().requires_grad_(True)
                slope = torch.autograd.grad(self.net(fake).sum(), fake)[0]
                fake = fake - 0.1 * slope + 0.05 * step
            real, made = self.net(x), self.net(fake.detach())
            return real.mean() - made.mean() + 0.1 * (real**2 + made**2).mean()

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(12, 2) * 0.5 + 1, "noise": torch.randn(3, 12, 2)}

    trainer = on.trainer(EBM(), batch(), sgd(0.1), losses=[0])
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def soft_trees(on: Machine) -> Weights:
    """Oblivious decision trees: soft splits of chosen features, products over all leaves by einsum."""

    class NODE(nn.Module):
        def __init__(self, trees: int = 4, depth: int = 3) -> None:
            super().__init__()
            self.select = nn.Parameter(torch.randn(trees, depth, 5))
            self.threshold = nn.Parameter(torch.zeros(trees, depth))
            self.log_tau = nn.Parameter(torch.zeros(trees, depth))
            self.leaves = nn.Parameter(torch.randn(trees, 2**depth))
            codes = np.arange(2**depth)[:, None] >> np.arange(depth)[None] & 1
            self.register_buffer("codes", torch.from_numpy(codes).float())

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            feature = torch.einsum("bf,tdf->btd", x, self.select.softmax(-1))
            right = torch.sigmoid((feature - self.threshold) * self.log_tau.neg().exp())
            right = right.unsqueeze(2)
            p = (self.codes * right + (1 - self.codes) * (1 - right)).prod(-1)
            return functional.mse_loss(torch.einsum("btl,tl->b", p, self.leaves), y)

    def batch() -> dict[str, Tensor]:
        x = torch.randn(16, 5)
        return {"x": x, "y": torch.where(x[:, 0] > 0, x[:, 1].sign(), x[:, 2].sign())}

    trainer = on.trainer(NODE(), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    capsules,
    set_transformer,
    point_cloud,
    real_nvp,
    spline_flow,
    energy_based,
    soft_trees,
]
