"""A check has values of its own where inputs carry no meaning, and refuses wrong numbers all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.errors import BranchWarning, ExportMismatchError
from samba_onnx.export.operators import registry
from samba_onnx.export.operators.registry import Context
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from samba_onnx.tensor import SambaTensor
from samba_onnx.workflows.checking.inference import compare_with_eager
from samba_onnx.workflows.checking.outcome import Comparison, ComparisonOutcome
from samba_onnx.workflows.checking.training import compare_training


def compare(module: nn.Module, inputs: Any, trains: bool) -> Comparison:
    if trains:
        return compare_training(module, inputs, export_training(module, inputs))
    return compare_with_eager(module, inputs, export_inference(module, inputs))


class Tokens(nn.Module):
    """Looks up 10 tokens and 6 positions, and scores 4 classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = nn.Embedding(10, 8), nn.Embedding(6, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, ids: Tensor, positions: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.head((self.tokens(ids) + self.positions(positions)).mean(1))
        return functional.cross_entropy(scores, label), scores


def integers(*values: int) -> tuple[Tensor, ...]:
    sizes = ((2, 5), (2, 5), (2,))
    return tuple(torch.full(size, value) for size, value in zip(sizes, values, strict=True))


def valueless() -> tuple[Tensor, ...]:
    names = {"ids": (2, 5), "positions": (2, 5), "label": (2,)}
    return tuple(SambaTensor(shape=s, dtype=torch.int64, name=n) for n, s in names.items())


DUMMIES: dict[str, tuple[tuple[Tensor, ...], str]] = {
    "legal": (integers(9, 5, 3), ""),
    "beyond": (integers(99, 5, 3), "on values of its own for 'ids'"),
    "all beyond": (integers(99, 50, 77), "on values of its own for 'ids', 'positions', 'label'"),
    "negative": (integers(9, -2, 3), "on values of its own for 'positions'"),
    "never written": (integers(1 << 60, -(1 << 60), 3), "for 'ids', 'positions'"),
    "ignored": (integers(9, 5, -100), ""),
    "no values": (valueless(), "on values of its own for 'ids', 'positions', 'label'"),
}


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", DUMMIES)
def test_indices(name: str, trains: bool) -> None:
    inputs, condition = DUMMIES[name]
    comparison = compare(Tokens(), inputs, trains)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert comparison.condition.endswith(condition)
    assert bool(comparison.condition) == bool(condition)


class Squared(nn.Module):
    """A layer, and a function that is not linear."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(self.layer(x)).square().mean()


GARBAGE: dict[str, Callable[[], Tensor]] = {
    "NaN": lambda: torch.full((3, 4), float("nan")),
    "one NaN": lambda: torch.tensor([[1.0, 2.0, 3.0, float("nan")]]),
    "never written": lambda: torch.full((3, 4), 3e38),
    "infinite": lambda: torch.full((3, 4), float("inf")),
    "no values": lambda: SambaTensor(shape=(3, 4), name="x"),
    "bfloat16": lambda: torch.full((3, 4), float("nan")).bfloat16(),
}


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", GARBAGE)
def test_wrong_numbers_are_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, trains: bool
) -> None:
    module, inputs = Squared(), (GARBAGE[name](),)
    module = module.to(inputs[0].dtype)
    assert "'x'" in compare(module, inputs, trains).condition

    def wrong(context: Context, value: Any) -> Any:
        return context.build.unary("Tanh", value)

    monkeypatch.setitem(registry._TABLE, "silu", wrong)
    with pytest.raises(ExportMismatchError):
        compare(module, inputs, trains)


def test_masks_of_infinities_are_kept() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return torch.softmax(x + mask, -1)

    mask = torch.triu(torch.full((4, 4), float("-inf")), 1)
    assert not compare(Masked(), (torch.randn(4, 4), mask), False).condition


class Lengths(nn.Module):
    """Takes the first elements of rows; torch refuses lengths below 1."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if not torch.compiler.is_exporting() and not bool((lengths > 0).all()):
            raise ValueError("a length is not positive")
        kept = torch.arange(x.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
        return (x * kept).sum(1) / lengths


def test_lengths_that_no_row_has() -> None:
    comparison = compare(Lengths(), (torch.randn(2, 5), torch.tensor([-7, 0])), False)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert "'lengths'" in comparison.condition


def test_bags_that_begin_nowhere() -> None:
    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = nn.EmbeddingBag(10, 4, mode="sum")

        def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
            return self.bags(ids, offsets)

    comparison = compare(Bags(), (torch.full((6,), 3), torch.tensor([5, 9])), False)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert "'offsets'" in comparison.condition


def test_one_tensor_without_values_for_two_arguments() -> None:
    class Pair(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a * 2 + b

    tensor = SambaTensor(shape=(3,), name="t")
    assert compare(Pair(), (tensor, tensor), False).outcome is ComparisonOutcome.DONE


def test_inputs_that_decided_a_branch_are_kept() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.isnan().any() else x

    inputs = (torch.full((3,), float("nan")),)
    with pytest.warns(BranchWarning):
        exported = export_inference(Branching(), inputs)
    comparison = compare_with_eager(Branching(), inputs, exported)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert not comparison.condition
