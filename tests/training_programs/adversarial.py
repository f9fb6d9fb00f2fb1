"""Adversaries: two players in one module, penalties on gradients, and inputs that are made worse."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def circle(count: int) -> Tensor:
    angle = torch.rand(count) * 6.2832
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


def generator() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2))


def critic() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


class GAN(nn.Module):
    """Both losses of one pass; the discriminator that judges for the generator has detached weights."""

    def __init__(self) -> None:
        super().__init__()
        self.G, self.D = generator(), critic()

    def frozen(self, x: Tensor) -> Tensor:
        return functional_call(self.D, {n: p.detach() for n, p in self.D.named_parameters()}, x)

    def forward(self, real: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        bce = functional.binary_cross_entropy_with_logits
        fake = self.G(z)
        on_real, on_fake = self.D(real), self.D(fake.detach())
        d = bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))
        judged = self.frozen(fake)
        return d, bce(judged, torch.ones_like(judged))


def two_optimizers(optim: Any, model: GAN) -> list[torch.optim.Optimizer]:
    return [optim.SGD(model.D.parameters(), lr=0.1), optim.SGD(model.G.parameters(), lr=0.05)]


def gan(on: Machine) -> Weights:
    """Both players move in every step; that both outputs are losses is left to be found."""
    batch = {"real": circle(12), "z": torch.randn(12, 3)}
    trainer = on.trainer(GAN(), batch, two_optimizers, losses=[0, 1])
    for _ in range(20):
        on.note(*trainer.step({"real": circle(12), "z": torch.randn(12, 3)}))
    return trainer.weights()


def taking_turns(on: Machine) -> Weights:
    """The players take turns: a run's gradients of the two losses are one and nought, then the reverse."""

    class LeastSquares(GAN):
        def forward(self, real: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            fake = self.G(z)
            d = (self.D(real) - 1).pow(2).mean() + self.D(fake.detach()).pow(2).mean()
            return 0.5 * d, 0.5 * (self.frozen(fake) - 1).pow(2).mean()

    batch = {"real": circle(12), "z": torch.randn(12, 3)}
    trainer = on.trainer(LeastSquares(), batch, two_optimizers, losses=[0, 1])
    one, nought = torch.tensor(1.0), torch.tensor(0.0)
    for step in range(21):
        turn = step % 3 == 2
        outputs = trainer.forward({"real": circle(12), "z": torch.randn(12, 3)})
        trainer.backward({0: nought, 1: one} if turn else {0: one, 1: nought})
        trainer.update()
        on.note(outputs[turn])
    return trainer.weights()


def wasserstein(on: Machine) -> Weights:
    """WGAN-GP's critic: the norm of its gradient between real and fake points, differentiated again."""

    class Critic(nn.Module):
        def __init__(self, lambda_gp: float = 10.0) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
            self.head = nn.Linear(16, 1, bias=False)
            self.lambda_gp = lambda_gp

        def score(self, x: Tensor) -> Tensor:
            return self.head(self.net(x))

        def gradient_penalty(self, real: Tensor, fake: Tensor, alpha: Tensor) -> Tensor:
            interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
            d = self.score(interpolates)
            gradients = torch.autograd.grad(
                outputs=d,
                inputs=interpolates,
                grad_outputs=torch.ones(real.size(0), 1),
                create_graph=True,
                retain_graph=True,
                only_inputs=True,
            )[0]
            return ((gradients.norm(2, dim=1) - 1) ** 2).mean()

        def forward(self, real: Tensor, fake: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
            distance = self.score(fake).mean() - self.score(real).mean()
            penalty = self.gradient_penalty(real, fake, alpha)
            return distance + self.lambda_gp * penalty, distance.detach()

    def batch() -> dict[str, Tensor]:
        return {"real": circle(12), "fake": torch.randn(12, 2), "alpha": torch.rand(12, 1)}

    trainer = on.trainer(Critic(), batch(), adam(0.005), losses=[0])
    for _ in range(20):
        on.note(*trainer.step(batch()))
    return trainer.weights()


def r1_penalty(on: Machine) -> Weights:
    """R1 on images through convolutions, with a minibatch standard deviation as a further channel."""

    class Discriminator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 6, 3, stride=2, padding=1)
            self.last = nn.Conv2d(7, 6, 3, padding=1)
            self.fc = nn.Linear(6 * 9, 1)

        def forward(self, image: Tensor) -> Tensor:
            h = functional.softplus(self.conv(image))
            std = h.var(0, unbiased=False).add(1e-4).sqrt().mean().view(1, 1, 1, 1)
            h = torch.cat([h, std.expand(h.size(0), 1, *h.shape[2:])], 1)
            return self.fc(functional.softplus(self.last(h)).flatten(1))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.D = Discriminator()

        def forward(self, real: Tensor, fake: Tensor) -> dict[str, Tensor]:
            real = real.detach().requires_grad_()
            r = self.D(real)
            (g,) = torch.autograd.grad(r.sum(), real, create_graph=True)
            r1 = g.square().sum(dim=[1, 2, 3]).mean()
            loss = functional.softplus(-r).mean() + functional.softplus(self.D(fake)).mean() + r1
            return {"loss": loss, "r1": r1.detach()}

    def batch() -> dict[str, Tensor]:
        return {"real": torch.rand(5, 1, 6, 6), "fake": torch.randn(5, 1, 6, 6)}

    trainer = on.trainer(Loss(), batch(), sgd(0.02))
    for _ in range(20):
        on.note(*trainer.step(batch()))
    return trainer.weights()


class GradReverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, lambd: float) -> Tensor:
        ctx.lambd = lambd
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.neg() * ctx.lambd, None


