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


class Sampling(nn.Module):
    """Learns what is sampled, and where: also on the borders and exactly between elements."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        places = torch.tensor([-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 0.3])
        ones = [1] * (len(sizes) - 1)
        grid = places[torch.randint(len(places), (1, 60, *ones, len(sizes)))]
        self.value = nn.Parameter(torch.randn(1, 2, *sizes))
        self.grid = nn.Parameter(grid)

    def forward(self, mode: str, padding: str, align: bool) -> Tensor:
        found = functional.grid_sample(self.value, self.grid, mode, padding, align)
        return found.sin().sum()


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize(
    ("mode", "sizes"),
    [("bilinear", (4, 5)), ("nearest", (4, 5)), ("bicubic", (4, 5)), ("bilinear", (4, 5, 3))],
)
def test_sampling(mode: str, sizes: tuple[int, ...], align: bool, padding: str) -> None:
    module = Sampling(*sizes)
    # torch's gradient of the places of nearest elements is zero; ours is left out.
    module.grid.requires_grad_(mode != "nearest")
    trained(module, {"mode": mode, "padding": padding, "align": align})


class Distances(nn.Module):
    """Learns points, some of which are equally far apart in several directions."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randint(-2, 3, (6, 4)).float())

    def forward(self, others: Tensor) -> Tensor:
        norm = float("inf")
        own = functional.pdist(self.points, norm).sin().sum()
        return own + torch.cdist(self.points, others, norm).cos().sum()


def test_distances_with_several_largest_differences() -> None:
    trained(Distances(), (torch.randint(-2, 3, (5, 4)).float(),))


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
