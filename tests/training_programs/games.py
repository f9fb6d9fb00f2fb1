"""Agents that learn games: policies, values, and searches over both."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional

from tests.training_programs.machines import Machine, Trainer, Weights, adam, sgd


class PolicyLoss(nn.Module):
    def forward(self, logits: Tensor, action: Tensor, advantage: Tensor) -> Tensor:
        return -(Categorical(logits=logits).log_prob(action) * advantage).mean()


def reinforce(on: Machine) -> Weights:
    """A policy on a corridor: the returns of each episode are computed on the host from its own actions."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
            self.loss = PolicyLoss()

        def forward(
            self, state: Tensor, action: Tensor, advantage: Tensor
        ) -> tuple[Tensor, Tensor]:
            logits = self.body(state)
            return self.loss(logits, action, advantage), logits

    chance = np.random.default_rng(0)
    batch = {
        "state": torch.eye(5)[[2] * 8],
        "action": torch.zeros(8, dtype=torch.int64),
        "advantage": torch.zeros(8),
    }
    trainer = on.trainer(Policy(), batch, sgd(0.2))
    for _ in range(20):
        place, places, actions, rewards = 2, [], [], []
        for _ in range(8):
            _, logits = trainer.forward({**batch, "state": torch.eye(5)[[place] * 8]})
            right = logits[0].softmax(0)[1].item() > chance.random()
            places.append(place)
            actions.append(int(right))
            place = min(4, max(0, place + (1 if right else -1)))
            rewards.append(float(place == 4))
        returns = np.array([sum(0.9**k * r for k, r in enumerate(rewards[i:])) for i in range(8)])
        advantage = torch.from_numpy(returns - returns.mean()).float()
        batch = {
            "state": torch.eye(5)[places],
            "action": torch.tensor(actions),
            "advantage": advantage,
        }
        on.note(trainer.step(batch)[0])
    return trainer.weights()


class Transition(NamedTuple):
    state: Tensor
    action: int
    reward: float
    after: Tensor


def dqn(on: Machine) -> Weights:
    """Q-learning with a replay buffer; the target network is a module inside, copied every five steps."""

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online, self.target = self.net(), self.net()
            self.target.load_state_dict(self.online.state_dict())
            self.target.requires_grad_(False)

        @staticmethod
        def net() -> nn.Module:
            return nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3))

        def forward(self, state: Tensor, action: Tensor, reward: Tensor, after: Tensor) -> Tensor:
            taken = self.online(state).gather(1, action.unsqueeze(1)).squeeze(1)
            with torch.no_grad():
                wanted = reward + 0.95 * self.target(after).max(1).values
            return functional.smooth_l1_loss(taken, wanted)

    generator = random.Random(3)
    memory: deque[Transition] = deque(maxlen=64)
    state = torch.randn(4)
    for _ in range(64):
        action = generator.randrange(3)
        after = torch.tanh(state.roll(1) + action - 1)
        memory.append(Transition(state, action, float(after.sum()), after))
        state = after

    def sample() -> dict[str, Tensor]:
        rows = generator.sample(list(memory), 16)
        return {
            "state": torch.stack([row.state for row in rows]),
            "action": torch.tensor([row.action for row in rows]),
            "reward": torch.tensor([row.reward for row in rows]),
            "after": torch.stack([row.after for row in rows]),
        }

    def make(optim: object, model: Agent) -> torch.optim.Optimizer:
        return optim.SGD(model.online.parameters(), lr=0.05, momentum=0.9)

    trainer = on.trainer(Agent(), sample(), make)
    for step in range(20):
        if step % 5 == 4:
            now = trainer.weights()
            trainer.write(
                {n.replace("online", "target"): w for n, w in now.items() if "online" in n}
            )
        on.note(trainer.step(sample())[0])
    return trainer.weights()


class ActorCritic(nn.Module):
    """The clipped loss of PPO, with value and entropy; a dictionary with the key ``loss``."""

    def __init__(self, clip: float = 0.2) -> None:
        super().__init__()
        self.clip = clip
        self.trunk = nn.Linear(6, 32)
        self.pi, self.v = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(
        self, obs: Tensor, act: Tensor, logp: Tensor, adv: Tensor, ret: Tensor
    ) -> dict[str, Tensor]:
        h = torch.tanh(self.trunk(obs))
        dist = Categorical(logits=self.pi(h))
        new = dist.log_prob(act)
        ratio = (new - logp).exp()
        surrogate = torch.min(ratio * adv, ratio.clamp(1 - self.clip, 1 + self.clip) * adv)
        value_loss = ((self.v(h).squeeze(-1) - ret) ** 2).mean()
        loss = -surrogate.mean() + 0.5 * value_loss - 0.01 * dist.entropy().mean()
        return {"loss": loss, "logp": new, "value": value_loss}


