"""A check has values of its own where inputs carry no meaning, and refuses wrong numbers all the same."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.comparing.eager import own_inputs
from samba_onnx.comparing.eager.inference import compare_with_eager
from samba_onnx.comparing.eager.own_inputs import (
    _drawn,
    _is_replaced,
    _Trial,
    _trials,
    fitting_runs,
    is_meaningless,
)
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.comparing.outcome import (
    Comparison,
    ComparisonOutcome,
    NotComparableError,
)
from samba_onnx.errors import BranchWarning, ExportMismatchError
from samba_onnx.export.operators import registry
from samba_onnx.export.operators.registry import Context
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from samba_onnx.program.index_ranges import IndexRange
from samba_onnx.tensor import SambaTensor


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


def trials(monkeypatch: pytest.MonkeyPatch, *inputs: Tensor, **ranges: IndexRange) -> list[Any]:
    """Return the names of the replaced inputs, and the inputs, of each trial of a program."""
    monkeypatch.setattr(own_inputs, "index_ranges", lambda program, from_end: ranges)
    names = {name: place for place, name in enumerate("xyz"[: len(inputs)])}
    captured = SimpleNamespace(is_specialised=False)
    exported: Any = SimpleNamespace(captured=captured, inputs=names, program=None)
    return [(names, args) for names, (args, _) in _trials(inputs, {}, exported)]


def test_each_choice_is_tried_once_and_integers_without_a_range_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    floats, beyond = torch.ones(2), torch.tensor([3, 9])
    assert [names for names, _ in trials(monkeypatch, floats)] == [()]
    legal = trials(monkeypatch, floats, beyond, y=IndexRange(3, 4))
    assert [names for names, _ in legal] == [(), ("y",), ("y",)]
    assert all(3 <= int(args[1].min()) <= int(args[1].max()) <= 4 for _, args in legal[1:])
    free = trials(monkeypatch, beyond, floats)
    assert [names for names, _ in free] == [(), ("x",), ("x",)]
    assert [args[0].tolist() for _, args in free] == [[3, 9], [1, 1], [0, 1]]
    nothing = torch.full((2,), float("nan"))
    assert [names for names, _ in trials(monkeypatch, nothing)] == [("x",), ("x",)]


@pytest.mark.parametrize(
    ("leaf", "legal", "replaced"),
    [
        (torch.tensor([0, 4]), IndexRange(0, 4), []),
        (torch.tensor([0, 5]), IndexRange(0, 4), ["FITTING", "ONES", "OFFSETS"]),
        (torch.tensor([-1, 4]), IndexRange(0, 4), ["FITTING", "ONES", "OFFSETS"]),
        (torch.tensor([7]), None, ["ONES", "OFFSETS"]),
        (torch.ones(0, dtype=torch.int64), None, []),
        (torch.ones(2, dtype=torch.bool), None, []),
        (torch.ones(2, dtype=torch.complex64), None, []),
        (torch.ones(2), None, []),
        (torch.full((2,), float("nan")), None, [trial.name for trial in _Trial]),
        (SambaTensor(torch.full((2,), float("nan")), name="x"), None, [t.name for t in _Trial]),
        (SambaTensor(shape=(2,), name="x"), None, [trial.name for trial in _Trial]),
        (torch.ones(2, device="meta"), None, [trial.name for trial in _Trial]),
    ],
)
def test_which_inputs_are_replaced(
    leaf: Tensor, legal: IndexRange | None, replaced: list[str]
) -> None:
    assert [trial.name for trial in _Trial if _is_replaced(leaf, legal, trial)] == replaced


@pytest.mark.parametrize(
    ("values", "meaningless"),
    [
        (np.array([1 << 60]), False),
        (np.zeros(0, np.float32), False),
        (np.array([1e15]), False),
        (np.array([1.001e15]), True),
        (np.array([-1e30]), False),
        (np.array([np.nan], ml_dtypes.bfloat16), True),
        (np.array([1.0], ml_dtypes.bfloat16), False),
    ],
)
def test_numbers_that_nobody_computes_with(values: Any, meaningless: bool) -> None:
    assert is_meaningless(values) == meaningless


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64, torch.complex64])
def test_values_of_its_own_are_of_all_kinds_and_always_the_same(dtype: torch.dtype) -> None:
    leaf = torch.zeros(4, 5, dtype=dtype)
    first, again, other = (_drawn(leaf, None, place, _Trial.GIVEN) for place in (0, 0, 1))
    assert (first.dtype, first.shape) == (dtype, (4, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    kinds = len(set(first.flatten().tolist()))
    assert kinds == 2 if dtype is torch.bool else kinds > 10


def test_integers_of_its_own_are_legal_ones_or_offsets() -> None:
    leaf = torch.zeros(2, 3, dtype=torch.int32)
    assert _drawn(leaf, None, 0, _Trial.ONES).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert _drawn(leaf, None, 0, _Trial.OFFSETS).tolist() == [[0, 1, 1], [1, 1, 1]]
    assert _drawn(torch.tensor(5), None, 0, _Trial.OFFSETS).tolist() == 0
    legal = _drawn(torch.zeros(50, dtype=torch.int32), IndexRange(3, 9), 0, _Trial.FITTING)
    assert legal.dtype is torch.int32
    assert (int(legal.min()), int(legal.max())) == (3, 9)


def test_the_first_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter(("first", "second", "third"))

    class Runs:
        def __init__(self, *_: Any) -> None:
            self.failure = next(failures)

        @property
        def native(self) -> Any:
            raise NotComparableError(self.failure)

    monkeypatch.setattr(own_inputs, "TorchRuns", Runs)
    monkeypatch.setattr(own_inputs, "index_ranges", lambda program, from_end: {})
    captured = SimpleNamespace(is_specialised=False)
    exported: Any = SimpleNamespace(captured=captured, inputs={"x": 0}, program=None)
    with pytest.raises(NotComparableError, match=r"^first$"):
        fitting_runs(nn.Identity(), (torch.tensor([3]),), {}, exported, trains=False)
    assert next(failures, None) is None
