"""Weights that are normalised, against torch's own ``weight_norm``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions import SambaSession


class LogReg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 2)
        self.lin_layer = nn.Linear(16, 3, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.lin_layer(self.conv(x).flatten(1))
        return nn.functional.cross_entropy(output, y), output


def test_magnitude_and_direction_are_trained_as_by_torch(tmp_path: Path) -> None:
    session: SambaSession = samba.session
    session.reset()
    reference, model = LogReg(), LogReg()
    model.load_state_dict(reference.state_dict())
    samba.from_torch_model_(model)
    for layer, torchs in ((model.conv, reference.conv), (model.lin_layer, reference.lin_layer)):
        parametrizations.weight_norm(torchs)
        samba.utils.weight_norm_(layer)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    steps = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    inputs = (samba.randn(4, 1, 3, 5, name="image"), samba.randint(3, (4,), name="label"))
    pef = session.compile(model, inputs, optimizer, output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=pef)
    for _ in range(2):
        session.run(inputs, outputs)
        steps.zero_grad()
        reference(*(tensor.torch() for tensor in inputs))[0].backward()
        for name, parameter in reference.named_parameters():
            # Both are sums of a few float32 numbers, in another order.
            torch.testing.assert_close(
                model.get_parameter(name).sn_grad, parameter.grad, rtol=1e-5, atol=1e-6
            )
        steps.step()
    magnitude, direction = session.get_tensors_by_name(
        ["logreg__lin_layer__weight_magnitude", "logreg__lin_layer__weight_direction"]
    )
    expected = reference.lin_layer.parametrizations["weight"]
    torch.testing.assert_close(magnitude.torch(), expected.original0.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(direction.torch(), expected.original1.detach(), rtol=1e-5, atol=1e-6)
    session.to_cpu(model)
    torch.testing.assert_close(
        model.lin_layer.weight.torch(), reference.lin_layer.weight, rtol=1e-5, atol=1e-6
    )
    session.reset()


@pytest.mark.parametrize(
    ("layer", "words"),
    [(nn.ReLU(), "ReLU with no weight of its own"), (nn.Linear(2, 2), "that was not converted")],
)
def test_what_has_no_weight_to_take_apart_is_refused(layer: nn.Module, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        samba.utils.weight_norm_(layer)


def test_a_weight_is_taken_apart_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    samba.from_torch_model_(model)
    samba.utils.weight_norm_(model[0])
    with pytest.raises(UsageError, match="no weight of its own"):
        samba.utils.weight_norm_(model[0])
