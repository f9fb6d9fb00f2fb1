"""Compression: codes that are drawn, rounded, looked up or measured in bits."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def pictures(count: int = 6, size: int = 8) -> Tensor:
    """Squares at drawn places."""
    corner = torch.randint(0, size // 2, (count, 2))
    grid = torch.arange(size)
    inside = [(grid >= c[:, None]) & (grid < c[:, None] + size // 2) for c in corner.T]
    return (inside[0][:, :, None] & inside[1][:, None, :]).float().unsqueeze(1)


class VAE(nn.Module):
    """The noise is an input, since the device draws none; torch.distributions say the divergence."""

    def __init__(self, latent: int = 3) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = (
            nn.Linear(64, 24),
            nn.Linear(24, latent),
            nn.Linear(24, latent),
        )
        self.fc3, self.fc4 = nn.Linear(latent, 24), nn.Linear(24, 64)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h1 = torch.tanh(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def decode(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.fc4(functional.relu(self.fc3(z))))

    def forward(self, x: Tensor, eps: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x.view(-1, 64)
        mu, logvar = self.encode(x)
        std = torch.exp(0.5 * logvar)
        recon = self.decode(mu + eps * std)
        bce = functional.binary_cross_entropy(recon, x, reduction="sum")
        kld = kl_divergence(Normal(mu, std), Normal(0.0, 1.0)).sum()
        return (bce + beta * kld) / len(x), bce, kld


def variational(on: Machine) -> Weights:
    """Beta rises from nought to one as an input; the first of three outputs is stated as the loss."""
    trainer = None
    for step in range(20):
        batch = {"x": pictures(), "eps": torch.randn(6, 3), "beta": torch.tensor(step / 20)}
        trainer = trainer or on.trainer(VAE(), batch, adam(0.01), losses=(0,))
        on.note(*trainer.step(batch))
    return trainer.weights()


class VectorQuantizer(nn.Module):
    """Nearest rows of a codebook, gradients straight through, and two more losses."""

    def __init__(self, codes: int, width: int, commitment: float = 0.25) -> None:
        super().__init__()
        self.embedding = nn.Embedding(codes, width)
        self.embedding.weight.data.uniform_(-1 / codes, 1 / codes)
        self.commitment = commitment

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        w = self.embedding.weight
        d = flat.pow(2).sum(1, keepdim=True) + w.pow(2).sum(1) - 2 * flat @ w.t()
        index = d.argmin(1)
        encodings = torch.zeros(len(index), len(w)).scatter_(1, index[:, None], 1)
        quantized = (encodings @ w).view(len(z), *z.shape[2:], -1).permute(0, 3, 1, 2)
        loss = functional.mse_loss(quantized, z.detach())
        loss = loss + self.commitment * functional.mse_loss(quantized.detach(), z)
        used = encodings.mean(0)
        perplexity = torch.exp(-(used * torch.log(used + 1e-10)).sum())
        return loss, z + (quantized - z).detach(), perplexity


def vq_vae(on: Machine) -> Weights:
    """Straight-through codes of a small codebook; the loss is the third output of a dictionary, by its index."""

    class VQVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.Tanh(), nn.Conv2d(8, 4, 1))
            self.vq = VectorQuantizer(6, 4)
            self.dec = nn.Sequential(
                nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.Tanh(), nn.Conv2d(8, 1, 1)
            )

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            vq_loss, quantized, perplexity = self.vq(self.enc(x))
            recon = self.dec(quantized)
            return {
                "recon": recon,
                "perplexity": perplexity,
                "loss": functional.mse_loss(recon, x) + vq_loss,
            }

    # Outputs of a dictionary keep their places: the loss is the third.
    trainer = on.trainer(VQVAE(), {"x": pictures()}, sgd(0.2), losses=[2])
    for _ in range(20):
        _, perplexity, loss = trainer.step({"x": pictures()})
        on.note(loss, perplexity)
    return trainer.weights()


def moving_codebook(on: Machine) -> Weights:
    """A codebook that follows the means of what fell to its rows, in buffers that ``forward`` writes."""

    class EMAQuantizer(nn.Module):
        def __init__(self, codes: int, width: int) -> None:
            super().__init__()
            self.register_buffer("codebook", torch.randn(codes, width) * 0.3)
            self.register_buffer("size", torch.ones(codes))
            self.register_buffer("total", self.codebook.clone())

        def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
            index = torch.cdist(z.detach(), self.codebook).argmin(dim=1)
            q = self.codebook[index]
            if self.training:
                with torch.no_grad():
                    hot = functional.one_hot(index, len(self.codebook)).to(z.dtype)
                    self.size.mul_(0.9).add_(hot.sum(0), alpha=0.1)
                    self.total.mul_(0.9).add_(hot.t() @ z, alpha=0.1)
                    n = self.size.sum()
                    smoothed = (self.size + 1e-3) / (n + len(self.size) * 1e-3) * n
                    self.codebook.copy_(self.total / smoothed.unsqueeze(1))
            return z + (q - z).detach(), functional.mse_loss(z, q.detach())

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc, self.dec = nn.Linear(64, 5), nn.Linear(5, 64)
            self.vq = EMAQuantizer(7, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = x.flatten(1)
            q, commit = self.vq(self.enc(x))
            return functional.mse_loss(self.dec(q), x) + 0.25 * commit

    trainer = on.trainer(Net().train(), {"x": pictures(10)}, sgd(0.2, momentum=0.9))
    for _ in range(20):
        on.note(trainer.step({"x": pictures(10)})[0])
    return trainer.weights()


def hyperprior(on: Machine) -> Weights:
    """Rate and distortion: uniform noise for rounding, scales from a side channel, bits by ``erf``."""

    class GDN(nn.Module):
        def __init__(self, channels: int, inverse: bool = False) -> None:
            super().__init__()
            self.beta = nn.Parameter(torch.ones(channels))
            self.gamma = nn.Parameter(0.1 * torch.eye(channels))
            self.inverse = inverse

        def forward(self, x: Tensor) -> Tensor:
            weight = self.gamma.abs()[:, :, None, None]
            norm = torch.sqrt(functional.conv2d(x**2, weight, self.beta.clamp(min=0.1)))
            return x * norm if self.inverse else x / norm

    def bits(y: Tensor, scale: Tensor) -> Tensor:
        normal = Normal(torch.zeros_like(y), scale)
        likelihood = normal.cdf(y + 0.5) - normal.cdf(y - 0.5)
        return -torch.log2(likelihood.clamp_min(1e-6)).sum()

    class Codec(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ga = nn.Sequential(nn.Conv2d(1, 6, 3, 2, 1), GDN(6), nn.Conv2d(6, 4, 3, 1, 1))
            self.gs = nn.Sequential(
                nn.Conv2d(4, 6, 3, 1, 1), GDN(6, True), nn.ConvTranspose2d(6, 1, 4, 2, 1)
            )
            self.ha, self.hs = nn.Conv2d(4, 2, 3, 2, 1), nn.ConvTranspose2d(2, 4, 4, 2, 1)
            self.prior = nn.Parameter(torch.zeros(2, 1, 1))

        def forward(self, x: Tensor, ny: Tensor, nz: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            y = self.ga(x)
            z = self.ha(y.abs()) + nz
            scale = functional.softplus(self.hs(z)) + 0.1
            rate = bits(y + ny, scale) + bits(z, self.prior.exp().expand_as(z))
            mse = functional.mse_loss(self.gs(y + ny), x)
            bpp = rate / x.numel()
            return bpp + 20 * mse, bpp, mse

    def batch() -> dict[str, Tensor]:
        noise = [torch.rand(6, 4, 4, 4) - 0.5, torch.rand(6, 2, 2, 2) - 0.5]
        return {"x": pictures(), "ny": noise[0], "nz": noise[1]}

    trainer = on.trainer(Codec(), batch(), adam(0.005), losses=[0])
    for _ in range(20):
        on.note(*trainer.step(batch()))
    return trainer.weights()


def sparse_features(on: Machine) -> Weights:
    """The k largest of each code stay; the decoder's columns are normalised again on the host."""

    class TopK(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.b = nn.Parameter(torch.zeros(64))
            self.W_enc = nn.Parameter(torch.randn(64, 32) / 8)
            self.W_dec = nn.Parameter(functional.normalize(torch.randn(32, 64), dim=1))

        def forward(self, x: Tensor) -> Tensor:
            x = x.flatten(1)
            pre = (x - self.b) @ self.W_enc
            top = torch.topk(pre, k=4, dim=-1)
            code = torch.zeros_like(pre).scatter(-1, top.indices, top.values.relu())
            return (code @ self.W_dec + self.b - x).pow(2).sum(-1).mean()

    trainer = on.trainer(TopK(), {"x": pictures(12)}, sgd(0.02))
    for _ in range(20):
        on.note(trainer.step({"x": pictures(12)})[0])
        rows = trainer.weights()["W_dec"]
        trainer.write({"W_dec": rows / rows.norm(dim=1, keepdim=True)})
    return trainer.weights()


def gumbel_codes(on: Machine) -> Weights:
    """Categories relaxed by Gumbel noise from numpy, at a temperature that is annealed as an input."""
    settings = SimpleNamespace(groups=3, classes=4)

    class Discrete(nn.Module):
        def __init__(self, cfg: SimpleNamespace) -> None:
            super().__init__()
            self.cfg = cfg
            width = cfg.groups * cfg.classes
            self.net = nn.ModuleDict({"enc": nn.Linear(64, width), "dec": nn.Linear(width, 64)})

        def forward(self, x: Tensor, gumbel: Tensor, tau: Tensor) -> Tensor:
            logits = self.net["enc"](x.flatten(1)).view(-1, self.cfg.groups, self.cfg.classes)
            soft = ((logits + gumbel) / tau).softmax(-1)
            hard = functional.one_hot(soft.argmax(-1), self.cfg.classes).float()
            code = hard + soft - soft.detach()
            made = self.net["dec"](code.flatten(1))
            q = logits.softmax(-1)
            kl = (q * (q * self.cfg.classes + 1e-9).log()).sum((-1, -2)).mean()
            return functional.binary_cross_entropy_with_logits(made, x.flatten(1)) + 0.01 * kl

    chance = np.random.RandomState(5)
    temperatures = (max(0.5, 0.9**k) for k in itertools.count())

    def batch() -> dict[str, Tensor]:
        noise = chance.gumbel(size=(6, 3, 4)).astype(np.float32)
        tau = torch.tensor(next(temperatures), dtype=torch.float32)
        return {"x": pictures(), "gumbel": torch.from_numpy(noise), "tau": tau}

    trainer = on.trainer(Discrete(settings), batch(), sgd(0.5))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


def semantic_hashing(on: Machine) -> Weights:
    """Binary codes by a ``Function`` whose gradient passes inside the unit interval."""

    class Hashing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12))
            self.decoder = nn.Linear(12, 64)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            code = Sign.apply(self.encoder(x))
            balance = code.mean(0).pow(2).sum()
            made = self.decoder(code)
            loss = nn.functional.binary_cross_entropy_with_logits(made, x.flatten(1))
            return loss + 0.1 * balance, code

    trainer = on.trainer(Hashing().train(), {"x": pictures(12)}, sgd(0.2))
    for _ in range(20):
        loss, code = trainer.step({"x": pictures(12)})
        on.note(loss, code.sum())
    return trainer.weights()


PROGRAMS = [
    variational,
    vq_vae,
    moving_codebook,
    hyperprior,
    sparse_features,
    gumbel_codes,
    semantic_hashing,
]
