"""Functions of a place: rays through a scene, sines, and learnt splines on every edge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def radiance_field(on: Machine) -> Weights:
    """NeRF: positional encodings, densities along rays, transmittance by ``cumprod``."""

    def encode(x: Tensor, octaves: int) -> Tensor:
        scaled = x[..., None] * 2.0 ** torch.arange(octaves)
        return torch.cat([x, scaled.sin().flatten(-2), scaled.cos().flatten(-2)], -1)

    class NeRF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(15, 24), nn.ReLU(), nn.Linear(24, 16))
            self.density, self.colour = nn.Linear(16, 1), nn.Linear(16 + 9, 3)

        def forward(self, origin: Tensor, direction: Tensor, depth: Tensor, rgb: Tensor) -> Tensor:
            points = origin[:, None] + direction[:, None] * depth[..., None]
            h = self.trunk(encode(points, 2))
            sigma = functional.softplus(self.density(h)).squeeze(-1)
            view = encode(direction, 1)[:, None].expand(-1, depth.size(1), -1)
            colour = torch.sigmoid(self.colour(torch.cat([h, view], -1)))
            delta = torch.diff(depth, dim=1, append=depth[:, -1:] + 0.2)
            alpha = 1 - torch.exp(-sigma * delta)
            clear = torch.cumprod(1 - alpha + 1e-6, dim=1)
            weight = alpha * torch.cat([torch.ones_like(clear[:, :1]), clear[:, :-1]], 1)
            return functional.mse_loss((weight[..., None] * colour).sum(1), rgb)

    def batch() -> dict[str, Tensor]:
        direction = functional.normalize(torch.randn(8, 3), dim=-1)
        depth = (torch.arange(6) + torch.rand(8, 6)) * 0.2
        rgb = direction * 0.5 + 0.5
        return {"origin": torch.zeros(8, 3), "direction": direction, "depth": depth, "rgb": rgb}

    trainer = on.trainer(NeRF(), batch(), adam(0.01))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def siren(on: Machine) -> Weights:
    """Sines with a frequency of thirty, fitted to the gradient of an image and not to the image."""

    class SineLayer(nn.Module):
        def __init__(self, cin: int, cout: int, first: bool = False, omega: float = 10.0) -> None:
            super().__init__()
            self.omega, self.linear = omega, nn.Linear(cin, cout)
            with torch.no_grad():
                bound = 1 / cin if first else math.sqrt(6 / cin) / omega
                self.linear.weight.uniform_(-bound, bound)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(self.omega * self.linear(x))

    class Siren(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(SineLayer(2, 16, True), SineLayer(16, 16), nn.Linear(16, 1))

        def forward(self, coords: Tensor, slope: Tensor) -> Tensor:
            coords = coords.clone().detach().requires_grad_(True)
            value = self.net(coords)
            made = torch.autograd.grad(value, [coords], torch.ones_like(value), create_graph=True)[
                0
            ]
            return ((made - slope) ** 2).sum(-1).mean()

    def batch() -> dict[str, Tensor]:
        c = torch.rand(16, 2) * 2 - 1
        slope = torch.stack([3 * torch.cos(3 * c[:, 0]), -2 * torch.sin(2 * c[:, 1])], 1)
        return {"coords": c, "slope": slope}

    trainer = on.trainer(Siren(), batch(), adam(0.001))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def kolmogorov_arnold(on: Machine) -> Weights:
    """Learnt splines on every edge, their bases by the recursion of Cox and de Boor."""

    class KANLinear(nn.Module):
        def __init__(self, cin: int, cout: int, grid: int = 4, order: int = 3) -> None:
            super().__init__()
            h = 2 / grid
            knots = torch.arange(-order, grid + order + 1) * h - 1
            self.register_buffer("grid", knots.expand(cin, -1).contiguous())
            self.order = order
            self.base = nn.Parameter(torch.randn(cout, cin) / math.sqrt(cin))
            self.spline = nn.Parameter(0.1 * torch.randn(cout, cin, grid + order))

        def bases(self, x: Tensor) -> Tensor:
            g, x = self.grid, x.unsqueeze(-1)
            b = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
            for k in range(1, self.order + 1):
                left = (x - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)])
                right = (g[:, k + 1 :] - x) / (g[:, k + 1 :] - g[:, 1:(-k)])
                b = left * b[..., :-1] + right * b[..., 1:]
            return b

        def forward(self, x: Tensor) -> Tensor:
            smooth = functional.linear(functional.silu(x), self.base)
            return smooth + functional.linear(self.bases(x).flatten(1), self.spline.flatten(1))

    class KAN(nn.Module):
        def __init__(self, widths: Sequence[int]) -> None:
            super().__init__()
            pairs = itertools.pairwise(widths)
            self.layers = nn.ModuleList(KANLinear(a, b) for a, b in pairs)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return functional.mse_loss(x[:, 0], y)

    def batch() -> dict[str, Tensor]:
        x = torch.rand(16, 2) * 1.8 - 0.9
        return {"x": x, "y": torch.exp(torch.sin(torch.pi * x[:, 0]) + x[:, 1] ** 2) / 2}

    trainer = on.trainer(KAN([2, 4, 1]), batch(), sgd(0.02))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    radiance_field,
    siren,
    kolmogorov_arnold,
]
