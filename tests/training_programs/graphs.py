"""Networks on graphs: dense adjacencies, messages along lists of edges, and trees."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def ring(nodes: int, extra: int) -> Tensor:
    """Edges (2, n) of a ring, both ways, with some more drawn."""
    around = torch.arange(nodes)
    there = torch.stack([around, (around + 1) % nodes])
    more = torch.randint(nodes, (2, extra))
    return torch.cat([there, there.flip(0), more], 1)


class GCNConv(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.empty(cin, cout))
        nn.init.xavier_uniform_(self.W)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return adj @ (x @ self.W)


def gcn(on: Machine) -> Weights:
    """Kipf and Welling: adjacency normalised by numpy, a loss over the labelled nodes only."""
    edges = ring(14, 6).numpy()
    dense = np.eye(14, dtype=np.float32)
    dense[edges[0], edges[1]] = 1
    degree = np.diag(dense.sum(1) ** -0.5)
    adj = torch.from_numpy((degree @ dense @ degree).astype(np.float32))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = GCNConv(5, 12), GCNConv(12, 3)
            self.register_buffer("adj", adj, persistent=False)

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            out = self.two(self.one(x, self.adj).relu(), self.adj)
            return functional.cross_entropy(out, y, ignore_index=-1), out

    labels = torch.randint(3, (14,))
    trainer = on.trainer(Net(), {"x": torch.randn(14, 5), "y": labels}, adam(0.02))
    x = torch.randn(14, 5)
    for _ in range(20):
        hidden = labels.where(torch.rand(14) < 0.6, -torch.ones_like(labels))
        on.note(trainer.step({"x": x, "y": hidden})[0])
    return trainer.weights()


def gat(on: Machine) -> Weights:
    """Attention over edges: a softmax per target by scatter_reduce of maxima and index_add of sums."""

    class GAT(nn.Module):
        def __init__(self, cin: int, cout: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.lin = nn.Linear(cin, heads * cout, bias=False)
            self.src = nn.Parameter(torch.randn(heads, cout) * 0.3)
            self.dst = nn.Parameter(torch.randn(heads, cout) * 0.3)

        def forward(self, x: Tensor, edge: Tensor) -> Tensor:
            n = x.size(0)
            h = self.lin(x).view(n, self.heads, -1)
            s, d = edge[0], edge[1]
            score = ((h * self.src).sum(-1)[s] + (h * self.dst).sum(-1)[d]) / 1.5
            score = functional.leaky_relu(score, 0.2)
            top = torch.full((n, self.heads), -1e9)
            top = top.scatter_reduce(0, d[:, None].expand_as(score), score.detach(), "amax")
            e = (score - top[d]).exp()
            total = torch.zeros(n, self.heads).index_add(0, d, e)
            weight = (e / total[d]).unsqueeze(-1)
            return torch.zeros_like(h).index_add(0, d, h[s] * weight).flatten(1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GAT(4, 6, 3), GAT(18, 2, 1)

        def forward(self, x: Tensor, edge: Tensor, y: Tensor) -> Tensor:
            x = functional.elu(self.first(x, edge))
            return functional.cross_entropy(self.second(x, edge), y)

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(9, 4), "edge": ring(9, 5), "y": torch.randint(2, (9,))}

    trainer = on.trainer(Net(), batch(), sgd(0.1))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


class MPNN(nn.Module):
    """Messages from pairs and edge features, GRU updates, a readout per graph of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * 8 + 3, 16), nn.ReLU(), nn.Linear(16, 8))
        self.update = nn.GRUCell(8, 8)
        self.readout = nn.Linear(8, 1)

    def forward(self, h: Tensor, edge: Tensor, attr: Tensor, graph: Tensor, y: Tensor) -> Tensor:
        for _ in range(3):
            m = self.message(torch.cat((h[edge[0]], h[edge[1]], attr), dim=1))
            gathered = torch.zeros_like(h)
            gathered.index_add_(0, edge[1], m)
            h = self.update(gathered, h)
        pooled = torch.zeros(y.shape[0], 8).index_add_(0, graph, h)
        return ((self.readout(pooled).squeeze(1) - y) ** 2).mean()