def domain_adversarial(on: Machine) -> Weights:
    """DANN: labels of the source domain, and a classifier of domains behind reversed gradients."""

    class DANN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Linear(4, 12), nn.Tanh())
            self.label, self.domain = nn.Linear(12, 3), nn.Linear(12, 2)

        def forward(self, source: Tensor, target: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            f = self.features(torch.cat([source, target]))
            n = len(source)
            domains = torch.cat([torch.zeros(n), torch.ones(len(target))]).long()
            label_loss = functional.cross_entropy(self.label(f[:n]), y)
            domain_loss = functional.cross_entropy(self.domain(GradReverse.apply(f, 0.3)), domains)
            return label_loss + domain_loss, label_loss, domain_loss

    def batch() -> dict[str, Tensor]:
        y = torch.randint(3, (8,))
        source = functional.one_hot(y, 4) + 0.3 * torch.randn(8, 4)
        return {"source": source, "target": torch.randn(8, 4) + 0.5, "y": y}

    trainer = on.trainer(DANN(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(*trainer.step(batch()))
    return trainer.weights()


def fast_gradient_sign(on: Machine) -> Weights:
    """Adversarial training: examples are made by a twin of torch on the host, which gets the weights."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 3))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return functional.cross_entropy(self.layers(x), y)

    model = Net()
    twin = copy.deepcopy(model)
    y = torch.randint(3, (10,))
    trainer = on.trainer(model, {"x": torch.randn(10, 4), "y": y}, sgd(0.2))
    for _ in range(20):
        y = torch.randint(3, (10,))
        x = (functional.one_hot(y, 4) + 0.2 * torch.randn(10, 4)).requires_grad_()
        twin.load_state_dict(trainer.weights())
        twin(x, y).backward()
        on.note(trainer.step({"x": (x + 0.1 * x.grad.sign()).detach(), "y": y})[0])
    return trainer.weights()


def projected_gradient(on: Machine) -> Weights:
    """PGD: three steps of an attack inside ``forward``, by ``autograd.grad`` without a graph."""

    class Robust(nn.Module):
        def __init__(self, eps: float = 0.2, steps: int = 3) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 3))
            self.eps, self.steps = eps, steps

        def attack(self, x: Tensor, y: Tensor) -> Tensor:
            delta = torch.zeros_like(x, requires_grad=True)
            for _ in range(self.steps):
                loss = functional.cross_entropy(self.net(x + delta), y)
                (g,) = torch.autograd.grad(loss, [delta])
                delta = (delta + 0.1 * g.sign()).clamp(-self.eps, self.eps)
                delta = delta.detach().requires_grad_()
            return (x + delta).detach()

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.net(self.attack(x, y))
            return functional.cross_entropy(logits, y), logits

    def batch() -> dict[str, Tensor]:
        y = torch.randint(3, (10,))
        return {"x": functional.one_hot(y, 4) + 0.2 * torch.randn(10, 4), "y": y}

    trainer = on.trainer(Robust(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def virtual_adversary(on: Machine) -> Weights:
    """VAT: the direction that changes the prediction most, found by one power iteration in ``forward``."""

    class VAT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))

        def divergence(self, x: Tensor, p: Tensor) -> Tensor:
            return functional.kl_div(self.net(x).log_softmax(1), p, reduction="batchmean")

        def forward(self, x: Tensor, y: Tensor, unlabelled: Tensor, d: Tensor) -> Tensor:
            with torch.no_grad():
                p = self.net(unlabelled).softmax(1)
            d = functional.normalize(d, dim=1).requires_grad_()
            kl = self.divergence(unlabelled + 1.0 * d, p)
            d = functional.normalize(torch.autograd.grad(kl, d)[0], dim=1)
            vat = self.divergence(unlabelled + 0.5 * d, p)
            return functional.cross_entropy(self.net(x), y) + vat

    def batch() -> dict[str, Tensor]:
        y = torch.randint(3, (6,))
        x = functional.one_hot(y, 4) + 0.2 * torch.randn(6, 4)
        return {"x": x, "y": y, "unlabelled": torch.randn(12, 4), "d": torch.randn(12, 4)}

    trainer = on.trainer(VAT(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    gan,
    taking_turns,
    wasserstein,
    r1_penalty,
    domain_adversarial,
    fast_gradient_sign,
    projected_gradient,
    virtual_adversary,
]
