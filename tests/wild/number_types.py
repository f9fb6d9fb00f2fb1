"""Heads and islands that compute in types of numbers that an RDU lacks, as torch's exporters write them."""

from __future__ import annotations

import functools
from typing import Any

import onnx

from tests.wild.torch_exports import DYNAMO, SCRIPT, written


def _detection(*, dynamo: bool) -> onnx.ModelProto:
    import torch

    class Head(torch.nn.Module):
        """Scores of 30 queries and 7 classes: the best five, with their boxes, as DETR selects them."""

        def __init__(self) -> None:
            super().__init__()
            self.classes, self.boxes = torch.nn.Linear(16, 7), torch.nn.Linear(16, 4)
            self.last = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            scores, best = torch.topk(self.classes(x).sigmoid().flatten(1), 5, dim=1)
            rows = (best // 7).unsqueeze(-1).repeat(1, 1, 4)
            boxes = torch.gather(self.boxes(x).sigmoid(), 1, rows)
            return scores, best % 7, self.last(boxes)

    torch.manual_seed(0)
    return written(Head().eval(), (torch.randn(1, 30, 16),), dynamo=dynamo, opset=18)


def _heat(*, dynamo: bool) -> onnx.ModelProto:
    import torch

    class Heat(torch.nn.Module):
        """The row and column of the largest number of a map, as of a landmark."""

        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Conv2d(3, 1, 3, padding=1)
            self.last = torch.nn.Linear(2, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            best = self.map(x).flatten(1).argmax(-1)
            return self.last(torch.stack([best // 9, best % 9], -1).float())

    torch.manual_seed(0)
    return written(Heat().eval(), (torch.randn(2, 3, 8, 9),), dynamo=dynamo, opset=18)


def _doubled(*, dynamo: bool) -> onnx.ModelProto:
    import torch

    class Doubled(torch.nn.Module):
        """A scale of float64 between two layers, and a mean of float64, which float32 would round."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = (self.first(x).double() * 0.1).float()
            mean = hidden.double().mean(-1).float()
            return self.last(hidden), mean

    torch.manual_seed(0)
    return written(Doubled().eval(), (torch.randn(4, 16),), dynamo=dynamo, opset=18)


_BUILDERS: dict[str, Any] = {"detection_head": _detection, "heat_map": _heat, "float64": _doubled}


def written_by_name(name: str) -> onnx.ModelProto:
    """Return what torch's newer exporter makes of one of them.

    Args:
        name: ``detection_head``, ``heat_map`` or ``float64``.
    """
    proto: onnx.ModelProto = _BUILDERS[name](dynamo=True)
    return proto


for _name, _build in _BUILDERS.items():
    DYNAMO.add(_name, functools.partial(_build, dynamo=True))
    SCRIPT.add(_name, functools.partial(_build, dynamo=False))
