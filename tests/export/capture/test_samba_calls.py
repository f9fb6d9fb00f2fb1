"""Modules that call SambaFlow's functions on tensors in ``forward``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.errors import SambaError
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training

BODIES: dict[str, Callable[[Tensor], Tensor]] = {
    "to_torch": lambda x: samba.to_torch(x) * 2,
    "to_torch of None": lambda x: x if samba.to_torch(None) is None else -x,
    "from_torch_tensor": lambda x: samba.from_torch_tensor(x * 2, name="twice"),
    "there and back": lambda x: samba.to_torch(samba.from_torch_tensor(x, name="again")) + 1,
    "from_torch": lambda x: samba.from_torch(x.relu()),
    "constructor": lambda x: samba.SambaTensor(x.relu(), name="positive"),
    "constant": lambda x: x + samba.from_torch_tensor(torch.ones(4), name="ones"),
    "factories": lambda x: x * samba.ones(3, 4) + samba.zeros(4, dtype=torch.float32),
    "empty": lambda x: samba.empty(3, 4).copy_(x) * 3,
    "shape only": lambda x: x + samba.SambaTensor(shape=(4,), dtype=torch.float32).fill_(2.0),
    "named dict": lambda x: samba.from_named_dict({"a": x})["a"].sigmoid(),
    "torch": lambda x: samba.from_torch_tensor(x).torch() - 1,
    "torch_tensor": lambda x: samba.from_torch_tensor(x).torch_tensor().exp(),
    "int16 positions": lambda x: x[:, samba.from_torch_tensor(torch.tensor([2, 0])).short()],
}


class Model(nn.Module):
    def __init__(self, body: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return samba.from_torch_tensor(self.body(self.linear(x)), name="result")


@pytest.mark.parametrize("is_converted", [True, False])
@pytest.mark.parametrize("name", BODIES)
def test_forward(name: str, is_converted: bool) -> None:
    model = Model(BODIES[name]).eval()
    if is_converted:
        samba.from_torch_model_(model)
    inputs = (samba.randn(3, 4, name="x"),)
    comparison = compare_with_eager(model, inputs, export_inference(model, inputs))
    assert not comparison.notes


@pytest.mark.parametrize("name", BODIES)
def test_backward(name: str) -> None:
    model = Model(BODIES[name])
    samba.from_torch_model_(model)
    inputs = (samba.randn(3, 4, name="x"),)
    comparison = compare_training(model, inputs, export_training(model, inputs))
    assert not comparison.notes


def test_outside_they_are_samba_tensors() -> None:
    model = Model(BODIES["from_torch_tensor"])
    export_inference(model, (torch.zeros(3, 4),))
    assert isinstance(model(torch.zeros(3, 4)), samba.SambaTensor)


OWN = samba.from_torch_tensor(torch.tensor([1.0, -2.0, 3.0, 0.5]), name="own")


class Keeping(nn.Module):
    """Reads SambaTensors that are neither inputs nor members, one of which it keeps when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.shift = samba.from_torch_tensor(torch.arange(4.0), name="shift")
        self.sum: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.sum is None:
            self.sum = self.linear.weight.detach().sum(0)
        hidden: Tensor = self.linear(x) * OWN + self.shift + self.sum
        return hidden.square().mean() * self.shift.max().item()


@pytest.mark.parametrize("trains", [False, True])
def test_tensors_of_the_modules_own(trains: bool) -> None:
    model = Keeping().train(trains)
    samba.from_torch_model_(model)
    inputs = (samba.randn(3, 4, name="x"),)
    model(*inputs)
    assert isinstance(model.sum, samba.SambaTensor)
    if trains:
        comparison = compare_training(model, inputs, export_training(model, inputs))
    else:
        comparison = compare_with_eager(model, inputs, export_inference(model, inputs))
    assert not comparison.notes


class Counting(Keeping):
    """Writes to a SambaTensor of its own, which no run could bring back."""

    def forward(self, x: Tensor) -> Tensor:
        self.shift.add_(1)
        return super().forward(x)


def test_own_tensors_without_values() -> None:
    model = Keeping()
    model.shift = samba.SambaTensor(shape=(4,), dtype=torch.float32, name="empty")
    with pytest.raises(SambaError, match="empty"):
        export_inference(model, (torch.randn(3, 4),))


def test_own_tensors_that_are_written() -> None:
    model = Counting()
    before = model.shift.tolist()
    with pytest.raises(SambaError, match="register it with register_buffer"):
        export_inference(model, (torch.randn(3, 4),))
    assert model.shift.tolist() == before
