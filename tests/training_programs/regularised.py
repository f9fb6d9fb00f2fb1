"""Weights that are not what they seem: masked, rounded, normalised, shared, of low rank; and mixed inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from tests.training_programs.machines import Machine, Weights, adam, sgd


class Classifier(nn.Module):
    """Around any body that maps (batch, 6) to (batch, 3)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.body(x)
        return functional.cross_entropy(logits, y), logits


def batch(count: int = 10) -> dict[str, Tensor]:
    y = torch.randint(3, (count,))
    return {"x": functional.one_hot(y, 6) + 0.4 * torch.randn(count, 6), "y": y}


def train(on: Machine, body: nn.Module, rate: float = 0.2) -> Weights:
    trainer = on.trainer(Classifier(body).train(), batch(), sgd(rate))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def pruned(on: Machine) -> Weights:
    """``torch.nn.utils.prune``: a mask in a buffer, and the weight made of both before every forward."""
    body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    prune.l1_unstructured(body[0], "weight", amount=0.5)
    prune.random_structured(body[2], "weight", amount=2, dim=1)
    return train(on, body)


def sparse_from_scratch(on: Machine) -> Weights:
    """RigL by hand: the host moves connections from small weights to large gradients every five steps."""
    model = Classifier(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)))
    trainer = on.trainer(model, batch(), sgd(0.2))
    mask = (torch.rand(16, 6) < 0.5).float()
    for step in range(20):
        on.note(trainer.forward(batch())[0])
        slope = trainer.backward()["body.0.weight"]
        trainer.update()
        weight = trainer.weights()["body.0.weight"] * mask
        if step % 5 == 4:
            drop = (weight.abs() + 10 * (1 - mask)).flatten().argsort()[:6]
            grow = (slope.abs() * (1 - mask)).flatten().argsort(descending=True)[:6]
            mask.view(-1)[drop], mask.view(-1)[grow] = 0.0, 1.0
        trainer.write({"body.0.weight": weight * mask})
    return trainer.weights()


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r: int = 2, alpha: float = 4.0) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(r))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scaling = alpha / r

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


def low_rank_adapters(on: Machine) -> Weights:
    """LoRA put in the place of linear layers by ``setattr``; only adapters go to the optimizer."""
    body = nn.Sequential(
        nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3)
    )
    for name, child in list(body.named_children()):
        if isinstance(child, nn.Linear):
            setattr(body, name, LoRALinear(child))

    def make(optim: Any, model: nn.Module) -> torch.optim.Optimizer:
        return optim.AdamW(
            [p for p in model.parameters() if p.requires_grad],
            lr=0.02, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.0,
        )  # fmt: skip

    trainer = on.trainer(Classifier(body), batch(), make)
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


class FakeQuantLinear(nn.Linear):
    """Weights and inputs on a grid of 16 steps, by a straight-through estimator of ``detach``."""

    @staticmethod
    def quantize(x: Tensor) -> Tensor:
        scale = x.detach().abs().amax() / 7
        q = torch.clamp(torch.round(x / scale), -8, 7) * scale
        return x + (q - x).detach()

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(self.quantize(x), self.quantize(self.weight), self.bias)


def quantised(on: Machine) -> Weights:
    """Weights and activations on a grid of sixteen steps, whose size is their largest number."""
    return train(on, nn.Sequential(FakeQuantLinear(6, 16), nn.ReLU(), FakeQuantLinear(16, 3)))


def learnt_step_size(on: Machine) -> Weights:
    """LSQ: the step of the grid is a parameter, whose gradient is scaled by a trick of ``detach``."""

    class LSQ(nn.Module):
        def __init__(self, cin: int, cout: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(cout, cin) / math.sqrt(cin))
            self.step = nn.Parameter(2 * self.weight.detach().abs().mean() / math.sqrt(7))

        def forward(self, x: Tensor) -> Tensor:
            g = 1.0 / math.sqrt(self.weight.numel() * 7)
            s = (self.step - self.step * g).detach() + self.step * g
            v = (self.weight / s).clamp(-8, 7)
            return functional.linear(x, (v + (v.round() - v).detach()) * s)

    return train(on, nn.Sequential(LSQ(6, 16), nn.Hardtanh(), LSQ(16, 3)), 0.1)


def ternary(on: Machine) -> Weights:
    """BitNet: weights of three values by their mean size, as a parametrization, after a norm of RMS."""

    class Ternary(nn.Module):
        def forward(self, w: Tensor) -> Tensor:
            scale = w.abs().mean().clamp(min=1e-5)
            return w + ((w / scale).round().clamp(-1, 1) * scale - w).detach()

    layers = [nn.RMSNorm(6), nn.Linear(6, 16, bias=False), nn.SiLU(), nn.Linear(16, 3, bias=False)]
    for layer in layers:
        if isinstance(layer, nn.Linear):
            parametrize.register_parametrization(layer, "weight", Ternary())
    return train(on, nn.Sequential(*layers))


