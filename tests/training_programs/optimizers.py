"""Optimizers by hand on the host, from gradients that the device computed, and what is done around steps."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel

from tests.training_programs.machines import Machine, Trainer, Weights, adam, sgd


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.mse_loss(self.net(x), y)


def data(count: int = 10) -> dict[str, Tensor]:
    x = torch.randn(count, 4)
    return {"x": x, "y": torch.stack([x[:, 0] * x[:, 1], x[:, 2].sin()], 1)}


def prepared(on: Machine) -> Trainer:
    """The optimizer that is compiled never runs: its sections are left out."""
    return on.trainer(Regression(), data(), sgd(0.0))


def gradients(on: Machine, trainer: Trainer, batch: dict[str, Tensor]) -> Weights:
    on.note(trainer.forward(batch)[0])
    return trainer.backward()


def lion(on: Machine) -> Weights:
    """Signs of an interpolation of gradient and momentum, and decoupled decay."""
    trainer = prepared(on)
    momentum: Weights = {}
    for _ in range(20):
        found, weights = gradients(on, trainer, data()), trainer.weights()
        new = {}
        for name, g in found.items():
            m = momentum.get(name, torch.zeros_like(g))
            step = (0.9 * m + 0.1 * g).sign()
            new[name] = weights[name] * (1 - 0.01 * 0.1) - 0.01 * step
            momentum[name] = 0.99 * m + 0.01 * g
        trainer.write(new)
    return trainer.weights()


class HandAdam:
    """Adam as a class of one's own, that knows nothing of torch.optim."""

    def __init__(self, lr: float, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3) -> None:
        self.lr, self.b1, self.b2, self.eps, self.t = lr, b1, b2, eps, 0
        self.m: Weights = {}
        self.v: Weights = {}

    def __call__(self, weights: Weights, grads: Weights) -> Iterator[tuple[str, Tensor]]:
        self.t += 1
        for k, g in grads.items():
            self.m[k] = self.b1 * self.m.get(k, 0 * g) + (1 - self.b1) * g
            self.v[k] = self.b2 * self.v.get(k, 0 * g) + (1 - self.b2) * g * g
            mh, vh = self.m[k] / (1 - self.b1**self.t), self.v[k] / (1 - self.b2**self.t)
            yield k, weights[k] - self.lr * mh / (vh.sqrt() + self.eps)


def adam_by_hand(on: Machine) -> Weights:
    """Adam as a class with a generator of new weights, from gradients that the device computed."""
    trainer, rule = prepared(on), HandAdam(0.01)
    for _ in range(20):
        found = gradients(on, trainer, data())
        trainer.write(dict(rule(trainer.weights(), found)))
    return trainer.weights()


def orthogonalised_momentum(on: Machine) -> Weights:
    """Muon: matrices go through five steps of Newton and Schulz, vectors take plain steps."""

    def newton_schulz(g: Tensor) -> Tensor:
        x = g / (g.norm() + 1e-7)
        x = x.T if len(g) > g.size(1) else x
        for _ in range(5):
            a = x @ x.T
            x = 1.5 * x - 0.5 * a @ x
        return x.T if len(g) > g.size(1) else x

    trainer = prepared(on)
    buffers: Weights = {}
    for _ in range(20):
        found, now = gradients(on, trainer, data()), trainer.weights()
        for name, g in found.items():
            buffers[name] = buffers.get(name, torch.zeros_like(g)) * 0.9 + g
            step = newton_schulz(buffers[name]) if g.ndim == 2 else buffers[name]
            now[name] = now[name] - 0.02 * step
        trainer.write(now)
    return trainer.weights()


def sharpness_aware(on: Machine) -> Weights:
    """SAM: up along the gradient, the gradient there, back, and the device's own step with it."""
    trainer = on.trainer(Regression(), data(), sgd(0.1, momentum=0.9))
    for _ in range(20):
        batch = data()
        found = gradients(on, trainer, batch)
        before = trainer.weights()
        norm = torch.stack([g.norm() for g in found.values()]).norm()
        trainer.write({n: before[n] + 0.05 * g / norm for n, g in found.items()})
        trainer.forward(batch)
        trainer.backward()
        trainer.write({n: before[n] for n in found})
        trainer.update()
    return trainer.weights()


def lookahead(on: Machine) -> Weights:
    """Fast weights of the device's SGD, slow ones of a dictionary, together every fifth step."""
    trainer = on.trainer(Regression(), data(), sgd(0.1, momentum=0.9))
    slow = trainer.weights()
    for step in range(1, 21):
        on.note(trainer.step(data())[0])
        if not step % 5:
            fast = trainer.weights()
            slow = {name: slow[name].lerp(fast[name], 0.5) for name in slow}
            trainer.write(slow)
    return trainer.weights()


def averaged_weights(on: Machine) -> Weights:
    """SWA by torch's own AveragedModel, over a twin that is told the device's weights; rates by cosine."""
    model = Regression()
    twin = copy.deepcopy(model)
    average = AveragedModel(twin)
    trainer = on.trainer(model, data(), sgd(0.1))
    for step in range(20):
        rate = 0.02 + 0.08 * 0.5 * (1 + math.cos(math.pi * (step % 5) / 4))
        on.note(trainer.step(data(), lr=rate)[0])
        if step % 5 == 4:
            twin.load_state_dict(trainer.weights())
            average.update_parameters(twin)
    return {n.removeprefix("module."): v for n, v in average.state_dict().items() if "net" in n}