def ppo(on: Machine) -> Weights:
    """Four epochs over each of five rollouts; old log-probabilities come out of the device."""
    obs = torch.randn(16, 6)
    batch = {
        "obs": obs,
        "act": torch.randint(4, (16,)),
        "logp": torch.zeros(16),
        "adv": torch.zeros(16),
        "ret": torch.zeros(16),
    }
    trainer = on.trainer(ActorCritic(), batch, adam(0.01))
    for rollout in range(5):
        batch["obs"] = torch.randn(16, 6)
        batch["act"] = torch.randint(4, (16,))
        batch["ret"] = (batch["act"] == rollout % 4).float() + batch["obs"][:, 0]
        batch["adv"] = (batch["ret"] - batch["ret"].mean()) / batch["ret"].std()
        batch["logp"] = trainer.forward(batch)[1]
        for _ in range(4):
            on.note(trainer.step(batch)[0])
    return trainer.weights()


class Board(nn.Module):
    """Tic-tac-toe by a residual network with two heads, as AlphaZero has them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Softplus()
            )
            for _ in range(2)
        )
        self.policy = nn.Conv2d(8, 1, 1)
        self.value = nn.Sequential(nn.Flatten(), nn.Linear(72, 1), nn.Tanh())

    def forward(self, planes: Tensor, visits: Tensor, winner: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(planes)
        for block in self.blocks:
            x = x + block(x)
        logits = self.policy(x).flatten(1)
        value = self.value(x).squeeze(1)
        loss = functional.mse_loss(value, winner) + functional.cross_entropy(logits, visits)
        return loss, logits.softmax(1), value


def alphazero(on: Machine) -> Weights:
    """Self-play positions with visit counts of a search; legal moves are masked on the host."""
    planes = torch.zeros(12, 2, 3, 3)
    batch = {"planes": planes, "visits": torch.full((12, 9), 1 / 9), "winner": torch.zeros(12)}
    trainer = on.trainer(Board().train(), batch, sgd(0.01, momentum=0.5, weight_decay=1e-4))
    for _ in range(20):
        marks = torch.randint(-1, 2, (12, 3, 3))
        batch["planes"] = torch.stack([marks == 1, marks == -1], 1).float()
        _, prior, value = trainer.forward(batch)
        counts = prior * (marks == 0).flatten(1) + 1e-3
        batch["visits"] = counts / counts.sum(1, keepdim=True)
        batch["winner"] = torch.sign(marks.sum((1, 2)).float()) * 0.5 + 0.5 * value
        on.note(trainer.step(batch)[0])
    return trainer.weights()


def categorical_dqn(on: Machine) -> Weights:
    """C51: a distribution over returns, projected onto its atoms with ``index_add_`` in ``forward``."""
    atoms, low, high = 11, -2.0, 2.0

    class C51(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 16), nn.ELU(), nn.Linear(16, 2 * atoms))
            self.register_buffer("z", torch.linspace(low, high, atoms))

        def dist(self, state: Tensor) -> Tensor:
            return self.net(state).view(-1, 2, atoms).log_softmax(-1)

        def forward(self, state: Tensor, action: Tensor, reward: Tensor, after: Tensor) -> Tensor:
            size = state.shape[0]
            rows = torch.arange(size)
            with torch.no_grad():
                nxt = self.dist(after).exp()
                best = (nxt * self.z).sum(-1).argmax(-1)
                p = nxt[rows, best]
                tz = (reward.unsqueeze(1) + 0.9 * self.z).clamp(low, high)
                b = (tz - low) / (high - low) * (atoms - 1)
                lower, upper = b.floor().long(), b.ceil().long()
                same = (lower == upper).float()
                m = torch.zeros(size * atoms)
                offset = (rows * atoms).unsqueeze(1)
                m.index_add_(0, (lower + offset).flatten(), (p * (upper - b + same)).flatten())
                m.index_add_(0, (upper + offset).flatten(), (p * (b - lower)).flatten())
            chosen = self.dist(state)[rows, action]
            return -(m.view(size, atoms) * chosen).sum(-1).mean()

    def draw() -> dict[str, Tensor]:
        return {
            "state": torch.randn(8, 3),
            "action": torch.randint(2, (8,)),
            "reward": torch.randn(8).clamp(-1, 1),
            "after": torch.randn(8, 3),
        }

    trainer = on.trainer(C51(), draw(), sgd(0.3))
    for _ in range(20):
        on.note(trainer.step(draw())[0])
    return trainer.weights()


class Dueling(nn.Module):
    """Value and advantage streams, a double-Q target, and importance weights of prioritised replay."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 16), nn.SiLU())
        self.streams = nn.ModuleDict({"value": nn.Linear(16, 1), "advantage": nn.Linear(16, 3)})

    def q(self, state: Tensor) -> Tensor:
        x = self.features(state)
        a = self.streams["advantage"](x)
        return self.streams["value"](x) + a - a.mean(1, keepdim=True)

    def forward(self, *, state: Tensor, action: Tensor, target: Tensor, weight: Tensor) -> tuple:
        error = self.q(state).gather(1, action[:, None])[:, 0] - target
        return (weight * error.square()).mean(), error.abs()


