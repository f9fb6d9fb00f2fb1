"""Every loss of torch, in every way in which a module can make one and return its prediction too."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS, CLASSES = 6, 4

Operands = Callable[[Tensor, Tensor, Tensor], tuple[Any, ...]]
"""From prediction, target and labels to the arguments of a loss."""


def _several_labels(labels: Tensor) -> Tensor:
    return functional.pad(labels.unsqueeze(1), (0, CLASSES - 1), value=-1)


OPERANDS: Final[Mapping[str, Operands]] = {
    "L1Loss": lambda o, y, _: (o, y),
    "NLLLoss": lambda o, _, c: (o.log_softmax(-1), c),
    "NLLLoss2d": lambda o, _, c: (
        o.log_softmax(-1).reshape(ROWS, CLASSES, 1, 1),
        c.reshape(ROWS, 1, 1),
    ),
    "PoissonNLLLoss": lambda o, y, _: (o, y.abs()),
    "GaussianNLLLoss": lambda o, y, _: (o, y, y.exp()),
    "KLDivLoss": lambda o, y, _: (o.log_softmax(-1), y.softmax(-1)),
    "MSELoss": lambda o, y, _: (o, y),
    "BCELoss": lambda o, y, _: (o.sigmoid(), y.sigmoid()),
    "BCEWithLogitsLoss": lambda o, y, _: (o, y.sigmoid()),
    "HingeEmbeddingLoss": lambda o, y, _: (o, y.sign()),
    "MultiLabelMarginLoss": lambda o, _, c: (o, _several_labels(c)),
    "SmoothL1Loss": lambda o, y, _: (o, y),
    "HuberLoss": lambda o, y, _: (o, y),
    "SoftMarginLoss": lambda o, y, _: (o, y.sign()),
    "CrossEntropyLoss": lambda o, _, c: (o, c),
    "LinearCrossEntropyLoss": lambda o, _, c: (o, c),
    "MultiLabelSoftMarginLoss": lambda o, y, _: (o, y.sigmoid()),
    "CosineEmbeddingLoss": lambda o, y, c: (o, y, (c * 2 - 3).sign()),
    "MarginRankingLoss": lambda o, y, _: (o[:, 0], y[:, 0], y[:, 1].sign()),
    "MultiMarginLoss": lambda o, _, c: (o, c),
    "TripletMarginLoss": lambda o, y, _: (o, y, y.roll(1, 0)),
    "TripletMarginWithDistanceLoss": lambda o, y, _: (o, y, y.roll(1, 0)),
    "CTCLoss": lambda o, _, c: (
        o.reshape(ROWS // 2, 2, CLASSES).log_softmax(-1),
        (c[:2] % (CLASSES - 1) + 1).unsqueeze(1),
        (ROWS // 2, ROWS // 2 - 1),
        (1, 1),
    ),
}
_ARGUMENTS: Final[Mapping[str, tuple[Any, ...]]] = {"LinearCrossEntropyLoss": (CLASSES, CLASSES)}
REDUCTIONS: Final = ("mean", "sum", "none")
_MORE_REDUCTIONS: Final[Mapping[str, tuple[str, ...]]] = {"KLDivLoss": ("batchmean",)}
WAYS: Final = ("submodule", "made inside forward", "function")
PLACES: Final[Mapping[str, tuple[int, Callable[[Tensor, Tensor], Any]]]] = {
    "beside": (0, lambda loss, o: (loss, o)),
    "before": (1, lambda loss, o: (o, loss)),
    "squeezed": (0, lambda loss, o: (loss, o.unsqueeze(0).squeeze(0))),
    "viewed": (0, lambda loss, o: (loss, o.view(-1))),
    "by name": (1, lambda loss, o: {"prediction": o, "value": loss}),
}
"""Position of the loss among the outputs, and how it is returned with the prediction."""


def function_of(name: str) -> Callable[..., Tensor]:
    """The function that a class of torch's losses calls, read off its source."""
    loss: Any = getattr(nn, name, None) or getattr(nn.modules.loss, name)
    forward = next(vars(one)["forward"] for one in loss.__mro__ if "forward" in vars(one))
    (called,) = set(re.findall(r"\bF\.(\w+)\(", inspect.getsource(forward)))
    return getattr(functional, called)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class LossCase:
    """A module that makes one loss in one way."""

    loss: str
    way: str
    reduction: str
    place: str

    def __str__(self) -> str:
        return f"{self.loss}-{self.way}-{self.reduction}-{self.place}".replace(" ", "_")

    @property
    def position(self) -> int:
        """Where the loss is among the outputs."""
        return PLACES[self.place][0]

    def module(self) -> nn.Module:
        return Predicting(self)


class Predicting(nn.Module):
    """A prediction and its loss."""

    def __init__(self, case: LossCase) -> None:
        super().__init__()
        self.case = case
        self.layer = nn.Linear(5, CLASSES)
        self.classes = nn.Parameter(torch.randn(CLASSES, CLASSES))
        if case.way == "submodule":
            self.criterion = self.made()

    def made(self) -> nn.Module:
        loss: Any = getattr(nn.modules.loss, self.case.loss)
        module: nn.Module = loss(*_ARGUMENTS.get(self.case.loss, ()), reduction=self.case.reduction)
        return module

    def forward(self, value: Tensor, target: Tensor, labels: Tensor) -> Any:
        prediction = self.layer(value)
        operands = OPERANDS[self.case.loss](prediction, target, labels)
        if self.case.way == "submodule":
            loss = self.criterion(*operands)
        elif self.case.way == "function":
            if self.case.loss == "LinearCrossEntropyLoss":
                operands = (operands[0], self.classes, operands[1])
            loss = function_of(self.case.loss)(*operands, reduction=self.case.reduction)
        else:
            loss = self.made()(*operands)
        return PLACES[self.case.place][1](loss, prediction)


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(ROWS, 5), torch.randn(ROWS, CLASSES), torch.randint(0, CLASSES, (ROWS,))


def cases() -> Iterator[LossCase]:
    """The whole table: but for modules with weights of their own, which no forward can make."""
    for name, way, place in itertools.product(OPERANDS, WAYS, PLACES):
        if (name, way) != ("LinearCrossEntropyLoss", "made inside forward"):
            for reduction in (*REDUCTIONS, *_MORE_REDUCTIONS.get(name, ())):
                yield LossCase(name, way, reduction, place)
