"""Recommendation: tables of embeddings, and what is made of pairs of their rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def ratings(seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Users, items and ratings of one batch, of a world of rank two."""
    chance = np.random.default_rng(seed)
    taste, kind = chance.normal(size=(12, 2)), chance.normal(size=(17, 2))
    while True:
        user, item = chance.integers(0, 12, 16), chance.integers(0, 17, 16)
        yield user, item, (taste[user] * kind[item]).sum(1).clip(-2, 2).astype(np.float32)


def matrix_factorisation(on: Machine) -> Weights:
    """Biases, a global mean as a buffer, and an L2 penalty of the rows that a batch touches."""

    class MF(nn.Module):
        def __init__(self, n: int, m: int, k: int) -> None:
            super().__init__()
            for name, rows, width in (("P", n, k), ("Q", m, k), ("bu", n, 1), ("bi", m, 1)):
                table = nn.Embedding(rows, width)
                nn.init.normal_(table.weight, std=0.3)
                self.add_module(name, table)
            self.register_buffer("mu", torch.tensor(0.1))

        def forward(self, u: Tensor, i: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
            p, q = self.P(u), self.Q(i)
            prediction = self.mu + (p * q).sum(1) + self.bu(u)[:, 0] + self.bi(i)[:, 0]
            penalty = 0.02 * (p.pow(2).sum() + q.pow(2).sum()) / len(u)
            return nn.MSELoss()(prediction, r) + penalty, prediction

    def tensors() -> Iterator[dict[str, Tensor]]:
        for row in ratings(0):
            yield dict(zip("uir", map(torch.from_numpy, row), strict=True))

    stream = tensors()
    trainer = on.trainer(MF(12, 17, 4), next(stream), sgd(0.3))
    for batch in itertools.islice(stream, 20):
        on.note(trainer.step(batch)[0])
    return trainer.weights()


def two_towers(on: Machine) -> Weights:
    """Softmax over the batch, with the logarithm of each item's popularity taken off."""

    class Tower(nn.Module):
        def __init__(self, sizes: dict[str, int]) -> None:
            super().__init__()
            self.tables = nn.ModuleDict({name: nn.Embedding(n, 6) for name, n in sizes.items()})
            self.project = nn.Linear(6 * len(sizes), 8)

        def forward(self, features: dict[str, Tensor]) -> Tensor:
            parts = [table(features[name]) for name, table in self.tables.items()]
            return functional.normalize(self.project(torch.cat(parts, -1)), dim=-1)

    class Retrieval(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = Tower({"user": 12, "hour": 24})
            self.item = Tower({"item": 17, "brand": 5})
            self.log_temperature = nn.Parameter(torch.tensor(0.0))

        def forward(self, popularity: Tensor, **features: Tensor) -> Tensor:
            q, c = self.query(features), self.item(features)
            scores = q @ c.T * self.log_temperature.exp() - popularity.log()
            return functional.cross_entropy(scores, torch.arange(len(q)))

    def batch() -> dict[str, Tensor]:
        sizes = {"user": 12, "hour": 24, "item": 17, "brand": 5}
        drawn = {name: torch.randint(size, (10,)) for name, size in sizes.items()}
        return {"popularity": torch.rand(10) * 0.5 + 0.1, **drawn}

    trainer = on.trainer(Retrieval(), batch(), sgd(0.5))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def dlrm(on: Machine) -> Weights:
    """Bags of indices per feature with offsets of equal distance, and dots of all pairs of features."""

    class DLRM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU())
            self.bags = nn.ModuleList(nn.EmbeddingBag(n, 6, mode="sum") for n in (10, 20, 30))
            self.top = nn.Sequential(nn.Linear(6 + 6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
            self.loss_fn = nn.BCELoss()
            self.li, self.lj = torch.tril_indices(4, 4, offset=-1)

        def forward(self, dense: Tensor, sparse: Tensor, click: Tensor) -> tuple[Tensor, Tensor]:
            x = self.bottom(dense)
            t = torch.stack([x, *(bag(sparse[i]) for i, bag in enumerate(self.bags))], dim=1)
            z = torch.bmm(t, t.transpose(1, 2))[:, self.li, self.lj]
            p = self.top(torch.cat([x, z], dim=1)).squeeze(1)
            return self.loss_fn(p, click), p

    def batch() -> dict[str, Tensor]:
        dense = torch.randn(12, 4)
        click = (dense.sum(1) > 0).float()
        return {"dense": dense, "sparse": torch.randint(10, (3, 12, 2)), "click": click}

    trainer = on.trainer(DLRM(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


class FactorisationMachine(torch.nn.Module):
    """Rendle's trick: half of the square of the sum without the sum of the squares."""

    def __init__(self, field_dims: list[int], k: int) -> None:
        super().__init__()
        self.offsets = np.array((0, *np.cumsum(field_dims)[:-1]), dtype=np.int64)
        self.fc = nn.Embedding(sum(field_dims), 1)
        self.embedding = nn.Embedding(sum(field_dims), k)
        self.bias = nn.Parameter(torch.zeros((1,)))
        torch.nn.init.xavier_uniform_(self.embedding.weight.data)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = x + x.new_tensor(self.offsets).unsqueeze(0)
        e = self.embedding(x)
        pairs = 0.5 * (torch.sum(e, dim=1) ** 2 - torch.sum(e**2, dim=1)).sum(1, keepdim=True)
        logits = (self.fc(x).sum(1) + self.bias + pairs).squeeze(1)
        return functional.binary_cross_entropy_with_logits(logits, y)


def factorisation_machine(on: Machine) -> Weights:
    """``new_tensor`` of a numpy attribute inside ``forward``."""
    dims = [4, 7, 9]

    def batch() -> dict[str, Tensor]:
        x = torch.stack([torch.randint(d, (16,)) for d in dims], 1)
        return {"x": x, "y": ((x[:, 0] + x[:, 1]) % 2).float()}

    trainer = on.trainer(FactorisationMachine(dims, 4), batch(), sgd(0.5))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def deep_and_cross(on: Machine) -> Weights:
    """Cross layers from a list of parameters, beside a deep part, with two groups of an optimizer."""

    class DCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.Embedding(40, 3)
            self.cross = nn.ParameterList(nn.Parameter(torch.randn(9) * 0.3) for _ in range(3))
            self.shift = nn.ParameterList(nn.Parameter(torch.zeros(9)) for _ in range(3))
            self.deep = nn.Sequential(nn.Linear(9, 12), nn.LeakyReLU(), nn.Linear(12, 6))
            self.last = nn.Linear(15, 1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x0 = self.tables(x).flatten(1)
            xl = x0
            for w, b in zip(self.cross, self.shift, strict=True):
                xl = x0 * (xl @ w).unsqueeze(1) + b + xl
            out = self.last(torch.cat((xl, self.deep(x0)), 1))
            return functional.binary_cross_entropy(out.sigmoid(), y)

    def make(optim: Any, model: nn.Module) -> torch.optim.Optimizer:
        slow = [p for name, p in model.named_parameters() if "tables" in name]
        rest = [p for name, p in model.named_parameters() if "tables" not in name]
        return optim.SGD(
            [{"params": slow, "lr": 0.5, "momentum": 0.0}, {"params": rest}], lr=0.05, momentum=0.9
        )

    def batch() -> dict[str, Tensor]:
        x = torch.randint(40, (16, 3))
        return {"x": x, "y": (x[:, :1] > 20).float()}

    trainer = on.trainer(DCN(), batch(), make)
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def neural_collaborative(on: Machine) -> Weights:
    """NCF with hashed embeddings: an id is spread over rows by multiplying and a modulus in ``forward``."""

    class HashEmbedding(nn.Module):
        def __init__(self, buckets: int, width: int) -> None:
            super().__init__()
            self.buckets = buckets
            self.pool = nn.Parameter(torch.randn(buckets, width) * 0.3)
            self.importance = nn.Embedding(50, 2)
            self.register_buffer("multipliers", torch.tensor([2654435761 % 1009, 40503 % 1009]))

        def forward(self, ids: Tensor) -> Tensor:
            rows = (ids.unsqueeze(-1) * self.multipliers) % 1009 % self.buckets
            weight = torch.softmax(self.importance(ids % 50), dim=-1)
            return torch.einsum("bk,bkd->bd", weight, self.pool[rows])

    class NCF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = HashEmbedding(8, 6), HashEmbedding(8, 6)
            self.mlp = nn.Sequential(nn.Linear(12, 8), nn.Tanh())
            self.out = nn.Linear(14, 1, bias=False)

        def forward(self, user: Tensor, item: Tensor, target: Tensor) -> Tensor:
            u, i = self.user(user), self.item(item)
            both = torch.hstack([u * i, self.mlp(torch.hstack([u, i]))])
            return functional.mse_loss(self.out(both).squeeze(), target)

    stream = ratings(3)

    def batch() -> dict[str, Tensor]:
        user, item, rating = next(stream)
        return {
            "user": torch.from_numpy(user * 7919),
            "item": torch.as_tensor(item * 104729),
            "target": torch.tensor(rating),
        }

    trainer = on.trainer(NCF(), batch(), sgd(0.3))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def bayesian_ranking(on: Machine) -> Weights:
    """BPR: a positive item against a negative one; hard negatives come from scores of the forward pass."""

    class BPR(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users = nn.Parameter(torch.randn(12, 5) * 0.4)
            self.items = nn.Parameter(torch.randn(17, 5) * 0.4)

        def forward(self, u: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
            scores = self.users[u] @ self.items.t()
            gap = scores.gather(1, i[:, None]) - scores.gather(1, j[:, None])
            return -functional.logsigmoid(gap).mean(), scores

    batch = {name: torch.randint(12, (14,)) for name in "uij"}
    trainer = on.trainer(BPR(), batch, sgd(1.0), losses=[0])
    for _ in range(20):
        batch["u"], batch["i"] = torch.randint(12, (14,)), torch.randint(17, (14,))
        _, scores = trainer.forward(batch)
        scores[torch.arange(14), batch["i"]] = -np.inf
        batch["j"] = scores.argmax(1)
        on.note(trainer.step(batch)[0])
    return trainer.weights()


def sequential_items(on: Machine) -> Weights:
    """SASRec: causal attention over a history, padded with zero, and a mask in the loss."""

    class SASRec(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.item_emb = nn.Embedding(20, 8, padding_idx=0)
            self.pos_emb = nn.Embedding(6, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.norms = nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(8)])
            self.ffn = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

        def forward(self, log_seqs: Tensor, pos: Tensor, neg: Tensor) -> dict[str, Tensor]:
            seqs = self.item_emb(log_seqs) * 8**0.5 + self.pos_emb(torch.arange(6))
            seqs = seqs * (log_seqs != 0).unsqueeze(-1)
            mask = ~torch.tril(torch.ones((6, 6), dtype=torch.bool))
            q = self.norms[0](seqs)
            h = q + self.attention(q, seqs, seqs, attn_mask=mask, need_weights=False)[0]
            h = h + self.ffn(self.norms[1](h))
            p = (h * self.item_emb(pos)).sum(-1)
            n = (h * self.item_emb(neg)).sum(-1)
            each = functional.softplus(-p) + functional.softplus(n)
            real = (pos != 0).float()
            return {"loss": (each * real).sum() / real.sum().clamp_min(1.0)}

    def batch() -> dict[str, Tensor]:
        seqs = torch.randint(1, 20, (5, 7))
        for row in range(5):
            seqs[row, : row % 4] = 0
        return {"log_seqs": seqs[:, :-1], "pos": seqs[:, 1:], "neg": torch.randint(1, 20, (5, 6))}

    trainer = on.trainer(SASRec(), batch(), sgd(0.02))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def slates(on: Machine) -> Weights:
    """ListNet on slates of several lengths: a mask with minus infinity, and NDCG beside the loss."""

    class ListNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Sequential(nn.Linear(5, 12), nn.Hardswish(), nn.Linear(12, 1, False))

        def forward(self, x: Tensor, gain: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
            s = self.score(x).squeeze(-1).masked_fill(~there, float("-inf"))
            truth = gain.masked_fill(~there, float("-inf")).softmax(-1)
            logp = s.log_softmax(-1).masked_fill(~there, 0.0)
            loss = -(truth * logp).sum(-1).mean()
            with torch.no_grad():
                order = s.argsort(dim=-1, descending=True)
                discount = 1 / torch.log2(torch.arange(2, 2 + s.size(1)).float())
                dcg = (gain.gather(1, order) * discount).sum(-1)
            return loss, dcg

    def batch() -> dict[str, Tensor]:
        there = torch.arange(6)[None] < torch.randint(2, 7, (8, 1))
        x = torch.randn(8, 6, 5)
        gain = (x[..., 0] > 0).float() + (x[..., 1] > 0.5).float()
        return {"x": x, "gain": gain * there, "there": there}

    trainer = on.trainer(ListNet(), batch(), adam(0.01), losses=[0])
    for _ in range(20):
        loss, gained = trainer.step(batch())
        on.note(loss, gained)
    return trainer.weights()


PROGRAMS = [
    matrix_factorisation,
    two_towers,
    dlrm,
    factorisation_machine,
    deep_and_cross,
    neural_collaborative,
    bayesian_ranking,
    sequential_items,
    slates,
]
