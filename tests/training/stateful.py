"""Models whose training changes more than weights, or whose modules are put together unusually."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
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


def every_loss_that_ignores() -> dict[str, Callable[[str], nn.Module]]:
    """Return the losses of torch.nn that can ignore targets, by name; made by their reduction."""
    losses: dict[str, Callable[[str], nn.Module]] = {}
    for name in torch.nn.modules.loss.__all__:
        make = getattr(nn, name)
        parameters = inspect.signature(make).parameters
        if "ignore_index" in parameters:
            sizes = {"in_features": RESULTS, "num_classes": RESULTS, "ignore_index": -100}
            options = {name: size for name, size in sizes.items() if name in parameters}
            losses[name] = functools.partial(_loss, make, **options)
    weight = torch.tensor([1.0, 2.0, 0.5, 0.0])
    losses["CrossEntropyLoss of weights"] = functools.partial(
        _loss, nn.CrossEntropyLoss, weight=weight
    )
    losses["CrossEntropyLoss smoothed"] = functools.partial(
        _loss, nn.CrossEntropyLoss, label_smoothing=0.2, ignore_index=3
    )
    losses["NLLLoss of weights"] = functools.partial(
        _loss, nn.NLLLoss, weight=weight, ignore_index=-1
    )
    return losses


def _loss(make: Callable[..., nn.Module], reduction: str, **options: object) -> nn.Module:
    return make(reduction=reduction, **options)


class Choice(nn.Module):
    """A loss of a choice among classes, of rows or of places in images."""

    def __init__(self, loss: nn.Module, images: bool = False) -> None:
        super().__init__()
        make = nn.Conv1d if images else nn.Linear
        self.scores = make(WIDTH, RESULTS, 1) if images else make(WIDTH, RESULTS)
        self.loss = loss

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        y = self.scores(x)
        taken = y.log_softmax(1) if isinstance(self.loss, nn.NLLLoss) else y
        return self.loss(taken, target), y


def ignored(loss: nn.Module, images: bool) -> Callable[[], dict[str, Tensor]]:
    """Return what draws batches, in every second of which all targets are ignored."""
    order = itertools.cycle([False, True])

    def batch() -> dict[str, Tensor]:
        shape = (ROWS, 3) if images else (ROWS,)
        target = torch.randint(0, RESULTS - 1, shape)
        every = torch.full(shape, loss.ignore_index)
        x = torch.randn(ROWS, WIDTH, 3) if images else torch.randn(ROWS, WIDTH)
        return {"x": x, "target": every if next(order) else target}

    return batch


class Attending(nn.Module):
    """Attention that drops some of its weights."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(UNITS, 1, dropout=rate, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(2, -1, UNITS)
        return self.attention(rows, rows, rows, need_weights=False)[0].reshape(x.shape)


class Recurring(nn.Module):
    """Recurrent layers that drop what passes between them."""

    def __init__(self, make: type[nn.RNNBase], rate: float) -> None:
        super().__init__()
        self.layers = make(UNITS, UNITS, num_layers=2, dropout=rate)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.reshape(4, -1, UNITS))[0].reshape(x.shape)


class Native(nn.Module):
    """The operator that also returns its mask."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        kept, mask = torch.native_dropout(x, self.rate, True)
        return kept + x * mask


def reshaped(rank: int, layer: nn.Module, places: int = 1) -> nn.Module:
    """Return a layer of images of a rank as one of rows.

    Args:
        rank: Of what the layer is given.
        layer: Keeps the shape of what it is given.
        places: How many places the first spatial dimension has; all have the row's numbers.
    """
    return layer if rank <= 2 else Reshaped(layer, (*[1] * (rank - 3), places))


class Reshaped(nn.Module):
    """A layer of images that are made of rows."""

    def __init__(self, layer: nn.Module, places: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = layer
        shares = torch.linspace(0.5, 1.5, math.prod(places)).reshape(places)
        self.register_buffer("shares", shares)

    def forward(self, x: Tensor) -> Tensor:
        images = x.reshape(*x.shape, *[1] * self.shares.dim()) * self.shares
        return self.layer(images).flatten(2).mean(2)


DROPOUTS: dict[str, Callable[[float], nn.Module]] = {
    "Dropout": nn.Dropout,
    "Dropout in place": lambda rate: nn.Dropout(rate, inplace=True),
    "native_dropout": Native,
    "Dropout1d": lambda rate: reshaped(3, nn.Dropout1d(rate)),
    "Dropout2d": lambda rate: reshaped(4, nn.Dropout2d(rate)),
    "Dropout3d": lambda rate: reshaped(5, nn.Dropout3d(rate)),
    "AlphaDropout": nn.AlphaDropout,
    "FeatureAlphaDropout": lambda rate: reshaped(4, nn.FeatureAlphaDropout(rate)),
    "MultiheadAttention": Attending,
    "LSTM": lambda rate: Recurring(nn.LSTM, rate),
    "GRU": lambda rate: Recurring(nn.GRU, rate),
    "RNN": lambda rate: Recurring(nn.RNN, rate),
}
"""Whatever of torch.nn drops values, by a rate; each maps (rows, UNITS) to the same shape."""
