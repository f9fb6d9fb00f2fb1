"""Every node of an exported graph knows who reads it, also where ``forward`` switches gradients on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from samba_onnx.export.capture.captured_modules import export_module
from samba_onnx.export.capture.recording_rules import RuleRecorder


def _enabled(net: Any, x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.clone().requires_grad_(True)
        y = net.layer(x)
    return functional.mse_loss(y, x)


def _disabled_around(net: Any, x: Tensor) -> Tensor:
    with torch.no_grad(), torch.enable_grad():
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(net.layer(x).sum(), x)
    return functional.l1_loss(net.layer(x.detach() - slope), x.detach())


def _switched_twice(net: Any, x: Tensor) -> Tensor:
    with torch.set_grad_enabled(True):
        y = net.layer(x)
    y.register_hook(lambda gradient: 2 * gradient)
    with torch.enable_grad():
        z = y * 2
    return functional.smooth_l1_loss(z, x)


class Switching(nn.Module):
    def __init__(self, body: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


@pytest.mark.parametrize("body", [_enabled, _disabled_around, _switched_twice])
def test_readers_are_known(body: Callable[[Any, Tensor], Tensor]) -> None:
    exported = export_module(Switching(body), (torch.randn(2, 3),), {}, RuleRecorder())
    parts = [m for m in exported.graph_module.modules() if isinstance(m, fx.GraphModule)]
    nodes = [node for part in parts for node in part.graph.nodes]
    assert any("mse_loss" in str(n) or "l1_loss" in str(n) for n in nodes)
    for node in nodes:
        assert all(node in source.users for source in node.all_input_nodes), node
