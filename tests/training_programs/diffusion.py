"""Diffusion and its relatives: noise is drawn on the host, and what is predicted differs."""

from __future__ import annotations

import copy
import math
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def moons(count: int) -> Tensor:
    """Two half circles."""
    angle = torch.rand(count) * math.pi
    side = torch.randint(2, (count,)).float()
    x = torch.stack([angle.cos() + side, (1 - 2 * side) * angle.sin() + 0.5 * side], 1)
    return x + 0.05 * torch.randn(count, 2)


def timestep_embedding(t: Tensor, dim: int) -> Tensor:
    half = dim // 2
    freqs = torch.exp(-math.log(1000) * torch.arange(half, dtype=torch.float32) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


def ddpm(on: Machine) -> Weights:
    """A small U-net on images; betas are buffers that are indexed by the time steps of a batch."""

    class UNet(nn.Module):
        def __init__(self, width: int = 8) -> None:
            super().__init__()
            self.down = nn.Conv2d(1, width, 3, stride=2, padding=1)
            self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width))
            self.mid = nn.Sequential(nn.GroupNorm(2, width), nn.SiLU(), nn.Conv2d(width, width, 1))
            self.up = nn.ConvTranspose2d(width, width, 2, stride=2)
            self.out = nn.Conv2d(width + 1, 1, 3, padding=1)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            h = self.down(x) + self.time(timestep_embedding(t, 8))[:, :, None, None]
            return self.out(torch.cat([self.up(h + self.mid(h)), x], 1))

    class DDPM(nn.Module):
        def __init__(self, net: nn.Module, steps: int = 50) -> None:
            super().__init__()
            self.net = net
            betas = np.linspace(1e-4, 0.02, steps)
            bar = np.cumprod(1 - betas)
            self.register_buffer("sqrt_bar", torch.tensor(np.sqrt(bar), dtype=torch.float32))
            self.register_buffer("sqrt_one_minus", torch.tensor(np.sqrt(1 - bar)).float())

        def forward(self, x0: Tensor, t: Tensor, noise: Tensor) -> Tensor:
            view = (-1, 1, 1, 1)
            noisy = self.sqrt_bar[t].view(view) * x0 + self.sqrt_one_minus[t].view(view) * noise
            return functional.mse_loss(self.net(noisy, t), noise)

    def batch() -> dict[str, Tensor]:
        x0 = torch.zeros(4, 1, 8, 8)
        x0[:, :, 2:6, 2:6] = 1.0
        return {"x0": x0, "t": torch.randint(50, (4,)), "noise": torch.randn(4, 1, 8, 8)}

    trainer = on.trainer(DDPM(UNet()), batch(), adam(0.005))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


@dataclass
class ScoreOutput:
    loss: Tensor
    score: Tensor


def denoising_score_matching(on: Machine) -> Weights:
    """NCSN: a noise level per sample, the loss weighted by it, in a dataclass."""

    class ScoreNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*self._mlp(3, 32, 32, 2))

        @staticmethod
        def _mlp(*sizes: int) -> Iterator[nn.Module]:
            for i in range(len(sizes) - 1):
                yield nn.Linear(sizes[i], sizes[i + 1])
                if i < len(sizes) - 2:
                    yield nn.Softplus()

        def forward(self, x: Tensor, sigma: Tensor, z: Tensor) -> ScoreOutput:
            noisy = x + sigma * z
            score = self.layers(torch.cat([noisy, sigma.log()], -1)) / sigma
            loss = 0.5 * ((sigma * score + z) ** 2).sum(-1).mean()
            return ScoreOutput(loss=loss, score=score)

    def batch() -> dict[str, Tensor]:
        sigma = torch.exp(torch.empty(16, 1).uniform_(-3, 0))
        return {"x": moons(16), "sigma": sigma, "z": torch.randn(16, 2)}

    trainer = on.trainer(ScoreNet(), batch(), sgd(0.05), losses=[0])
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def sliced_score_matching(on: Machine) -> Weights:
    """Derivatives of the score along drawn directions, by ``autograd.grad`` in ``forward``."""
    net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2))

    class Sliced(nn.Module):
        def __init__(self, score: nn.Module) -> None:
            super().__init__()
            self.score = score

        def forward(self, x: Tensor, v: Tensor) -> Tensor:
            x = x.detach().requires_grad_()
            s = self.score(x)
            (grad,) = torch.autograd.grad((s * v).sum(), x, create_graph=True)
            return ((grad * v).sum(-1) + 0.5 * (s * v).sum(-1) ** 2).mean()

    def batch() -> dict[str, Tensor]:
        return {"x": moons(16), "v": torch.sign(torch.randn(16, 2))}

    trainer = on.trainer(Sliced(net), batch(), adam(0.005))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def implicit_score_matching(on: Machine) -> Weights:
    """Hyvarinen's loss: a scalar energy, its gradient, and the trace of its Hessian, dimension by dimension."""

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 16), nn.Linear(16, 1)

        def energy(self, x: Tensor) -> Tensor:
            return self.b(functional.softplus(self.a(x))).squeeze(-1) + 0.1 * x.square().sum(-1)

        def forward(self, x: Tensor) -> Tensor:
            x = x.clone()
            x.requires_grad_(True)
            score = -torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]
            trace = 0.0
            for i in range(2):
                row = torch.autograd.grad(score[:, i].sum(), x, create_graph=True)[0]
                trace = trace + row[:, i]
            return (trace + 0.5 * score.pow(2).sum(-1)).mean()

    trainer = on.trainer(Energy(), {"x": moons(12)}, sgd(0.05, momentum=0.9))
    for _ in range(20):
        on.note(trainer.step({"x": moons(12)})[0])
    return trainer.weights()


