"""Learning to learn, and from others: inner steps, teachers, experts, curricula."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from tests.training_programs.machines import Machine, Weights, adam, sgd


def sines(tasks: int, shots: int) -> tuple[Tensor, Tensor]:
    a, p = torch.rand(tasks, 1, 1) + 0.5, torch.rand(tasks, 1, 1) * 3
    x = torch.rand(tasks, shots, 1) * 6 - 3
    return x, a * torch.sin(x + p)


def support_and_query() -> dict[str, Tensor]:
    x, y = sines(3, 10)
    return {"xs": x[:, :5], "ys": y[:, :5], "xq": x[:, 5:], "yq": y[:, 5:]}


def maml(on: Machine) -> Weights:
    """Two inner steps on a dictionary of fast weights, with second-order gradients, task by task."""

    class MAML(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                OrderedDict(l1=nn.Linear(1, 16), act=nn.Tanh(), l2=nn.Linear(16, 1))
            )
            self.inner_lr = 0.1

        def adapt(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            fast = OrderedDict(self.net.named_parameters())
            for _ in range(2):
                loss = functional.mse_loss(functional_call(self.net, fast, x), y)
                grads = torch.autograd.grad(loss, tuple(fast.values()), create_graph=True)
                fast = {
                    name: w - self.inner_lr * g
                    for (name, w), g in zip(fast.items(), grads, strict=True)
                }
            return fast

        def forward(self, xs: Tensor, ys: Tensor, xq: Tensor, yq: Tensor) -> Tensor:
            losses = []
            for i in range(xs.shape[0]):
                fast = self.adapt(xs[i], ys[i])
                losses.append(functional.mse_loss(functional_call(self.net, fast, xq[i]), yq[i]))
            return torch.stack(losses).mean()

    trainer = on.trainer(MAML(), support_and_query(), sgd(0.05))
    for _ in range(20):
        on.note(trainer.step(support_and_query())[0])
    return trainer.weights()


def first_order_maml(on: Machine) -> Weights:
    """ANIL without second derivatives: only the head adapts, by gradients that are detached."""

    class ANIL(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
            self.w, self.b = nn.Parameter(torch.randn(8) * 0.3), nn.Parameter(torch.zeros(1))
            self.lr = nn.Parameter(torch.tensor(0.1))

        def forward(self, xs: Tensor, ys: Tensor, xq: Tensor, yq: Tensor) -> Tensor:
            total = 0
            for x, y, x2, y2 in zip(xs, ys, xq, yq, strict=True):
                h = self.body(x)
                inner = (h @ self.w + self.b - y[:, 0]).pow(2).mean()
                gw, gb = torch.autograd.grad(inner, [self.w, self.b], retain_graph=True)
                w, b = self.w - self.lr * gw, self.b - self.lr * gb
                total = total + (self.body(x2) @ w + b - y2[:, 0]).pow(2).mean()
            return total / len(xs)

    trainer = on.trainer(ANIL(), support_and_query(), sgd(0.02), losses=[0])
    for _ in range(20):
        on.note(trainer.step(support_and_query())[0])
    return trainer.weights()


def reptile(on: Machine) -> Weights:
    """Four steps on a task, then a fifth of the way from the old weights to the new ones, on the host."""

    class Regressor(nn.Sequential):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return functional.mse_loss(super().forward(x), y)

    model = Regressor(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    trainer = on.trainer(model, dict(zip("xy", (t[0] for t in sines(1, 8)), strict=True)), sgd(0.1))
    for _ in range(6):
        before = trainer.weights()
        x, y = sines(1, 8)
        for _ in range(4):
            on.note(trainer.step({"x": x[0], "y": y[0]})[0])
        after = trainer.weights()
        trainer.write({n: before[n] + 0.2 * (after[n] - before[n]) for n in before})
    return trainer.weights()


def prototypes(on: Machine) -> Weights:
    """Prototypical networks: class means of the support set, and distances of the queries to them."""

    class ProtoNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv1d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 8)
            )

        def forward(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
            way, shot, *_ = support.shape
            z = self.encoder(torch.cat([support.flatten(0, 1), query.flatten(0, 1)]))
            proto = z[: way * shot].view(way, shot, -1).mean(1)
            zq = z[way * shot :]
            dists = (zq.unsqueeze(1) - proto.unsqueeze(0)).pow(2).sum(2)
            logp = functional.log_softmax(-dists, dim=1).view(way, query.shape[1], -1)
            target = torch.arange(way).view(way, 1, 1).expand(way, query.shape[1], 1)
            loss = -logp.gather(2, target).squeeze().view(-1).mean()
            return loss, (logp.argmax(2) == target.squeeze(2)).float().mean()

    def episode() -> dict[str, Tensor]:
        kinds = torch.randn(4, 1, 1, 8)
        return {
            "support": kinds + 0.3 * torch.randn(4, 2, 1, 8),
            "query": kinds + 0.3 * torch.randn(4, 3, 1, 8),
        }

    trainer = on.trainer(ProtoNet(), episode(), sgd(0.02), losses=[0])
    for _ in range(20):
        on.note(*trainer.step(episode()))
    return trainer.weights()


def distillation(on: Machine) -> Weights:
    """A frozen teacher inside the module, soft targets at a temperature, and hints of a hidden layer."""

    class Distiller(nn.Module):
        def __init__(self, t: float = 3.0, alpha: float = 0.7) -> None:
            super().__init__()
            self.teacher = nn.Sequential(
                nn.Linear(5, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)
            )
            self.teacher.requires_grad_(False).eval()
            self.student = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 4)])
            self.regressor = nn.Linear(8, 32, bias=False)
            self.t, self.alpha = t, alpha

        def train(self, mode: bool = True) -> Distiller:
            super().train(mode)
            self.teacher.eval()
            return self

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            with torch.inference_mode(False), torch.no_grad():
                hint = self.teacher[:3](x)
                soft = self.teacher[3](hint)
            h = self.student[0](x).relu()
            out = self.student[1](h)
            kd = nn.KLDivLoss(reduction="batchmean")(
                functional.log_softmax(out / self.t, 1), functional.softmax(soft / self.t, 1)
            )
            loss = kd * (self.alpha * self.t**2) + functional.cross_entropy(out, y) * (
                1 - self.alpha
            )
            return loss + 0.1 * functional.mse_loss(self.regressor(h), hint), out

    def make(optim: object, model: Distiller) -> torch.optim.Optimizer:
        return optim.SGD(
            [p for p in model.parameters() if p.requires_grad], lr=0.1, nesterov=True, momentum=0.9
        )

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(10, 5), "y": torch.randint(4, (10,))}

    trainer = on.trainer(Distiller().train(), batch(), make)
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def mutual_learning(on: Machine) -> Weights:
    """Two students, each of which is the other's teacher: cross detached divergences."""

    class Mutual(nn.ModuleList):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            logp = [net(x).log_softmax(-1) for net in self]
            losses = []
            for mine, other in (logp, logp[::-1]):
                kl = functional.kl_div(mine, other.detach(), log_target=True, reduction="batchmean")
                losses.append(functional.nll_loss(mine, y) + kl)
            return tuple(losses)

    def net(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(4, width), nn.SELU(), nn.Linear(width, 3))

    def batch() -> dict[str, Tensor]:
        return {"x": torch.randn(8, 4), "y": torch.randint(3, (8,))}

    trainer = on.trainer(Mutual([net(6), net(12)]), batch(), sgd(0.1), losses=[0, 1])
    for _ in range(20):
        on.note(*trainer.step(batch()))
    return trainer.weights()


