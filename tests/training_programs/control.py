"""Control: models of a world, policies that go through them, and demonstrations to imitate."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal
from torch.func import functional_call, stack_module_state
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def pendulum(state: Tensor, force: Tensor) -> Tensor:
    angle, speed = state.unbind(-1)
    speed = speed + 0.1 * (torch.sin(angle) + force.squeeze(-1))
    return torch.stack([angle + 0.1 * speed, speed], -1)


def ensemble_of_models(on: Machine) -> Weights:
    """Probabilistic dynamics of five members as one batched product, with bounds on the variance."""

    class EnsembleLinear(nn.Module):
        def __init__(self, members: int, cin: int, cout: int) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(members, cin, cout) / math.sqrt(cin))
            self.b = nn.Parameter(torch.zeros(members, 1, cout))

        def forward(self, x: Tensor) -> Tensor:
            return torch.baddbmm(self.b, x, self.w)

    class Dynamics(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(EnsembleLinear(5, 3, 12), nn.SiLU(), EnsembleLinear(5, 12, 4))
            self.max_logvar = nn.Parameter(torch.full((1, 2), 0.5))
            self.min_logvar = nn.Parameter(torch.full((1, 2), -5.0))

        def forward(self, state: Tensor, force: Tensor, after: Tensor) -> Tensor:
            mean, logvar = self.net(torch.cat([state, force], -1)).chunk(2, -1)
            logvar = self.max_logvar - functional.softplus(self.max_logvar - logvar)
            logvar = self.min_logvar + functional.softplus(logvar - self.min_logvar)
            error = (mean - (after - state)) ** 2 * torch.exp(-logvar) + logvar
            return error.mean(dim=(1, 2)).sum() + 0.01 * (self.max_logvar - self.min_logvar).sum()

    def batch() -> dict[str, Tensor]:
        state, force = torch.randn(5, 8, 2), torch.randn(5, 8, 1)
        return {"state": state, "force": force, "after": pendulum(state, force)}

    trainer = on.trainer(Dynamics(), batch(), adam(0.01))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def soft_actor_critic(on: Machine) -> Weights:
    """Actor, two critics and alpha in one module; three losses, none of which reaches what it should not."""

    class SAC(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
            self.critics = nn.ModuleList(
                nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)) for _ in range(2)
            )
            self.log_alpha = nn.Parameter(torch.tensor(-1.0))

        def act(self, state: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
            mean, log_std = self.actor(state).chunk(2, -1)
            normal = Normal(mean, log_std.clamp(-5, 1).exp())
            raw = normal.mean + normal.stddev * noise
            squash = 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
            return raw.tanh(), (normal.log_prob(raw) - squash).sum(-1)

        def q(self, state: Tensor, action: Tensor, frozen: bool = False) -> Tensor:
            both = torch.cat([state, action], -1)
            values = []
            for critic in self.critics:
                weights = {n: p.detach() if frozen else p for n, p in critic.named_parameters()}
                values.append(functional_call(critic, weights, (both,)).squeeze(-1))
            return torch.stack(values)

        def forward(
            self, s: Tensor, a: Tensor, r: Tensor, s2: Tensor, n1: Tensor, n2: Tensor
        ) -> tuple[Tensor, Tensor, Tensor]:
            alpha = self.log_alpha.exp().detach()
            with torch.no_grad():
                a2, logp2 = self.act(s2, n2)
                target = r + 0.95 * (self.q(s2, a2).min(0).values - alpha * logp2)
            critic_loss = functional.mse_loss(self.q(s, a), target.expand(2, -1))
            new, logp = self.act(s, n1)
            actor_loss = (alpha * logp - self.q(s, new, frozen=True).min(0)[0]).mean()
            alpha_loss = -(self.log_alpha * (logp - 1.0).detach()).mean()
            return critic_loss, actor_loss, alpha_loss

    def make(optim: Any, model: SAC) -> list[torch.optim.Optimizer]:
        return [
            optim.SGD(model.actor.parameters(), lr=0.05),
            optim.SGD(model.critics.parameters(), lr=0.1, momentum=0.9),
            optim.SGD([model.log_alpha], lr=0.3),
        ]

    def batch() -> dict[str, Tensor]:
        s, a = torch.randn(8, 3), torch.rand(8, 1) * 2 - 1
        r = -((s[:, 0] + a[:, 0]) ** 2)
        noise = {"n1": torch.randn(8, 1), "n2": torch.randn(8, 1)}
        return {"s": s, "a": a, "r": r, "s2": 0.9 * s + 0.1 * a, **noise}

    trainer = on.trainer(SAC(), batch(), make, losses=[0, 1, 2])
    for _ in range(20):
        on.note(*trainer.step(batch()))
    return trainer.weights()


def imitation(on: Machine) -> Weights:
    """Behaviour cloning with a mixture of Gaussians from torch.distributions."""

    class MDNPolicy(nn.Module):
        def __init__(self, parts: int = 3) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(2, 16), nn.ReLU6())
            self.pi, self.mu = nn.Linear(16, parts), nn.Linear(16, parts)
            self.sigma = nn.Linear(16, parts)

        def forward(self, obs: Tensor, act: Tensor) -> Tensor:
            h = self.trunk(obs)
            comp = Independent(Normal(self.mu(h)[..., None], self.sigma(h).exp()[..., None]), 1)
            mix = MixtureSameFamily(Categorical(logits=self.pi(h)), comp)
            return -mix.log_prob(act).mean()

    def batch() -> dict[str, Tensor]:
        obs = torch.randn(16, 2)
        side = torch.sign(torch.randn(16, 1))
        return {"obs": obs, "act": side * obs[:, :1].abs() + 0.1 * torch.randn(16, 1)}

    trainer = on.trainer(MDNPolicy(), batch(), sgd(0.05))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def delayed_policy(on: Machine) -> Weights:
    """TD3: the actor moves every other step, by its own optimizer's rate; targets follow on the host."""

    class TD3(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 1), nn.Tanh())
            self.critic = nn.Bilinear(3, 1, 8)
            self.head = nn.Linear(8, 1)

        def q(self, s: Tensor, a: Tensor) -> Tensor:
            return self.head(torch.tanh(self.critic(s, a)))

        def forward(self, s: Tensor, a: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            critic_loss = functional.mse_loss(self.q(s, a), y)
            self.critic.requires_grad_(False)
            self.head.requires_grad_(False)
            actor_loss = -self.q(s, self.actor(s)).mean()
            self.critic.requires_grad_(True)
            self.head.requires_grad_(True)
            return critic_loss, actor_loss

    def make(optim: Any, model: TD3) -> list[torch.optim.Optimizer]:
        critic = [*model.critic.parameters(), *model.head.parameters()]
        return [optim.SGD(critic, lr=0.1), optim.SGD(model.actor.parameters(), lr=0.1)]

    def batch() -> dict[str, Tensor]:
        s, a = torch.randn(8, 3), torch.rand(8, 1) * 2 - 1
        return {"s": s, "a": a, "y": -((s[:, :1] - a) ** 2)}

    first = batch()
    trainer = on.trainer(TD3(), first, make, losses=[0, 1])
    for step in range(20):
        trainer.forward(drawn := batch())
        # The gradient of the second loss is nought in every other step, so that its actor stays.
        trainer.backward({1: torch.tensor(float(step % 2))})
        trainer.update()
        on.note(*trainer.forward(drawn))
    return trainer.weights()


def through_the_model(on: Machine) -> Weights:
    """A policy improved by gradients through five steps of known physics, as in PILCO or SVG."""

    class Rollout(nn.Module):
        def __init__(self, horizon: int) -> None:
            super().__init__()
            self.policy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
            self.horizon = horizon

        def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
            costs = []
            for _ in range(self.horizon):
                angle, speed = state[:, 0], state[:, 1]
                force = self.policy(torch.stack([angle.cos(), angle.sin(), speed], 1))
                state = pendulum(state, 3 * force)
                costs.append((1 - state[:, 0].cos()) + 0.1 * force.squeeze().pow(2))
            total = torch.stack(costs).sum(0).mean()
            return total, state

    trainer = on.trainer(Rollout(5), {"state": torch.randn(8, 2)}, sgd(0.1), losses=[0])
    state = torch.randn(8, 2)
    for step in range(20):
        cost, after = trainer.step({"state": state})
        on.note(cost)
        state = torch.randn(8, 2) if step % 4 == 3 else after
    return trainer.weights()


def decision_transformer(on: Machine) -> Weights:
    """Returns, states and actions interleaved by stack and reshape, in torch's own encoder layer."""

    class DT(nn.Module):
        def __init__(self, width: int = 12, length: int = 4) -> None:
            super().__init__()
            self.time = nn.Embedding(length, width)
            self.r, self.s = nn.Linear(1, width), nn.Linear(3, width)
            self.a = nn.Embedding(4, width)
            layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, "gelu", batch_first=True)
            self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.head = nn.Linear(width, 4)

        def forward(self, rtg: Tensor, states: Tensor, actions: Tensor) -> dict[str, Tensor]:
            b, n, _ = states.shape
            time = self.time.weight[None, :n]
            tokens = (
                torch.stack([self.r(rtg), self.s(states), self.a(actions)], 2) + time[:, :, None]
            )
            mask = nn.Transformer.generate_square_subsequent_mask(3 * n)
            h = self.body(tokens.reshape(b, 3 * n, -1), mask=mask)
            logits = self.head(h.view(b, n, 3, -1)[:, :, 1])
            return {"loss": functional.cross_entropy(logits.flatten(0, 1), actions.flatten())}

    def batch() -> dict[str, Tensor]:
        states = torch.randn(4, 4, 3)
        rtg = states[..., :1].flip(1).cumsum(1).flip(1)
        return {"rtg": rtg, "states": states, "actions": states.argmax(-1)}

    trainer = on.trainer(DT().train(), batch(), sgd(0.05))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def world_model(on: Machine) -> Weights:
    """A recurrent state-space model: a prior and a posterior per step, free bits, balanced divergence."""

    class RSSM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRUCell(3 + 1, 10)
            self.prior, self.post = nn.Linear(10, 6), nn.Linear(10 + 4, 6)
            self.decode = nn.Linear(13, 4)

        @staticmethod
        def gaussian(raw: Tensor) -> Normal:
            mean, std = raw.chunk(2, dim=-1)
            return Normal(mean, functional.softplus(std) + 0.1)

        def forward(self, obs: Tensor, act: Tensor, noise: Tensor) -> Tensor:
            h, z = torch.zeros(obs.shape[0], 10), torch.zeros(obs.shape[0], 3)
            kls, errors = [], []
            for t in range(obs.shape[1]):
                h = self.gru(torch.cat([z, act[:, t]], -1), h)
                prior = self.gaussian(self.prior(h))
                post = self.gaussian(self.post(torch.cat([h, obs[:, t]], -1)))
                z = post.loc + post.scale * noise[:, t]
                errors.append((self.decode(torch.cat([h, z], -1)) - obs[:, t]).pow(2).sum(-1))
                fixed = Normal(post.loc.detach(), post.scale.detach())
                kl = 0.8 * torch.distributions.kl_divergence(fixed, prior)
                fixed = Normal(prior.loc.detach(), prior.scale.detach())
                kls.append((kl + 0.2 * torch.distributions.kl_divergence(post, fixed)).sum(-1))
            return (torch.stack(errors) + torch.stack(kls).clamp(min=0.05)).mean()

    generator = random.Random(0)

    def batch() -> dict[str, Tensor]:
        phase = torch.tensor([[generator.random() * 6] for _ in range(5)])
        t = torch.arange(4) * 0.5 + phase
        obs = torch.stack([t.sin(), t.cos(), (2 * t).sin(), (2 * t).cos()], -1)
        act = torch.from_numpy(np.diff(t.numpy(), axis=1, prepend=0).astype(np.float32))
        return {"obs": obs, "act": act.unsqueeze(-1), "noise": torch.randn(5, 4, 3)}

    trainer = on.trainer(RSSM(), batch(), sgd(0.02))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def bootstrapped_policies(on: Machine) -> Weights:
    """Four policies by ``stack_module_state`` and ``vmap`` over their stacked parameters."""

    class Bootstrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            nets = [nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)) for _ in range(4)]
            params, _ = stack_module_state(nets)
            # Dots are not allowed in names of parameters.
            self.stacked = nn.ParameterDict({k.replace(".", "_"): v for k, v in params.items()})
            self.__dict__["template"] = nets[0].to("meta")

        def forward(self, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
            params = {k.replace("_", "."): v for k, v in self.stacked.items()}

            def one(parameters: dict[str, Tensor], keep: Tensor) -> Tensor:
                logits = functional_call(self.template, parameters, (x,))
                each = functional.cross_entropy(logits, y, reduction="none")
                return (each * keep).sum() / keep.sum()

            return torch.vmap(one)(params, mask).mean()

    def batch() -> dict[str, Tensor]:
        x = torch.randn(10, 3)
        mask = (torch.rand(4, 10) < 0.8).float()
        return {"x": x, "y": (x.sum(1) > 0).long(), "mask": mask}

    trainer = on.trainer(Bootstrapped(), batch(), sgd(0.5))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    ensemble_of_models,
    soft_actor_critic,
    imitation,
    delayed_policy,
    through_the_model,
    decision_transformer,
    world_model,
    bootstrapped_policies,
]
