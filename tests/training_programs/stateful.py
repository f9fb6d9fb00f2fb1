"""State from step to step: kept in attributes, buffers, inputs, memories, and Python's own numbers."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def series(steps: int, batch: int = 4) -> Tensor:
    """Sines that go on from chunk to chunk: (batch, steps)."""
    phase = torch.arange(batch)[:, None] * 1.3
    return torch.sin(0.4 * torch.arange(steps)[None] + phase)


def chunks(count: int = 21, length: int = 5) -> list[dict[str, Tensor]]:
    whole = series(count * length + 1).unsqueeze(-1)
    starts = range(0, count * length, length)
    return [{"x": whole[:, s : s + length], "y": whole[:, s + 1 : s + length + 1]} for s in starts]


def hidden_attribute(on: Machine) -> Weights:
    """Truncated backpropagation as most people write it: ``self.hidden`` is detached and kept."""

    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, 1)
            self.hidden = (torch.zeros(1, 4, 8), torch.zeros(1, 4, 8))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            h, (hn, cn) = self.rnn(x, self.hidden)
            self.hidden = (hn.detach(), cn.detach())
            return functional.mse_loss(self.out(h), y)

    data = chunks()
    trainer = on.trainer(Stateful(), data[0], sgd(0.2))
    for batch in data:
        on.note(trainer.step(batch)[0])
    return trainer.weights()


def hidden_buffer(on: Machine) -> Weights:
    """The same with a buffer that is copied into."""

    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.GRU(1, 8, batch_first=True), nn.Linear(8, 1)
            self.register_buffer("h", torch.zeros(1, 4, 8))

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            hidden, last = self.rnn(x, self.h.clone())
            self.h.copy_(last.detach())
            made = self.out(hidden)
            return functional.mse_loss(made, y), made

    data = chunks()
    trainer = on.trainer(Stateful(), data[0], sgd(0.2))
    for batch in data:
        on.note(trainer.step(batch)[0])
    return trainer.weights()


def hidden_handed_on(on: Machine) -> Weights:
    """And the same with the state going out and in again, from the host."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.RNNCell(1, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor, y: Tensor, h: Tensor) -> dict[str, Tensor]:
            loss = 0.0
            for t in range(x.size(1)):
                h = self.cell(x[:, t], h)
                loss = loss + functional.mse_loss(self.out(h), y[:, t])
            return {"loss": loss / x.size(1), "h": h}

    data = chunks()
    h = torch.zeros(4, 8)
    trainer = on.trainer(Cell(), {**data[0], "h": h}, sgd(0.1))
    for batch in data:
        loss, h = trainer.step({**batch, "h": h})
        on.note(loss)
    return trainer.weights()


def annealed_by_a_counter(on: Machine) -> Weights:
    """``self.step += 1`` in ``forward``, for the weight of a divergence."""

    class Annealed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc, self.dec = nn.Linear(5, 4), nn.Linear(2, 5)
            self.step = 0

        def forward(self, x: Tensor, eps: Tensor) -> Tensor:
            self.step += 1
            beta = min(1.0, self.step / 10)
            mu, logvar = self.enc(x).chunk(2, -1)
            kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(-1).mean()
            made = self.dec(mu + eps * (0.5 * logvar).exp())
            return functional.mse_loss(made, x) + beta * kl

    batch = {"x": torch.randn(8, 5), "eps": torch.randn(8, 2)}
    trainer = on.trainer(Annealed(), batch, sgd(0.1))
    for _ in range(20):
        on.note(trainer.step({"x": torch.randn(8, 5), "eps": torch.randn(8, 2)})[0])
    return trainer.weights()


