"""Each operator by itself against torch: the first one that is translated wrongly is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn

from samba_onnx.comparing.eager import first_difference as room
from samba_onnx.comparing.eager.captured_graphs import CapturedGraph, captured_graph
from samba_onnx.comparing.eager.first_difference import (
    _OperatorRuns,
    first_difference,
)
from samba_onnx.comparing.eager.torch_runs import TorchRuns
from samba_onnx.comparing.judge import Verdict
from samba_onnx.comparing.walk import Difference
from samba_onnx.export.operators import registry
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.facts.tolerances import TIMES_ALLOWED, spacing
from tests.comparing.eager.planted import wrong_number


class Chain(nn.Module):
    """Operators of one result and of two, one that returns its operand, and a constant."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = nn.functional.silu(x.clone()).clone() * torch.tensor([1.0, 2.0, 3.0])
        values, places = hidden.sort(dim=1, stable=True)
        return values.exp(), places + 1


@pytest.fixture(scope="module")
def captured() -> Callable[[], CapturedGraph]:
    torch.manual_seed(0)
    module, inputs = Chain(), (torch.randn(4, 3),)
    runs = TorchRuns(module, inputs, {}, export_inference(module, inputs), False)

    def graph() -> CapturedGraph:
        result = captured_graph(runs)
        assert result is not None
        return result

    return graph


def difference(graph: CapturedGraph, **options: bool) -> Difference[fx.Node]:
    found = first_difference(graph, **options)
    assert found is not None
    return found


def test_right_translations_have_none(captured: Callable[[], CapturedGraph]) -> None:
    assert first_difference(captured()) is None
    assert first_difference(captured(), whole_numbers=False) is None


class Circular(nn.Module):
    """torch takes memory for what it pads, and fills it."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        taken = (x.new_empty(3), torch.empty_like(x), torch.empty(2, 2))
        return nn.functional.pad(x, (2, 1), mode="circular"), *(t[:0] for t in taken)


def test_memory_that_nobody_wrote_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    # With this torch itself writes what is no number into such memory.
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        module, inputs = Circular(), (torch.randn(2, 4, 5),)
        runs = TorchRuns(module, inputs, {}, export_inference(module, inputs), False)
        graph = captured_graph(runs)
        assert graph is not None
        assert any("new_empty" in str(node.target) for node in graph.module.graph.nodes)
        assert first_difference(graph) is None
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_wrong_operator_is_found_and_those_behind_it_are_not_blamed(
    captured: Callable[[], CapturedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._TABLE, "exp", wrong_number)
    assert difference(captured()).place.target is torch.ops.aten.exp.default
    monkeypatch.setitem(registry._TABLE, "silu", wrong_number)
    found = difference(captured(), whole_numbers=False)
    assert found.place.target is torch.ops.aten.silu.default
    assert found.verdict.name == "0"
    assert found.verdict.of_allowed > TIMES_ALLOWED


def planted(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one of the two results of a sort be wrong."""
    right = registry._TABLE["sort"]

    def wrong(context: registry.Context, *arguments: Any, **keywords: Any) -> Any:
        results = list(right(context, *arguments, **keywords))  # type: ignore[call-overload]
        results[place] = context.build.unary("Neg", results[place])
        return results

    monkeypatch.setitem(registry._TABLE, "sort", wrong)


def test_a_wrong_result_of_several_is_found(
    captured: Callable[[], CapturedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(0, monkeypatch)
    for options in ({}, {"whole_numbers": False}):
        found = difference(captured(), **options)
        assert "sort" in str(found.place.target)
        assert found.verdict.name == "0"


def test_whole_numbers_are_compared_unless_they_are_a_choice_among_equals(
    captured: Callable[[], CapturedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(1, monkeypatch)
    assert difference(captured()).verdict.name == "1"
    assert first_difference(captured(), whole_numbers=False) is None


def test_an_error_of_as_much_as_torch_may_have_been_lucky_is_none(
    captured: Callable[[], CapturedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    excess = TIMES_ALLOWED

    def judge(*_: Any) -> tuple[Verdict, ...]:
        return (Verdict("0", "", (), 1.0, 1.0, 1, 1, passed=False, of_allowed=excess),)

    monkeypatch.setattr(room, "judge", judge)
    assert first_difference(captured()) is None
    excess = np.nextafter(TIMES_ALLOWED, np.inf)
    assert difference(captured()).place.target is torch.ops.aten.silu.default


def operator_runs(target: Any, *operands: Any, **keywords: Any) -> _OperatorRuns:
    """Return the runs of one operator, whose tensors are placeholders."""
    graph = fx.Graph()
    values: dict[fx.Node, Any] = {}
    arguments = []
    for number, operand in enumerate(operands):
        if isinstance(operand, Tensor):
            arguments.append(graph.placeholder(f"x{number}"))
            values[arguments[-1]] = operand
        else:
            arguments.append(operand)
    node = graph.call_function(target, tuple(arguments), keywords)
    values[node] = target(*operands, **keywords)
    several = isinstance(values[node], tuple | list)
    return _OperatorRuns(node, values, tuple(range(len(values[node]) if several else 1)))


def test_one_operator_in_torch_and_in_float64() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5)
    runs = operator_runs(torch.ops.aten.topk.default, x, 2, largest=False)
    values, places = x.double().topk(2, largest=False)
    assert runs.exact is not None
    for results in (runs.native, runs.exact):
        np.testing.assert_array_equal(results["0"], values)
        np.testing.assert_array_equal(results["1"], places)
    assert (runs.native["0"].dtype, runs.exact["0"].dtype) == (np.float32, np.float64)
    assert [runs.is_floating(0), runs.is_floating(1)] == [True, False]
    assert runs.unit == spacing("float32")


def test_complex_results_are_no_whole_numbers() -> None:
    runs = operator_runs(torch.ops.aten.conj_physical.default, torch.ones(2, dtype=torch.complex64))
    assert runs.is_floating(0)


def test_operands_of_one_operator_move_by_roundings() -> None:
    torch.manual_seed(0)
    x = torch.rand(200) + 0.5
    runs = operator_runs(torch.ops.aten.mul.Tensor, x, torch.ones(200))
    for amplitude in (1, 4):
        moved = runs.moved(0, amplitude)
        assert moved is not None
        distance = np.abs(moved["0"] / x.double().numpy() - 1).max()
        assert 0.9 * amplitude * runs.unit < distance <= amplitude * runs.unit
    assert operator_runs(torch.sort, x).exact is None  # which is no operator of ATen