def flow_matching(on: Machine) -> Weights:
    """Straight paths from noise to data, with layers that time modulates; a named tuple comes out."""
    Output = namedtuple("Output", ["loss", "velocity"])

    class AdaLayer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width, elementwise_affine=False)
            self.mod = nn.Linear(8, 3 * width)
            self.mlp = nn.Linear(width, width)

        def forward(self, h: Tensor, c: Tensor) -> Tensor:
            shift, scale, gate = self.mod(c).chunk(3, dim=-1)
            return h + gate * functional.gelu(self.mlp(self.norm(h) * (1 + scale) + shift))

    class Velocity(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inp, self.out = nn.Linear(2, 16), nn.Linear(16, 2)
            self.layers = nn.ModuleList([AdaLayer(16), AdaLayer(16)])

        def forward(self, x1: Tensor, x0: Tensor, t: Tensor) -> Output:
            xt = (1 - t) * x0 + t * x1
            c = timestep_embedding(t.squeeze(-1) * 100, 8)
            h = self.inp(xt)
            for layer in self.layers:
                h = layer(h, c)
            v = self.out(h)
            return Output(functional.mse_loss(v, x1 - x0), v)

    def batch() -> dict[str, Tensor]:
        return {"x1": moons(16), "x0": torch.randn(16, 2), "t": torch.rand(16, 1)}

    trainer = on.trainer(Velocity(), batch(), adam(0.01))
    for _ in range(20):
        loss, velocity = trainer.step(batch())
        on.note(loss, velocity.mean())
    return trainer.weights()


def consistency(on: Machine) -> Weights:
    """A consistency model: the teacher is a copy that follows the student on the host."""

    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 20), nn.SiLU(), nn.Linear(20, 2))

        def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
            skip = 0.25 / ((sigma - 0.002) ** 2 + 0.25)
            out = 0.5 * (sigma - 0.002) / (0.25 + sigma**2).sqrt()
            return skip * x + out * self.net(torch.cat([x, sigma.log() / 4], 1))

        def forward(self, x: Tensor, sigma: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            made = self.denoise(x, sigma)
            gap = (made - target).pow(2).sum(1)
            return (torch.sqrt(gap + 1e-2) - 0.1).mean(), made

    student = Student()
    teacher = copy.deepcopy(student)
    batch = {"x": moons(8), "sigma": torch.full((8, 1), 0.5), "target": moons(8)}
    trainer = on.trainer(student, batch, sgd(0.1), losses=[0])
    for _ in range(20):
        x, z = moons(8), torch.randn(8, 2)
        sigma = torch.rand(8, 1) + 0.1
        with torch.no_grad():
            target = teacher.denoise(x + 0.8 * sigma * z, 0.8 * sigma)
        on.note(trainer.step({"x": x + sigma * z, "sigma": sigma, "target": target})[0])
        for name, value in trainer.weights().items():
            teacher.get_parameter(name).data.lerp_(value, 0.1)
    return trainer.weights()


def classifier_free_guidance(on: Machine) -> Weights:
    """Labels are dropped by numpy on the host; v-prediction with weights by signal-to-noise ratio."""

    def build(embed: Callable[[], nn.Embedding]) -> nn.Module:
        class Guided(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.label = embed()
                self.film = nn.Linear(8, 32)
                self.body = nn.ModuleList([nn.Linear(2, 16), nn.Linear(16, 2)])

            def forward(self, x: Tensor, eps: Tensor, angle: Tensor, label: Tensor) -> Tensor:
                a, s = angle.cos()[:, None], angle.sin()[:, None]
                scale, shift = self.film(self.label(label)).chunk(2, -1)
                h = torch.relu(self.body[0](a * x + s * eps) * scale + shift)
                v = self.body[1](h)
                weight = torch.minimum((a / s) ** 2, torch.tensor(5.0))
                return (weight * (v - (a * eps - s * x)) ** 2).mean()

        return Guided()

    chance = np.random.default_rng(4)

    def batch() -> dict[str, Tensor]:
        label = chance.integers(0, 3, 16)
        label[chance.random(16) < 0.2] = 3
        angle = torch.empty(16).uniform_(0.2, 1.4)
        return {
            "x": moons(16),
            "eps": torch.randn(16, 2),
            "angle": angle,
            "label": torch.from_numpy(label),
        }

    model = build(partial(nn.Embedding, 4, 8, padding_idx=3))
    trainer = on.trainer(model, batch(), sgd(0.05))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    ddpm,
    denoising_score_matching,
    sliced_score_matching,
    implicit_score_matching,
    flow_matching,
    consistency,
    classifier_free_guidance,
]