def last_logits(on: Machine) -> Weights:
    """Temporal consistency with what the last call predicted, kept in an attribute that begins as None."""

    class Consistent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 3)
            self.last: Tensor | None = None

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            logits = self.net(x)
            loss = functional.cross_entropy(logits, y)
            if self.last is not None:
                loss = loss + 0.5 * functional.mse_loss(logits, self.last)
            self.last = logits.detach()
            return loss

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(6, 4), "y": torch.randint(3, (6,))}

    trainer = on.trainer(Consistent(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def scheduled_sampling(on: Machine) -> Weights:
    """``random.random()`` in ``forward`` decides between the truth and the prediction."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.GRUCell(1, 6), nn.Linear(6, 1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            h, fed, loss = x.new_zeros(4, 6), x[:, 0], 0.0
            for t in range(x.size(1)):
                h = self.cell(fed, h)
                made = self.out(h)
                loss = loss + functional.mse_loss(made, y[:, t])
                fed = y[:, t] if random.random() < 0.5 else made
            return loss

    random.seed(0)
    data = chunks()
    trainer = on.trainer(Decoder(), data[0], sgd(0.1))
    for batch in data:
        on.note(trainer.step(batch)[0])
    return trainer.weights()


@dataclass
class Heads:
    """Where a neural Turing machine reads and writes."""

    read: Tensor
    write: Tensor


def turing_machine(on: Machine) -> Weights:
    """Content and location addressing with a circular convolution, unrolled over a copy task."""

    class NTM(nn.Module):
        def __init__(self, cells: int = 6, width: int = 5) -> None:
            super().__init__()
            self.controller = nn.LSTMCell(3 + width, 12)
            self.params = nn.Linear(12, 2 * (width + 2 + 3) + 2 * width)
            self.out = nn.Linear(12 + width, 2)
            self.register_buffer("start", torch.full((cells, width), 1e-2))
            self.cells, self.width = cells, width

        def address(self, raw: Tensor, memory: Tensor, old: Tensor) -> Tensor:
            k, beta, g, s = raw.split([self.width, 1, 1, 3], dim=-1)
            content = functional.cosine_similarity(memory, k.tanh().unsqueeze(1), dim=-1)
            w = (functional.softplus(beta) * content).softmax(-1)
            w = g.sigmoid() * w + (1 - g.sigmoid()) * old
            s = s.softmax(-1)
            return s[:, :1] * w.roll(1, -1) + s[:, 1:2] * w + s[:, 2:] * w.roll(-1, -1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            b = x.shape[0]
            memory = self.start.expand(b, -1, -1)
            first = functional.one_hot(torch.zeros(b, dtype=torch.long), self.cells).float()
            heads = Heads(first, first)
            h = c = x.new_zeros(b, 12)
            seen, made = x.new_zeros(b, self.width), []
            for t in range(x.shape[1]):
                h, c = self.controller(torch.cat([x[:, t], seen], -1), (h, c))
                raw = self.params(h)
                size = self.width + 5
                heads = Heads(
                    self.address(raw[:, :size], memory, heads.read),
                    self.address(raw[:, size : 2 * size], memory, heads.write),
                )
                erase, add = raw[:, 2 * size :].chunk(2, -1)
                where = heads.write.unsqueeze(-1)
                memory = memory * (1 - where * erase.sigmoid().unsqueeze(1))
                memory = memory + where * add.tanh().unsqueeze(1)
                seen = torch.einsum("bn,bnw->bw", heads.read, memory)
                made.append(self.out(torch.cat([h, seen], -1)))
            return functional.binary_cross_entropy_with_logits(torch.stack(made[3:], 1), y)

    def batch() -> dict[str, Tensor]:
        bits = torch.randint(2, (4, 2, 2)).float()
        x = torch.zeros(4, 5, 3)
        x[:, :2, :2], x[:, 2, 2] = bits, 1.0
        return {"x": x, "y": bits}

    trainer = on.trainer(NTM(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def memory_network(on: Machine) -> Weights:
    """End-to-end memory: three hops whose embeddings are shared by neighbours, with positions."""

    class MemN2N(nn.Module):
        def __init__(self, vocab: int = 15, d: int = 8, hops: int = 3) -> None:
            super().__init__()
            for hop in range(hops + 1):
                setattr(self, f"C_{hop}", nn.Embedding(vocab, d, padding_idx=0))
            self.hops = hops
            j, k = np.meshgrid(np.arange(1, 5), np.arange(1, d + 1), indexing="ij")
            pe = 1 - j / 4 - k / d * (1 - 2 * j / 4)
            self.register_buffer("encoding", torch.from_numpy(pe).float())

        def forward(self, story: Tensor, query: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
            u = (self.C_0(query) * self.encoding).sum(1)
            for hop in range(self.hops):
                m = (getattr(self, f"C_{hop}")(story) * self.encoding).sum(2)
                c = (getattr(self, f"C_{hop + 1}")(story) * self.encoding).sum(2)
                p = (m @ u.unsqueeze(-1)).softmax(1)
                u = u + (c * p).sum(1)
            a = u @ getattr(self, f"C_{self.hops}").weight.T
            return functional.cross_entropy(a, answer), a

    def batch() -> dict[str, Tensor]:
        story = torch.randint(0, 15, (6, 5, 4))
        return {"story": story, "query": story[:, 2], "answer": story[:, 3, 0]}

    trainer = on.trainer(MemN2N(), batch(), sgd(0.01))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def mean_teacher(on: Machine) -> Weights:
    """The teacher is another module, moved on the host; its predictions go in as targets."""

    class Student(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor, y: Tensor, soft: Tensor, ramp: Tensor) -> dict[str, Tensor]:
            logits = self.net(x)
            supervised = functional.cross_entropy(logits[:4], y)
            consistent = functional.mse_loss(logits.softmax(1), soft)
            return {"loss": supervised + ramp * consistent}

    net = nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 3))
    teacher = copy.deepcopy(net).eval()

    def batch(step: int) -> dict[str, Tensor]:
        x = torch.randn(10, 4)
        with torch.no_grad():
            soft = teacher(x + 0.05 * torch.randn_like(x)).softmax(1)
        ramp = torch.tensor(np.exp(-5 * (1 - step / 20) ** 2), dtype=torch.float32)
        return {"x": x, "y": x[:4].argmax(1) % 3, "soft": soft, "ramp": ramp}

    trainer = on.trainer(Student(net), batch(0), adam(0.01))
    for step in range(20):
        on.note(trainer.step(batch(step))[0])
        with torch.no_grad():
            for name, value in trainer.weights().items():
                teacher.state_dict()[name.removeprefix("net.")].mul_(0.9).add_(value, alpha=0.1)
    return trainer.weights()


def echo_state(on: Machine) -> Weights:
    """A frozen reservoir in a buffer whose state lives on, read out by two trained layers."""

    class Reservoir(nn.Module):
        def __init__(self, size: int = 20) -> None:
            super().__init__()
            w = torch.randn(size, size)
            self.register_buffer("w", 0.9 * w / torch.linalg.eigvals(w).abs().max())
            self.register_buffer("w_in", torch.rand(size, 1) - 0.5)
            self.register_buffer("state", torch.zeros(4, size))
            self.readout = nn.Sequential(nn.Linear(size, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            states, s = [], self.state
            for t in range(x.shape[1]):
                s = 0.7 * s + 0.3 * torch.tanh(x[:, t] @ self.w_in.T + s @ self.w.T)
                states.append(s)
            self.state = s.detach()
            return functional.mse_loss(self.readout(torch.stack(states, 1)), y)

    data = chunks()
    trainer = on.trainer(Reservoir(), data[0], sgd(0.1, momentum=0.9))
    for batch in data:
        on.note(trainer.step(batch)[0])
    return trainer.weights()


def normalised_rewards(on: Machine) -> Weights:
    """Welford's running mean and variance, in buffers, before the network sees an observation."""

    class Normaliser(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.register_buffer("count", torch.tensor(1e-4))
            self.register_buffer("mean", torch.zeros(width))
            self.register_buffer("m2", torch.ones(width))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                n = self.count + len(x)
                delta = x.mean(0) - self.mean
                self.m2 += x.var(0, unbiased=False) * len(x) + delta**2 * self.count * len(x) / n
                self.mean += delta * len(x) / n
                self.count.fill_(0).add_(n)
            return ((x - self.mean) / (self.m2 / self.count + 1e-5).sqrt()).clamp(-3, 3)

    class Value(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.net = Normaliser(4), nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))

        def forward(self, obs: Tensor, ret: Tensor) -> Tensor:
            return functional.huber_loss(self.net(self.norm(obs)).squeeze(1), ret, delta=0.5)

    def batch() -> dict[str, Tensor]:
        obs = torch.randn(8, 4) * torch.tensor([1.0, 10.0, 0.1, 3.0]) + 2
        return {"obs": obs, "ret": obs[:, 0]}

    trainer = on.trainer(Value(), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    hidden_attribute,
    hidden_buffer,
    hidden_handed_on,
    annealed_by_a_counter,
    last_logits,
    scheduled_sampling,
    turing_machine,
    memory_network,
    mean_teacher,
    echo_state,
    normalised_rewards,
]