def prioritised_replay(on: Machine) -> Weights:
    """Priorities are the errors that the device returned; the loss is by hand and its index stated."""
    states, targets = torch.randn(40, 4), torch.rand(40)
    actions, priority = torch.randint(3, (40,)), np.ones(40)
    chance = np.random.default_rng(1)

    def pick() -> tuple[np.ndarray, dict[str, Tensor]]:
        p = priority / priority.sum()
        rows = chance.choice(40, 10, replace=False, p=p)
        weight = torch.from_numpy((40 * p[rows]) ** -0.5).float()
        batch = {"state": states[rows], "action": actions[rows], "target": targets[rows]}
        return rows, {**batch, "weight": weight / weight.max()}

    trainer = on.trainer(Dueling(), pick()[1], sgd(0.1), losses=[0])
    for _ in range(20):
        rows, batch = pick()
        loss, errors = trainer.step(batch)
        # Rounded, so that a last bit does not choose other rows.
        priority[rows] = np.round(errors.numpy(), 3) + 0.01
        on.note(loss)
    return trainer.weights()


def quantile_regression(on: Machine) -> Weights:
    """QR-DQN's loss: every quantile against every target, by broadcasting."""
    net = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 8))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            self.taus = (torch.arange(8) + 0.5) / 8  # a plain attribute, no buffer

        def forward(self, s: Tensor, returns: Tensor) -> Tensor:
            theta = self.net(s)
            u = returns[:, None, :] - theta[:, :, None]
            huber = torch.where(u.abs() <= 1, 0.5 * u * u, u.abs() - 0.5)
            return ((self.taus[None, :, None] - (u < 0).float()).abs() * huber).sum(1).mean()

    def batch() -> dict[str, Tensor]:
        s = torch.randn(6, 3)
        return {"s": s, "returns": s.sum(1, keepdim=True) + torch.randn(6, 5)}

    trainer: Trainer = on.trainer(Loss(), batch(), adam(0.02))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def muzero(on: Machine) -> Weights:
    """Representation, dynamics and prediction, unrolled for three actions with halved gradients."""

    class MuZero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.represent = nn.Linear(4, 10)
            self.dynamics = nn.Linear(10 + 2, 10)
            self.reward = nn.Linear(10, 1)
            self.predict = nn.Linear(10, 2 + 1)

        def forward(self, x: Tensor, actions: Tensor, policy: Tensor, target: Tensor) -> Tensor:
            h = torch.tanh(self.represent(x))
            total = x.new_zeros(())
            for k in range(3):
                logits, value = self.predict(h).split([2, 1], dim=-1)
                total = total + functional.cross_entropy(logits, policy[:, k])
                total = total + functional.mse_loss(value[:, 0], target[:, k])
                if k < 2:
                    h = 0.5 * h + 0.5 * h.detach()
                    step = functional.one_hot(actions[:, k], 2).float()
                    h = torch.tanh(self.dynamics(torch.cat([h, step], -1)))
                    total = total + self.reward(h).square().mean() / 3
            return total

    def draw() -> dict[str, Tensor]:
        return {
            "x": torch.randn(8, 4),
            "actions": torch.randint(2, (8, 2)),
            "policy": torch.rand(8, 3, 2).softmax(-1),
            "target": torch.randn(8, 3),
        }

    trainer = on.trainer(MuZero(), draw(), sgd(0.05, momentum=0.5))
    for _ in range(20):
        on.note(trainer.step(draw())[0])
    return trainer.weights()


PROGRAMS = [
    reinforce,
    dqn,
    ppo,
    alphazero,
    categorical_dqn,
    prioritised_replay,
    quantile_regression,
    muzero,
]
