"""Optimizers with every combination of flags, and parameters for them."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

from samba_onnx.optim import SGD, Adam, AdamW

SHAPES: Final = ((16, 9), (17,), (), (4, 3, 3, 3), (1,))

SGD_CASES: Final[list[dict[str, Any]]] = [
    {},
    {"weight_decay": 0.02},
    {"maximize": True, "weight_decay": 0.02},
    *(
        {"momentum": 0.9, "dampening": dampening, "weight_decay": decay, "maximize": maximize}
        for dampening in (0.0, 0.3)
        for decay in (0.0, 0.02)
        for maximize in (False, True)
    ),
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.02, "maximize": True},
]
ADAM_CASES: Final[list[dict[str, Any]]] = [
    {"weight_decay": decay, "amsgrad": amsgrad, "maximize": maximize}
    for decay in (0.0, 0.1)
    for amsgrad in (False, True)
    for maximize in (False, True)
] + [{"betas": (0.8, 0.95), "eps": 1e-4}, {"betas": (0.0, 0.9)}, {"betas": (0.99, 0.9999)}]
CASES: Final[list[tuple[Any, Any, dict[str, Any]]]] = [
    (SGD, torch.optim.SGD, case) for case in SGD_CASES
] + [
    (ours, theirs, case)
    for ours, theirs in ((Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW))
    for case in ADAM_CASES
]


def parameters(dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return {
        f"model__w{i}": nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        for i, shape in enumerate(SHAPES)
    }