def mixed_up(on: Machine) -> Weights:
    """Mixup and label pairs, with Beta numbers and permutations of numpy."""

    class Mixup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

        def forward(self, x: Tensor, a: Tensor, b: Tensor, order: Tensor, lam: Tensor) -> Tensor:
            out = self.net(lam * x + (1 - lam) * x[order])
            return lam * functional.cross_entropy(out, a) + (1 - lam) * functional.cross_entropy(
                out, b
            )

    chance = np.random.default_rng(11)

    def mixed() -> dict[str, Tensor]:
        drawn, order = batch(), torch.from_numpy(chance.permutation(10))
        lam = torch.tensor(chance.beta(0.4, 0.4), dtype=torch.float32)
        return {
            "x": drawn["x"],
            "a": drawn["y"],
            "b": drawn["y"][order],
            "order": order,
            "lam": lam,
        }

    trainer = on.trainer(Mixup(), mixed(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(mixed())[0])
    return trainer.weights()


def stochastic_depth(on: Machine) -> Weights:
    """Which blocks live is drawn on the host for each sample, and goes in as a mask."""

    class Deep(nn.Module):
        def __init__(self, depth: int = 4) -> None:
            super().__init__()
            self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(depth)
            )

        def forward(self, x: Tensor, y: Tensor, alive: Tensor) -> dict[str, Tensor]:
            h = self.stem(x)
            for block, keep in zip(self.blocks, alive.unbind(1), strict=True):
                h = h + keep[:, None] * block(h)
            return {"loss": functional.cross_entropy(self.head(h), y)}

    def drawn() -> dict[str, Tensor]:
        rate = torch.linspace(1.0, 0.6, 4)
        return {**batch(), "alive": (torch.rand(10, 4) < rate).float() / rate}

    trainer = on.trainer(Deep(), drawn(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(drawn())[0])
    return trainer.weights()


def random_depth(on: Machine) -> Weights:
    """LayerDrop as fairseq has it: ``numpy.random`` in ``forward`` decides which layers run."""

    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                if not self.training or np.random.uniform() > 0.3:
                    x = x + layer(x).tanh()
            return self.head(x)

    np.random.seed(0)
    return train(on, Dropped())


def spectral(on: Machine) -> Weights:
    """Spectral norms by power iterations, whose vectors are buffers that every forward writes."""
    body = nn.Sequential(
        spectral_norm(nn.Linear(6, 16)), nn.LeakyReLU(0.1), spectral_norm(nn.Linear(16, 3))
    )
    return train(on, body)


def weight_normalised(on: Machine) -> Weights:
    """Length and direction of weights apart, of a convolution and along the first axis of a matrix."""
    body = nn.Sequential(
        nn.Unflatten(1, (1, 6)),
        weight_norm(nn.Conv1d(1, 4, 3)),
        nn.Tanh(),
        nn.Flatten(),
        weight_norm(nn.Linear(16, 3), dim=0),
    )
    return train(on, body)


def tied(on: Machine) -> Weights:
    """A language model whose output is its embedding, and whose one block runs three times (ALBERT)."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.block = nn.GRU(8, 8, batch_first=True)
            self.decode = nn.Linear(8, 20)
            self.decode.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            h = self.embed(ids[:, :-1])
            for _ in range(3):
                h = h + self.block(h)[0]
            return functional.cross_entropy(self.decode(h).mT, ids[:, 1:])

    def ids() -> dict[str, Tensor]:
        return {"ids": (torch.randint(20, (4, 1)) + 3 * torch.arange(7)) % 20}

    trainer = on.trainer(Tied(), ids(), adam(0.01))
    for _ in range(20):
        on.note(trainer.step(ids())[0])
    return trainer.weights()


def standardised(on: Machine) -> Weights:
    """Weight standardisation with group norm, and gradients centralised by hooks on parameters."""

    class WSConv2d(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            w = self.weight
            w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
            return self._conv_forward(x, w, self.bias)

    body = nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), WSConv2d(1, 6, 2), nn.GroupNorm(2, 6), nn.SiLU(),
        nn.Flatten(), nn.Linear(12, 3),
    )  # fmt: skip
    body[-1].weight.register_hook(lambda g: g - g.mean(1, keepdim=True))
    return train(on, body)


def orthogonality(on: Machine) -> Weights:
    """A penalty over all matrices of the module, gathered with ``named_parameters`` in ``forward``."""

    class Penalised(Classifier):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            loss, logits = super().forward(x, y)
            penalty = 0
            for name, w in self.named_parameters():
                if w.dim() > 1 and "bias" not in name:
                    gram = w @ w.t()
                    penalty += (gram * (1 - torch.eye(gram.shape[0]))).norm()
            l1 = sum(p.abs().sum() for p in self.parameters())
            return loss + 0.01 * penalty + 1e-3 * l1, logits

    body = nn.Sequential(nn.Linear(6, 8), nn.Softsign(), nn.Linear(8, 3))
    trainer = on.trainer(Penalised(body), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    pruned,
    sparse_from_scratch,
    low_rank_adapters,
    quantised,
    learnt_step_size,
    ternary,
    mixed_up,
    stochastic_depth,
    random_depth,
    spectral,
    weight_normalised,
    tied,
    standardised,
    orthogonality,
]
