"""Models whose ``forward`` carries tensors from call to call in plain attributes, as programs write them."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn

ROWS, WIDTH, UNITS, TIMES, RESULTS = 4, 3, 5, 6, 2

Outputs = tuple[Tensor, Tensor]


def draw() -> dict[str, Tensor]:
    """Return one batch: a stretch of a longer sequence."""
    return {"x": torch.randn(TIMES, ROWS, WIDTH), "target": torch.randn(ROWS, RESULTS)}


class Carrying(nn.Module):
    """A head on what a part with state returns."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, UNITS)
        self.head = nn.Linear(UNITS, RESULTS)

    def forward(self, x: Tensor, target: Tensor) -> Outputs:
        y = self.head(self.features(x))
        return F.mse_loss(y, target), y

    def features(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class StatefulLstm(Carrying):
    """Truncated backpropagation through time: a pair of states, detached between stretches."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, UNITS)
        zeros = torch.zeros(1, ROWS, UNITS)
        self.hidden = (zeros, zeros)  # one tensor, twice: states go their own ways

    def features(self, x: Tensor) -> Tensor:
        out, hidden = self.lstm(x, self.hidden)
        self.hidden = tuple(state.detach() for state in hidden)
        return out[-1]


class StatefulCell(Carrying):
    """A cell that is called for every time, and keeps its own state."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRUCell(WIDTH, UNITS)
            self.h = torch.zeros(ROWS, UNITS)

        def forward(self, x: Tensor) -> Tensor:
            self.h = self.gru(x, self.h)
            return self.h

    def __init__(self) -> None:
        super().__init__()
        self.cell = self.Cell()
        self.drop = nn.Dropout(0.0)

    def features(self, x: Tensor) -> Tensor:
        self.cell.h = self.cell.h.detach()
        for step in x:
            h = self.cell(step)
        return self.drop(h)


class TwoLevels(Carrying):
    """State two modules further in, and in the module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Sequential(StatefulCell.Cell()), nn.Tanh())
        self.last = torch.zeros(ROWS, UNITS)

    def features(self, x: Tensor) -> Tensor:
        cell = self.part[0][0]
        cell.h = cell.h.detach()
        y = self.part(x[0]) + 0.5 * self.last
        self.last = y.detach()
        return y


class Queue(Carrying):
    """The features of the last calls, in a queue that is full from the beginning."""

    def __init__(self, make: Callable[[list[Tensor]], object] | None = None) -> None:
        super().__init__()
        zeros = [torch.zeros(ROWS, UNITS) for _ in range(3)]
        self.past = (make or (lambda items: collections.deque(items, maxlen=3)))(zeros)

    def features(self, x: Tensor) -> Tensor:
        y = self.inner(x.mean(0)) + 0.5 * self.past[0]  # the oldest of them alone
        self.past.append(y.detach())
        return y.tanh()


class ListQueue(Queue):
    def __init__(self) -> None:
        super().__init__(list)

    def features(self, x: Tensor) -> Tensor:
        y = super().features(x)
        self.past.pop(0)
        return y


class Mapping(Carrying):
    """Sums in a dict, one by an operator that writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = {"first": torch.zeros(UNITS), "second": torch.ones(UNITS)}

    def features(self, x: Tensor) -> Tensor:
        y = self.inner(x.mean(0))
        self.sums["first"] = 0.9 * self.sums["first"] + 0.1 * y.detach().mean(0)
        with torch.no_grad():
            self.sums["second"].mul_(0.5).add_(y.mean(0))
        return y * self.sums["first"] + self.sums["second"]


class Average(Carrying):
    """An exponential average without gradients, as of targets; and an integer that counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(UNITS)
        self.calls = torch.zeros((), dtype=torch.int64)

    def features(self, x: Tensor) -> Tensor:
        y = self.inner(x.mean(0))
        with torch.no_grad():
            self.calls += 1
            self.mean = self.mean + (y.mean(0) - self.mean) / self.calls
        return y - self.mean


class Holder(Carrying):
    """State in an object of the program's own class."""

    class State:
        def __init__(self) -> None:
            self.logits = [torch.zeros(ROWS, UNITS)]

    def __init__(self) -> None:
        super().__init__()
        self.state = self.State()

    def features(self, x: Tensor) -> Tensor:
        y = self.inner(x.mean(0)) - 0.3 * self.state.logits[0]
        self.state.logits = [y.detach()]
        return y


class BesideNumbers(Carrying):
    """State in an object that keeps a number as well, which only a log reads."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = types.SimpleNamespace()
        self.memory = {"h": torch.zeros(ROWS, UNITS), "calls": 0}

    def features(self, x: Tensor) -> Tensor:
        y = self.inner(x.mean(0)) + 0.5 * self.memory["h"]
        self.memory = {"h": y.detach(), "calls": self.memory["calls"] + 1}
        return y


class Normalized(StatefulLstm):
    """State beside what buffers keep."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(UNITS)

    def features(self, x: Tensor) -> Tensor:
        return self.norm(super().features(x))


class Viewed(StatefulLstm):
    """States that begin as parts of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = tuple(torch.zeros(2, 1, ROWS, UNITS))


MODELS: dict[str, type[Carrying]] = {
    one.__name__: one
    for one in (
        *(StatefulLstm, StatefulCell, TwoLevels, Queue, ListQueue, Mapping, Average, Holder),
        *(BesideNumbers, Normalized, Viewed),
    )
}
"""Every kind of state that stays on the device."""