def message_passing(on: Machine) -> Weights:
    """Three rounds of messages over edges with features, gathered by ``index_add_``, and a sum per graph."""

    def batch() -> dict[str, Tensor]:
        return {
            "h": torch.randn(12, 8),
            "edge": ring(12, 4),
            "attr": torch.rand(28, 3),
            "graph": torch.arange(12) // 4,
            "y": torch.randn(3),
        }

    trainer = on.trainer(MPNN(), batch(), adam(0.01))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def link_prediction(on: Machine) -> Weights:
    """A graph autoencoder: inner products of embeddings, negative edges drawn on the host each step."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = nn.Embedding(15, 8)
            self.lin = nn.Linear(8, 8)

        def forward(self, edge: Tensor) -> Tensor:
            z = self.emb.weight
            near = torch.zeros_like(z).index_add(0, edge[1], z[edge[0]])
            return self.lin(torch.tanh(near)) + z

    class VGAE(nn.Module):
        def __init__(self, encoder: nn.Module) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, edge: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
            z = self.encoder(edge)
            score = torch.cat([(z[e[0]] * z[e[1]]).sum(-1) for e in (edge, negative)])
            truth = torch.cat([torch.ones(edge.size(1)), torch.zeros(negative.size(1))])
            return functional.binary_cross_entropy_with_logits(score, truth), score

    edges = ring(15, 10)
    first = {"edge": edges, "negative": torch.randint(15, (2, 40))}
    trainer = on.trainer(VGAE(Encoder()), first, sgd(0.2, momentum=0.9))
    for _ in range(20):
        negative = torch.randint(15, (2, 40))
        on.note(trainer.step({"edge": edges[:, torch.randperm(40)], "negative": negative})[0])
    return trainer.weights()


def graph_sage(on: Machine) -> Weights:
    """Sampled neighbours as a table of indices; mean and max of neighbours side by side."""

    def sage(self_dim: int, out: int) -> nn.ModuleDict:
        return nn.ModuleDict({"me": nn.Linear(self_dim, out), "near": nn.Linear(2 * self_dim, out)})

    class Sage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([sage(6, 10), sage(10, 4)])

        def forward(self, x: Tensor, table: Tensor, label: Tensor) -> dict[str, Tensor]:
            for i, layer in enumerate(self.layers):
                near = x[table]
                both = torch.cat([near.mean(1), near.max(dim=1)[0]], 1)
                x = layer["me"](x) + layer["near"](both)
                x = functional.normalize(x.tanh() if i == 0 else x, dim=1)
            return {"loss": functional.nll_loss(x.mul(4).log_softmax(1), label), "x": x}

    def batch() -> dict[str, Tensor]:
        return {
            "x": torch.randn(10, 6),
            "table": torch.randint(10, (10, 4)),
            "label": torch.randint(4, (10,)),
        }

    trainer = on.trainer(Sage(), batch(), sgd(0.3))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def graph_isomorphism(on: Machine) -> Weights:
    """GIN with a learnt epsilon, batch normalisation, and a jumping readout of all layers."""

    class GIN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.eps = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(2)])
            self.mlps = nn.ModuleList()
            for width in (5, 8):
                self.mlps += [
                    nn.Sequential(
                        nn.Linear(width, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8)
                    )
                ]
            self.head = nn.Linear(16, 2)

        def forward(self, x: Tensor, adj: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            b, n, _ = x.shape
            pooled = []
            for eps, mlp in zip(self.eps, self.mlps, strict=True):
                x = mlp(((1 + eps) * x + torch.bmm(adj, x)).reshape(b * n, -1)).view(b, n, -1)
                pooled.append(x.sum(dim=1))
            logits = self.head(torch.cat(pooled, -1))
            return functional.cross_entropy(logits, y), logits

    def batch() -> dict[str, Tensor]:
        adj = (torch.rand(6, 7, 7) < 0.3).float()
        y = (adj.sum((1, 2)) > 14).long()
        return {"x": torch.randn(6, 7, 5), "adj": ((adj + adj.mT) > 0).float(), "y": y}

    trainer = on.trainer(GIN().train(), batch(), sgd(0.005))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def relational_gcn(on: Machine) -> Weights:
    """A basis of matrices for seven relations, and DistMult scores of triples."""

    class RGCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.entity = nn.Parameter(torch.randn(11, 6) * 0.5)
            self.basis = nn.Parameter(torch.randn(2, 6, 6) * 0.4)
            self.mix = nn.Parameter(torch.randn(7, 2))
            self.diagonal = nn.Parameter(torch.ones(7, 6))

        def forward(self, head: Tensor, rel: Tensor, tail: Tensor, truth: Tensor) -> Tensor:
            w = torch.einsum("rb,bij->rij", self.mix, self.basis)
            m = torch.einsum("ei,eij->ej", self.entity[head], w[rel])
            count = torch.zeros(11).scatter_add(0, tail, torch.ones(tail.shape)).clamp(min=1)
            h = torch.zeros(11, 6).index_add(0, tail, m) / count[:, None]
            h = torch.sigmoid(h + self.entity)
            score = (h[head] * self.diagonal[rel] * h[tail]).sum(1)
            return functional.binary_cross_entropy_with_logits(score, truth)

    def batch() -> dict[str, Tensor]:
        return {
            "head": torch.randint(11, (20,)),
            "rel": torch.randint(7, (20,)),
            "tail": torch.randint(11, (20,)),
            "truth": torch.randint(2, (20,)).float(),
        }

    trainer = on.trainer(RGCN(), batch(), adam(0.02))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def tree_lstm(on: Machine) -> Weights:
    """A child-sum LSTM from the leaves to the root of one fixed tree, by Python recursion."""
    tree = (((0, 1), 2), (3, (4, 5)))

    class TreeLSTM(nn.Module):
        def __init__(self, width: int = 8) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, width)
            self.iou = nn.Linear(width, 3 * width)
            self.forget = nn.Linear(width, width)
            self.sentiment = nn.Linear(width, 3)
            self.criterion = nn.CrossEntropyLoss()

        def node(self, tokens: Tensor, place: int | tuple) -> tuple[Tensor, Tensor]:
            if isinstance(place, int):
                h = self.embed(tokens[:, place])
                return h, torch.zeros_like(h)
            (hl, cl), (hr, cr) = (self.node(tokens, child) for child in place)
            i, o, u = self.iou(hl + hr).chunk(3, 1)
            c = i.sigmoid() * u.tanh()
            c = c + self.forget(hl).sigmoid() * cl + self.forget(hr).sigmoid() * cr
            return o.sigmoid() * c.tanh(), c

        def forward(self, tokens: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.sentiment(self.node(tokens, tree)[0])
            return self.criterion(logits, label), logits

    def batch() -> dict[str, Tensor]:
        tokens = torch.randint(20, (7, 6))
        return {"tokens": tokens, "label": tokens.sum(1) % 3}

    trainer = on.trainer(TreeLSTM(), batch(), sgd(0.3))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def graph_transformer(on: Machine) -> Weights:
    """Attention over all nodes, biased by embeddings of the distances that numpy found."""
    edges = ring(10, 0).numpy()
    hops = np.full((10, 10), 9)
    np.fill_diagonal(hops, 0)
    hops[edges[0], edges[1]] = 1
    for k in range(10):
        hops = np.minimum(hops, hops[:, k : k + 1] + hops[k : k + 1])

    class Graphormer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Embedding(10, 2)
            self.qkv = nn.Linear(8, 24)
            self.norm = nn.LayerNorm(8)
            self.out = nn.Linear(8, 1)
            self.hops = torch.from_numpy(hops)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm(x)).view(-1, 10, 3, 2, 4).permute(2, 0, 3, 1, 4)
            bias = self.bias(self.hops).permute(2, 0, 1)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
            h = x + mixed.transpose(1, 2).flatten(2)
            return functional.l1_loss(self.out(h).squeeze(-1).mean(1), y, reduction="sum")

    def batch() -> dict[str, Tensor]:
        x = torch.randn(4, 10, 8)
        return {"x": x, "y": x[:, 0, 0]}

    trainer = on.trainer(Graphormer(), batch(), adam(0.003))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


PROGRAMS = [
    gcn,
    gat,
    message_passing,
    link_prediction,
    graph_sage,
    graph_isomorphism,
    relational_gcn,
    tree_lstm,
    graph_transformer,
]