def mixture_of_experts(on: Machine) -> Weights:
    """Two experts of four per token, a balancing loss, all experts computed and masked."""

    class Expert(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.w1, self.w3 = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)
            self.w2 = nn.Linear(2 * d, d, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.w2(functional.silu(self.w1(x)) * self.w3(x))

    class MoE(nn.Module):
        def __init__(self, d: int = 6, n: int = 4, k: int = 2) -> None:
            super().__init__()
            self.gate, self.k = nn.Linear(d, n, bias=False), k
            self.experts = nn.ModuleList(Expert(d) for _ in range(n))

        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            probs = self.gate(x).softmax(-1)
            top, chosen = torch.topk(probs, self.k)
            top = top / top.sum(-1, keepdim=True)
            out = torch.zeros_like(x)
            for e, expert in enumerate(self.experts):
                weight = (top * (chosen == e)).sum(-1, keepdim=True)
                out += weight * expert(x)
            share = functional.one_hot(chosen, probs.shape[-1]).float().sum(1).mean(0)
            balance = len(self.experts) * (share * probs.mean(0)).sum()
            return {"loss": functional.mse_loss(x + out, y) + 0.01 * balance, "balance": balance}

    def batch() -> dict[str, Tensor]:
        x = torch.randn(12, 6)
        return {"x": x, "y": x.sort(-1).values}

    trainer = on.trainer(MoE(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(*trainer.step(batch()))
    return trainer.weights()


def loop_over_experts(on: Machine) -> Weights:
    """Experts as Mixtral had them: ``torch.where`` finds the tokens of each expert, of which there are as many as there are."""

    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(4, 3)
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            weight, chosen = self.gate(x).softmax(-1).max(-1)
            out = torch.zeros_like(x)
            for e, expert in enumerate(self.experts):
                (rows,) = torch.where(chosen == e)
                out.index_add_(0, rows, weight[rows, None] * expert(x[rows]))
            return functional.mse_loss(out, y)

    def batch() -> dict[str, Tensor]:
        x = torch.randn(12, 4)
        return {"x": x, "y": x.flip(-1)}

    trainer = on.trainer(Sparse(), batch(), sgd(0.2))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def hypernetwork(on: Machine) -> Weights:
    """A network that writes the weights of another one, per sample, by batched products."""

    class Hyper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shapes = [(8, 1), (8,), (1, 8), (1,)]
            sizes = [math.prod(shape) for shape in self.shapes]
            self.sizes = sizes
            self.hyper = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, sum(sizes)))

        def forward(self, task: Tensor, x: Tensor, y: Tensor) -> Tensor:
            pieces = self.hyper(task).split(self.sizes, dim=-1)
            w1, b1, w2, b2 = (
                piece.view(-1, *shape) for piece, shape in zip(pieces, self.shapes, strict=True)
            )
            h = torch.tanh(x @ w1.mT + b1[:, None])
            return nn.functional.mse_loss(h @ w2.mT + b2[:, None], y)

    def batch() -> dict[str, Tensor]:
        task = torch.rand(6, 2)
        x = torch.rand(6, 7, 1) * 2 - 1
        return {"task": task, "x": x, "y": task[:, None, :1] * x + task[:, None, 1:]}

    trainer = on.trainer(Hyper(), batch(), adam(0.005))
    for _ in range(20):
        on.note(trainer.step(batch())[0])
    return trainer.weights()


def curriculum(on: Machine) -> Weights:
    """Easy ones first: the losses of all samples come back, and the host picks the easier half of them."""

    class PerSample(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 12), nn.CELU(), nn.Linear(12, 2))
            self.ce = nn.CrossEntropyLoss(reduction="none")

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.ce(self.net(x), y)

    pool = torch.randn(48, 3)
    labels = ((pool.sum(1) + 0.5 * torch.randn(48)) > 0).long()
    difficulty = torch.rand(48)
    share = 0.3
    trainer = on.trainer(PerSample(), {"x": pool[:12], "y": labels[:12]}, sgd(0.02))
    for _ in range(20):
        easy = difficulty.argsort()[: int(share * 48)]
        rows = easy[torch.randperm(len(easy))[:12]]
        losses = trainer.step({"x": pool[rows], "y": labels[rows]})[0]
        # Rounded, so that a last bit does not choose other samples.
        difficulty[rows] = losses.mul(100).round() / 100
        share = min(1.0, share + 0.05)
        on.note(losses)
    return trainer.weights()


def born_again(on: Machine) -> Weights:
    """Generations: each student starts afresh, from the seed, with the last one as its teacher."""

    class Generation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x: Tensor, soft: Tensor) -> Tensor:
            return functional.cross_entropy(self.net(x), soft)

    teacher = nn.Linear(4, 3)
    for _ in range(2):
        student = Generation()
        plain = copy.deepcopy(student)
        first = {"x": torch.randn(8, 4), "soft": torch.full((8, 3), 1 / 3)}
        trainer = on.trainer(student, first, sgd(0.3))
        for _ in range(10):
            x = torch.randn(8, 4)
            with torch.no_grad():
                soft = teacher(x).mul(2).softmax(1)
            on.note(trainer.step({"x": x, "soft": soft})[0])
        plain.load_state_dict(trainer.weights())
        teacher = plain.net
    return trainer.weights()


PROGRAMS = [
    maml,
    first_order_maml,
    reptile,
    prototypes,
    distillation,
    mutual_learning,
    mixture_of_experts,
    loop_over_experts,
    hypernetwork,
    curriculum,
    born_again,
]
