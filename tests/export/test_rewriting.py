"""Operators that are written with others before they are differentiated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.export.training_models import trained


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


class Reflections(nn.Module):
    """Multiplies by an orthogonal matrix that is given as reflections."""

    def __init__(self, left: bool, transpose: bool) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(2, 5, 3))
        self.factors = nn.Parameter(torch.randn(2, 3))
        self.options = {"left": left, "transpose": transpose}

    def forward(self, value: Tensor) -> Tensor:
        turned = torch.ormqr(self.vectors, self.factors, value, **self.options)
        return turned.sin().mean()


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_reflections(left: bool, transpose: bool) -> None:
    trained(Reflections(left, transpose), (torch.randn(2, 5, 4) if left else torch.randn(2, 4, 5),))


@pytest.mark.skipif(not hasattr(functional, "linear_cross_entropy"), reason="torch is older")
@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"reduction": "sum", "ignore_index": 1},
        {"reduction": "none", "ignore_index": 1},
        {"weight": torch.tensor([0.5, 2.0, 1.0, 0.25])},
    ],
)
def test_a_loss_of_a_linear_layer_in_pieces(keywords: dict[str, Any]) -> None:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    options = LinearCrossEntropyOptions(allow_retain_graph=True, batch_chunk_size=2)

    class Classifier(nn.Linear):
        def forward(self, value: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            loss = functional.linear_cross_entropy(
                value, self.weight, target, linear_bias=self.bias, options=options, **keywords
            )
            return super().forward(value), loss

    machine = trained(Classifier(3, 4), (torch.randn(6, 3), torch.tensor([0, 3, 1, 2, 2, 1])))
    assert machine.losses == [machine.exported.outputs[1]]
