"""What a training step writes besides gradients: buffers, and weights that the forward changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.errors import UsageError
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from samba_onnx.export.programs.training_steps import optimizer_records, with_optimizers
from samba_onnx.optim import AdamW
from samba_onnx.program.kinds import SymbolKind
from tests.export.training_runs import Machine, compare

ROWS, WIDTH = 6, 4


class Regression(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.outer = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return functional.mse_loss(self.outer(self.layer(x)), target)


def _numbers() -> tuple[Tensor, Tensor]:
    return torch.randn(ROWS, WIDTH), torch.randn(ROWS, 2)


def _indices() -> tuple[Tensor, Tensor]:
    return torch.randint(0, 5, (ROWS,)), torch.randn(ROWS, 2)


def _follow(module: nn.Module, batches: list[Any]) -> None:
    """Run batches without an optimizer, and compare each with torch, members included."""
    machine = Machine(export_training(module, batches[0]))
    machine.load(module)
    for batch in batches:
        machine.give(batch)
        machine.run()
        compare(machine, module, batch)
        module(*batch)  # moves buffers and weights on
        for name, path in machine.exported.members.items():
            expected = {**dict(module.named_parameters()), **dict(module.named_buffers())}[path]
            torch.testing.assert_close(machine[name], expected.detach(), msg=path)


@pytest.mark.parametrize("momentum", [None, 0.1])
@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.SyncBatchNorm])
def test_batch_normalisation_follows_its_averages(kind: Any, momentum: float | None) -> None:
    torch.manual_seed(0)
    _follow(Regression(kind(WIDTH, momentum=momentum)), [_numbers() for _ in range(3)])


@pytest.mark.parametrize(
    "table",
    [
        nn.Embedding(5, WIDTH, max_norm=1.0),
        nn.Embedding(5, WIDTH, max_norm=1.0, norm_type=1.0, padding_idx=1),
        nn.Sequential(nn.Unflatten(0, (ROWS, 1)), nn.EmbeddingBag(5, WIDTH, max_norm=0.5)),
    ],
    ids=["2", "1", "bag"],
)
def test_rows_that_are_too_long_are_shortened_in_the_table(table: nn.Module) -> None:
    torch.manual_seed(0)
    _follow(Regression(table), [_indices() for _ in range(3)])


def test_a_table_is_written_by_inference_too() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(5, WIDTH, max_norm=1.0)
    before = copy.deepcopy(table)
    machine = Machine(export_inference(table, (torch.tensor([3, 3]),)))
    machine.load(table)
    machine.give((torch.tensor([3, 3]),))
    machine.run()
    assert torch.equal(table.weight, before.weight)
    before(torch.tensor([3, 3]))
    torch.testing.assert_close(machine["embedding__weight"], before.weight.detach())
    assert machine.program.residents["embedding__weight__written"] is SymbolKind.WEIGHT


def test_a_written_weight_has_no_second_copy_to_be_trained_from() -> None:
    model = Regression(nn.Embedding(5, WIDTH, max_norm=1.0)).bfloat16()
    x, target = _indices()
    program = export_training(model, (x, target.bfloat16())).program
    optimizer = AdamW(model.parameters(), fp32_params=True)
    with pytest.raises(UsageError, match=r"'regression__layer__weight' .* float32 copy"):
        with_optimizers(program, optimizer_records(model, [optimizer]))