def warm_up_and_clip(on: Machine) -> Weights:
    """A rate per run that rises and falls; gradients are clipped by value on the host, then the device steps."""
    trainer = on.trainer(Regression(), data(), sgd(0.1))
    for step in range(20):
        rate = 0.2 * min((step + 1) / 5, (20 - step) / 15)
        found = gradients(on, trainer, data())
        now = trainer.weights()
        trainer.write({n: now[n] - rate * g.clamp(-0.05, 0.05) for n, g in found.items()})
    return trainer.weights()


def projected_conflicts(on: Machine) -> Weights:
    """PCGrad: gradients of two tasks by two backward passes of one forward pass, projected where they disagree."""

    class TwoTasks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 12), nn.Tanh())
            self.heads = nn.ModuleList([nn.Linear(12, 1), nn.Linear(12, 1)])

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            h = self.body(x)
            first, second = (
                functional.mse_loss(head(h)[:, 0], y[:, i]) for i, head in enumerate(self.heads)
            )
            return first, second

    trainer = on.trainer(TwoTasks(), data(), sgd(0.0), losses=[0, 1])
    one, nought = torch.tensor(1.0), torch.tensor(0.0)
    for _ in range(20):
        on.note(*trainer.forward(data()))
        tasks = [trainer.backward({0: one, 1: nought}), trainer.backward({0: nought, 1: one})]
        flat = [torch.cat([g.flatten() for g in task.values()]) for task in tasks]
        dot = flat[0] @ flat[1]
        if dot < 0:
            flat = [mine - dot / other.square().sum() * other for mine, other in (flat, flat[::-1])]
        now, total, start = trainer.weights(), flat[0] + flat[1], 0
        for name, g in tasks[0].items():
            now[name] = now[name] - 0.1 * total[start : start + g.numel()].view_as(g)
            start += g.numel()
        trainer.write(now)
    return trainer.weights()


def layer_wise_rates(on: Machine) -> Weights:
    """Discriminative fine-tuning: a group per layer, a rate that decays towards the first, a frozen one."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
            self.layers[0].requires_grad_(False)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            for layer in self.layers:
                x = x + torch.tanh(layer(x))
            return functional.mse_loss(self.head(x), y)

    def make(optim: Any, model: Deep) -> torch.optim.Optimizer:
        groups = [{"params": list(model.head.parameters()), "weight_decay": 0.0}]
        for i, layer in enumerate(reversed(model.layers[1:])):
            groups.append({"params": list(layer.parameters()), "lr": 0.05 * 0.5**i})
        return optim.AdamW(groups, lr=0.05, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.1)

    trainer = on.trainer(Deep(), data(), make)
    for _ in range(20):
        on.note(trainer.step(data())[0])
    return trainer.weights()


def finite_differences(on: Machine) -> Weights:
    """MeZO: two forward passes at weights that noise moved, no gradient at all; for a compiled trainer's FWD only."""
    trainer = prepared(on)
    source = torch.Generator().manual_seed(3)
    for _ in range(20):
        batch, before = data(), trainer.weights()
        z = {n: torch.randn(w.shape, generator=source) for n, w in before.items()}
        trainer.write({n: w + 0.1 * z[n] for n, w in before.items()})
        (up,) = trainer.forward(batch)
        trainer.write({n: w - 0.1 * z[n] for n, w in before.items()})
        (down,) = trainer.forward(batch)
        on.note(up, down)
        trainer.write({n: w - 0.02 * (up - down) / 0.2 * z[n] for n, w in before.items()})
    return trainer.weights()


def polyak_step(on: Machine) -> Weights:
    """A rate from the loss and the norm of its gradient, told to the optimizer as a hyperparameter."""
    trainer = on.trainer(Regression(), data(), sgd(0.1))
    for _ in range(20):
        batch = data()
        (loss,) = trainer.forward(batch)
        squares = sum(float(g.square().sum()) for g in trainer.backward().values())
        trainer.update(lr=min(0.5, 0.5 * float(loss) / squares))
        on.note(loss)
    return trainer.weights()


def moving_average(on: Machine) -> Weights:
    """An exponential average of the weights with a warm-up of its decay, evaluated by a plain module."""
    model = Regression()
    shadow = copy.deepcopy(model).eval()
    trainer = on.trainer(model, data(), adam(0.01))
    for step in range(20):
        on.note(trainer.step(data())[0])
        decay = min(0.9, (1 + step) / (10 + step))
        for name, value in trainer.weights().items():
            kept = shadow.get_parameter(name)
            kept.data = decay * kept.data + (1 - decay) * value
        with torch.no_grad():
            on.note(shadow(**data()))
    return dict(shadow.named_parameters())


PROGRAMS = [
    lion,
    adam_by_hand,
    orthogonalised_momentum,
    sharpness_aware,
    lookahead,
    averaged_weights,
    warm_up_and_clip,
    projected_conflicts,
    layer_wise_rates,
    finite_differences,
    polyak_step,
    moving_average,
]
