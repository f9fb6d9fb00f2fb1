"""Optimizers without anything to update, which programs make for kinds of parameters that a model lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.sessions import SambaSession

LIKE_TORCH = {
    "SGD": {},
    "Adam": {"betas": (0.9, 0.997)},
    "AdamW": {"betas": (0.9, 0.997), "weight_decay": 0},
}
"""What torch's classes are given to have SambaFlow's defaults."""

IDLE: dict[str, Callable[[Any], Any]] = {
    "no parameters": lambda _: [],
    "an iterator of none": lambda _: iter(()),
    "one without elements": lambda model: [model.hollow],
}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.hollow = nn.Parameter(torch.zeros(0, 3))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.cat([self.frozen(x), self.hollow])
        output = self.layer(rows)
        return nn.functional.mse_loss(output, y), output


@pytest.mark.parametrize("what", IDLE)
@pytest.mark.parametrize("name", LIKE_TORCH)
def test_the_others_step_as_torchs_do(
    name: str, what: str, session: SambaSession, tmp_path: Path
) -> None:
    reference = Model()
    model = Model()
    model.load_state_dict(reference.state_dict())
    samba.from_torch_model_(model)
    make = getattr(samba.optim, name)
    groups = [{"params": [*layer.parameters()]} for layer in (model.layer, model.frozen)]
    optimizers = [make(groups, lr=0.1), make(IDLE[what](model), max_grad_norm=1.0)]
    torchs = getattr(torch.optim, name)(reference.layer.parameters(), lr=0.05, **LIKE_TORCH[name])
    inputs = (samba.randn(4, 3, name="x"), samba.randn(4, 2, name="y"))
    path = session.compile(model, inputs, optimizers, output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, inputs, optimizers, pef=path)
    for _ in range(2):
        session.run(inputs, outputs, hyperparam_dict={"lr": 0.05})
        torchs.zero_grad()
        reference(*(tensor.torch() for tensor in inputs))[0].backward()
        torchs.step()
    session.to_cpu(model, optimizers)
    # Two steps of float32; torch and the device add the four products in another order.
    torch.testing.assert_close(
        model.layer.weight.torch(), reference.layer.weight.detach(), rtol=1e-6, atol=1e-6
    )
    idle = optimizers[1]
    idle.load_state_dict(idle.state_dict())
    idle.zero_grad()
    assert idle.step() is None
    session.to_rdu(model, optimizers)


def test_a_tensor_is_no_list_of_parameters() -> None:
    with pytest.raises(TypeError, match="iterable of Tensors"):
        samba.optim.SGD(torch.zeros(2), lr=0.1)
