"""Models whose training changes more than weights, or whose modules are put together unusually."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn

from tests.training.trajectory import Case, sgd

ROWS, WIDTH, UNITS, RESULTS = 8, 6, 5, 4


class Regression(nn.Module):
    """A loss of what a network makes of ``x``."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(*layers)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        y = self.net(x)
        return F.mse_loss(y, target), y


def draw() -> dict[str, Tensor]:
    return {"x": torch.randn(ROWS, WIDTH), "target": torch.randn(ROWS, RESULTS)}


def around(middle: Callable[[], nn.Module]) -> Callable[[], Regression]:
    """Return what makes a network with a layer between two linear ones."""
    return lambda: Regression(
        nn.Linear(WIDTH, UNITS), middle(), nn.Tanh(), nn.Linear(UNITS, RESULTS)
    )


def case(
    name: str,
    build: Callable[[], nn.Module],
    inputs: Callable[[], dict[str, Tensor]] = draw,
    steps: int = 4,
) -> Case:
    """Return a case that is trained by SGD with momentum and weight decay."""
    return Case(name, build, inputs, sgd, steps=steps)


class InSeveralPlaces(nn.Module):
    """One layer under three names, one of them in a container."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
        self.first = layer
        self.rest = nn.Sequential(layer, nn.Tanh(), layer)
        self.outer = nn.Linear(WIDTH, RESULTS)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        y = self.outer(self.rest(self.first(x)))
        return F.mse_loss(y, target), y


class FrozenStatistics(Regression):
    """Fine-tuning with the statistics that there are."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, UNITS), nn.BatchNorm1d(UNITS), nn.Linear(UNITS, RESULTS))
        nn.init.normal_(self.net[1].running_mean)  # type: ignore[arg-type]

    def train(self, mode: bool = True) -> FrozenStatistics:
        super().train(mode)
        self.net[1].eval()
        return self


class InEvaluation(FrozenStatistics):
    """A model as ``from_pretrained`` returns it; its dropout does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.net.insert(0, nn.Dropout(0.5))

    def train(self, mode: bool = True) -> InEvaluation:
        nn.Module.train(self, False)
        return self


STRUCTURES = [
    case("in several places", InSeveralPlaces),
    case("frozen statistics", FrozenStatistics),
    case("in evaluation", InEvaluation),
]
