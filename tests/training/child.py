"""Training in a process of its own: ``python -m tests.training.child WHAT FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn
from torch.optim import Optimizer

import samba_onnx as samba
from samba_onnx.sessions import SESSION

STEPS = 3
MEGABYTE = 1 << 20


class Net(nn.Module):
    """Convolution, batch normalisation, dropout, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.25)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        maps = torch.relu(self.norm(self.conv(image)))
        logits = self.head(self.dropout(maps).flatten(1))
        return F.cross_entropy(logits, label), logits


def net(seed: int) -> tuple[nn.Module, Optimizer]:
    torch.manual_seed(seed)
    model = Net().train()
    samba.from_torch_model_(model)
    return model, samba.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def batch(step: int) -> dict[str, samba.SambaTensor]:
    generator = torch.Generator().manual_seed(step)
    image = torch.randn(6, 1, 8, 8, generator=generator)
    label = torch.randint(0, 5, (6,), generator=generator)
    return samba.from_named_dict({"image": image, "label": label})  # type: ignore[return-value]


def advance(outputs: object, first: int, count: int) -> None:
    """Make steps; each draws its dropout mask from a seed of its own."""
    seeds = SESSION.get_dropout_seed_argin_names()
    for step in range(first, first + count):
        SESSION.run(batch(step), outputs, {**dict.fromkeys(seeds, step), "lr": 0.01 / step})


def everything(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Whatever training goes on from, read from the device."""
    SESSION.to_cpu(model, [optimizer])
    state = {n: samba.to_torch(t).detach().clone() for n, t in model.state_dict().items()}
    for parameter, held in optimizer.state.items():
        state |= {f"{parameter.sn_name} {k}": torch.as_tensor(v).clone() for k, v in held.items()}
    return state


def start(folder: Path) -> None:
    """Compile, train, save, train on, and say what came of it."""
    model, optimizer = net(0)
    path = SESSION.compile(model, batch(0), optimizer, output=folder / "net.pef")
    outputs = samba.utils.trace_graph(model, batch(0), optimizer, pef=path)
    advance(outputs, 1, STEPS)
    SESSION.to_cpu(model, [optimizer])
    torch.save({"model": model.state_dict(), "optim": optimizer.state_dict()}, folder / "saved.pt")
    advance(outputs, 1 + STEPS, STEPS)
    torch.save(everything(model, optimizer), folder / "expected.pt")


def resume(folder: Path) -> None:
    """Go on from what another process saved, with other initial weights."""
    model, optimizer = net(1)
    saved = torch.load(folder / "saved.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optim"])
    outputs = samba.utils.trace_graph(model, batch(0), optimizer, pef=folder / "net.pef")
    advance(outputs, 1 + STEPS, STEPS)
    torch.save(everything(model, optimizer), folder / "resumed.pt")


class Wide(nn.Module):
    """104 MB of weights in three matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2944, 2944) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return F.mse_loss(x, torch.zeros_like(x))


def memory(folder: Path) -> None:
    """Print in MB: weights; what tracing and each of three steps add to the process."""
    model = Wide().train()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    inputs = samba.from_named_dict({"x": torch.randn(8, 2944)})
    if not (folder / "wide.pef").exists():
        SESSION.compile(model, inputs, optimizer, output=folder / "wide.pef", check=False)
        return
    start(folder)  # Whatever is imported on the way is not to be counted.
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    process = psutil.Process(os.getpid())
    before = process.memory_info().rss
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=folder / "wide.pef")
    sizes = []
    for _ in range(3):
        SESSION.run(inputs, outputs)
        sizes.append((process.memory_info().rss - before) // MEGABYTE)
    print(weights // MEGABYTE, *sizes)


if __name__ == "__main__":
    {"start": start, "resume": resume, "memory": memory}[sys.argv[1]](Path(sys.argv[2]))
