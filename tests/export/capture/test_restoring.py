"""A module that was run within the block has everything back after it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from samba_onnx.export.capture.restoring import members_replaced, restored
from tests.export.module_state import changes, state_of


class Restless(nn.Module):
    """Changes whatever a module can have when it is run."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(()))
        self.plain = torch.ones(2)
        self.calls = 0
        self.seen: list[int] = [1]
        self.cache: dict[str, Any] = {"kept": 1}
        self.known = {1}

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(self.calls)
        self.cache.clear()
        self.cache["positions"] = x
        self.known.add(2)
        self.steps = self.steps + 1
        self.plain.add_(1)
        self.late = x
        self.register_buffer("table", x)
        self.extra = nn.Linear(2, 2)
        self.layer.weight.requires_grad_(False)
        self.layer.eval()
        self.layer.register_forward_hook(lambda *_: None)
        self.layer.bias = nn.Parameter(torch.zeros(2))
        random.random()
        noise = torch.rand(()) + np.random.rand()
        result: Tensor = self.layer(x) + noise
        return result


def test_whatever_a_module_changes_is_put_back() -> None:
    module = Restless()
    before = state_of(module)
    with restored(module):
        module(torch.ones(1, 2))
        assert len(changes(before, state_of(module))) > 12
    assert changes(before, state_of(module)) == []


def test_a_module_that_fails_has_everything_back_too() -> None:
    module = Restless()
    before = state_of(module)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), restored(module):
        module(torch.ones(1, 3))
    assert changes(before, state_of(module)) == []


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_modules_run_with_the_members_of_the_block(make: type[nn.RNNBase]) -> None:
    module = make(2, 3)
    before = list(module._flat_weights)
    with members_replaced(module, lambda tensor: nn.Parameter(torch.zeros_like(tensor))):
        assert not module(torch.ones(1, 1, 2))[0].any()
    assert all(a is b for a, b in zip(module._flat_weights, before, strict=True))
    assert module(torch.ones(1, 1, 2))[0].any()


def test_what_is_shared_has_one_counterpart_and_comes_back_everywhere() -> None:
    layer = nn.Linear(2, 2)
    module = nn.Sequential(layer, nn.Sequential(layer), nn.Linear(2, 2))
    module[2].weight = layer.weight
    own = dict(module.named_parameters(remove_duplicate=False))
    calls: list[Tensor] = []

    def counterpart(tensor: Tensor) -> Tensor:
        calls.append(tensor)
        return nn.Parameter(tensor.detach() * 2)

    with members_replaced(module, counterpart):
        assert module[2].weight is layer.weight
        assert layer.weight is not own["0.weight"]
        assert torch.equal(layer.weight, own["0.weight"] * 2)
    assert len(calls) == 3
    for path, parameter in module.named_parameters(remove_duplicate=False):
        assert parameter is own[path]
