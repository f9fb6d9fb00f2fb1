"""No network that is exported rightly is refused, however many digits float32 loses in it."""

from __future__ import annotations

import pytest
import torch

from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from tests.comparing.eager.networks import (
    CNNS,
    SEQUENCES,
    Segmentation,
    as_trained,
    images,
    tokens,
)

NETWORKS = {**CNNS, **SEQUENCES}


def compare(network: str, seed: int, trained: bool, size: int, batch: int) -> None:
    torch.manual_seed(seed)
    module = NETWORKS[network]().train()
    if trained:
        as_trained(module, seed)
    inputs = images(size, batch) if network in CNNS else tokens()
    comparison = compare_training(module, inputs, export_training(module, inputs))
    parameters = sum(parameter.requires_grad for parameter in module.parameters())
    assert sum(name.endswith("__grad") for name in comparison.errors) == parameters


@pytest.mark.parametrize("network", ["densenet", "recurrent", "transformer"])
def test_networks_in_training(network: str) -> None:
    compare(network, 0, True, 16, 4)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize("network", sorted(CNNS))
def test_more_networks_in_training(network: str, trained: bool, seed: int) -> None:
    compare(network, seed, trained, 8 if seed == 3 else 32, 8)


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
def test_segmentation_at_inference(trained: bool) -> None:
    torch.manual_seed(0)
    module, (x, _) = Segmentation().eval(), images(64, 1)
    if trained:
        as_trained(module, 0)
    comparison = compare_with_eager(module, (x,), export_inference(module, (x,)))
    assert len(comparison.errors) == 1


class Edge(torch.nn.Module):
    """Sums that are zero but for roundings, and a ReLU that asks for their signs."""

    def __init__(self) -> None:
        super().__init__()
        half = torch.randn(64, 100)
        self.layer = torch.nn.Linear(200, 64, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.cat([half, -half], 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(torch.cat([x, x], 1))).sum()


def test_what_hangs_on_the_last_bit_is_no_mismatch() -> None:
    torch.manual_seed(0)
    module, x = Edge(), torch.randn(8, 100)
    errors = compare_training(module, (x,), export_training(module, (x,))).errors
    assert errors["edge__layer__weight__grad"] > 0.1
