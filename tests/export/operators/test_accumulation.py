"""Gradients of a table that is looked up and multiplied with, in one program."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.program.kinds import SectionType
from tests.export.training_models import trained


class Tied(nn.Module):
    """A language model of one table."""

    def __init__(self, padding: int | None) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 4, padding_idx=padding)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = torch.tanh(self.table(tokens)) @ self.table.weight.T
        return functional.cross_entropy(scores, tokens.roll(1))


@pytest.mark.parametrize("padding", [None, 3])
def test_rows_are_added_to_the_other_gradient(padding: int | None) -> None:
    """Compared with torch; nothing reads zeros of the table's size."""
    torch.manual_seed(0)
    tokens = torch.tensor([3, 1, 1, 0, 3, 10, 3, 2])
    machine = trained(Tied(padding), (tokens,))
    (backward,) = [p for p in machine.program.parts if p.type is SectionType.BCKWD]
    (gradient,) = [v for v in backward.model.graph.outputs if v.name == "tied__table__weight__grad"]
    scatter = gradient.producer()
    assert scatter is not None
    assert scatter.op_type == "ScatterND"
    assert scatter.inputs[0] is not None
    maker = scatter.inputs[0].producer()
    assert maker is not None
    assert maker.op_type != "Expand"
