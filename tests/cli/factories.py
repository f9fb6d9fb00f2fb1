"""Functions that ``samba-port convert`` is given."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

import samba_onnx as samba


class Net(nn.Module):
    """A layer with two inputs, and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        out = nn.functional.silu(self.layer(x))
        return nn.functional.cross_entropy(out, target), out


def net() -> Net:
    torch.manual_seed(3)
    return Net()


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    return torch.randn(2, 4), torch.tensor([0, 2])


def positional() -> Any:
    return net(), batch()


def by_keyword() -> Any:
    return net(), dict(zip(("x", "target"), batch(), strict=True))


def chatty() -> Any:
    print("this is no answer")
    return positional()


def raising() -> Any:
    raise RuntimeError("there is\nno data")


def leaving() -> Any:
    sys.exit(0)


def nothing() -> Any:
    return None


def alone() -> Any:
    return net()


def junk() -> Any:
    return "a model", (torch.ones(2),)


def odd_inputs() -> Any:
    return net(), 7


def missing_input() -> Any:
    return net(), batch()[:1]


def with_parameters(size: int) -> Any:
    return net(), (torch.ones(2, size),)


def training() -> Any:
    model = net()
    samba.from_torch_model_(model)
    return model, batch(), samba.optim.AdamW(model.parameters(), lr=0.1)


def narrow_training() -> Any:
    module, (x, target) = net().bfloat16(), batch()
    samba.from_torch_model_(module)
    optimizer = samba.optim.AdamW(module.parameters(), lr=0.1)
    return module, (x.bfloat16(), target), optimizer


def lazy_training() -> Any:
    """Leave lazy mode on, as whoever makes a large model in a notebook may."""
    samba.session.enable_lazy_param(seed=5)
    return training()


def training_without_optimizer() -> Any:
    return net(), batch(), "sgd"


number = 3
