"""A captured graph with its operands computes what the module does, and whether it does is told."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn

from samba_onnx.comparing.eager.captured_graphs import (
    CapturedGraph,
    _doubles,
    captured_graph,
    is_faithful,
)
from samba_onnx.comparing.eager.roundings import wide
from samba_onnx.comparing.eager.torch_runs import TorchRuns
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from samba_onnx.facts.tolerances import spacing
from samba_onnx.tensor import SambaTensor


class Everything(nn.Module):
    """A member of each kind: read, written, written but never read, constant, and one that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("last", torch.full((4,), 7.0))

    def forward(self, x: Tensor, power: int, input: Tensor, unused: Tensor) -> Tensor:
        hidden = self.norm(self.layer(x)).relu() ** power + input  # Python has an input, too
        hidden = nn.functional.dropout(hidden, 0.5, self.training) * torch.tensor(
            [1.0, 2, 3, 4], dtype=x.dtype
        )
        self.last.copy_(hidden.detach()[0])
        return hidden.square().mean()


def runs_of(*, trains: bool, dtype: torch.dtype = torch.float32) -> TorchRuns:
    torch.manual_seed(0)
    module = Everything().to(dtype).train(trains)
    x, other = torch.randn(3, 4, dtype=dtype), torch.randn(4, dtype=dtype)
    inputs = (SambaTensor(x, name="x"), 3, other, torch.ones(2, dtype=dtype))
    export = export_training if trains else export_inference
    return TorchRuns(module, inputs, {}, export(module, inputs), trains)


@pytest.fixture(scope="module", params=[False, True], ids=["forward", "training"])
def runs(request: pytest.FixtureRequest) -> TorchRuns:
    return runs_of(trains=request.param)


def graph_of(runs: TorchRuns) -> CapturedGraph:
    graph = captured_graph(runs)
    assert graph is not None
    return graph


def test_the_graph_computes_what_the_module_does(runs: TorchRuns) -> None:
    graph = graph_of(runs)
    state = torch.random.get_rng_state()
    results = graph.named(graph.run(lambda tensor: tensor))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert results.keys() == runs.native.keys()
    assert len(results) >= (8 if runs.trains else 1)
    for name, array in results.items():
        assert array.dtype == runs.native[name].dtype
        # A few float32 operations in another order.
        np.testing.assert_allclose(array, runs.native[name], rtol=1e-5, atol=1e-6)


def test_what_is_part_of_the_graph_is_said_to_be(runs: TorchRuns) -> None:
    graph = graph_of(runs)
    assert [tensor.tolist() for tensor in graph.constants.values()] == [[1.0, 2.0, 3.0, 4.0]]
    assert graph.constants.keys() <= graph.operands.keys()
    assert list(graph.operands) == [
        node.name for node in graph.module.graph.find_nodes(op="placeholder")
    ]


def test_operands_and_masks_have_the_types_of_the_graph() -> None:
    graph = graph_of(runs_of(trains=True, dtype=torch.float64))
    for node, value in graph.run(lambda tensor: tensor).items():
        content = node.meta.get("val")
        if isinstance(value, Tensor) and isinstance(content, Tensor):
            assert (value.dtype, value.shape) == (content.dtype, content.shape), node.name


def test_a_changed_operand_is_not_the_users(runs: TorchRuns) -> None:
    graph = graph_of(runs)
    kept = {n: v.clone() for n, v in graph.operands.items() if isinstance(v, Tensor)}
    values = graph.run(lambda tensor: wide(tensor).zero_())
    assert all(torch.equal(graph.operands[name], tensor) for name, tensor in kept.items())
    assert all(not array.any() for name, array in graph.named(values).items() if "mean" in name)


def test_a_backward_that_reads_what_nobody_can_tell_is_none() -> None:
    runs = runs_of(trains=True)
    joint = runs.exported.joint
    assert joint is not None
    strange = {f"strange {role}" if role == "x" else role: n for role, n in joint.inputs.items()}
    other = dataclasses.replace(joint, inputs=strange)
    exported = dataclasses.replace(runs.exported, joint=other)
    assert captured_graph(dataclasses.replace(runs, exported=exported)) is None


def test_a_right_graph_is_faithful(runs: TorchRuns) -> None:
    assert is_faithful(graph_of(runs), runs) is True


def test_another_graph_is_not(runs: TorchRuns) -> None:
    graph = graph_of(runs)
    changed = {
        name: operand * 1.001 if isinstance(operand, Tensor) and operand.dim() == 2 else operand
        for name, operand in graph.operands.items()
    }
    assert is_faithful(dataclasses.replace(graph, operands=changed), runs) is False


def test_results_that_only_one_of_them_has_are_not_compared(runs: TorchRuns) -> None:
    graph = graph_of(runs)
    name, node = next(iter(graph.results.items()))
    assert is_faithful(dataclasses.replace(graph, results={name: node, "more": node}), runs) is True


def test_without_float64_nobody_can_say() -> None:
    runs = runs_of(trains=False, dtype=torch.float64)
    assert runs.exact is None
    assert is_faithful(graph_of(runs), runs) is None


def test_a_graph_that_fails_in_float64_says_nothing(
    runs: TorchRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(runs)

    def refused(self: CapturedGraph, change: Any) -> dict[fx.Node, Any]:
        raise TypeError("float32 only")

    monkeypatch.setattr(CapturedGraph, "run", refused)
    assert is_faithful(graph, runs) is None


def test_runs_in_float64_move_by_its_roundings() -> None:
    asked: list[tuple[Any, ...]] = []
    runs: Any = SimpleNamespace(moved=lambda *args, unit: asked.append((*args, unit)))
    assert _doubles(runs, {}).moved(3, 4.0) is None
    assert asked == [(3, 4.0, spacing("float64"))]
