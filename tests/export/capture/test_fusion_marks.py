"""Which nodes of an exported graph ``op_fusion`` marks."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, fx, nn

from samba_onnx.export.capture.captured_modules import capture
from samba_onnx.export.capture.fusion_marks import mark_module, marked_lines
from samba_onnx.export.naming import fusion_mark, operator_name
from samba_onnx.program.fusion_marks import MARK


def marks(module: nn.Module, *inputs: Tensor) -> list[tuple[str, str]]:
    """Return operator and mark of every call."""
    captured = capture(module.eval(), inputs)
    return [
        (operator_name(node), fusion_mark(node).get(MARK, ""))
        for part in captured.graph_module.modules()
        if isinstance(part, fx.GraphModule)
        for node in part.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    ]


class Lines(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        for _ in range(2):
            with marked_lines("outer"):
                x = self.inner(x)
                with marked_lines("inner"):
                    x = torch.tanh(x)
        with torch.no_grad(), marked_lines("constant"):
            x = x + torch.sigmoid(x)
        return torch.neg(x)


def test_every_run_of_lines_has_a_mark_and_the_outer_one_counts() -> None:
    assert marks(Lines(), torch.ones(2)) == [
        ("relu", ""),
        ("linear", "0:outer"),
        ("tanh", "0:outer"),
        ("linear", "1:outer"),
        ("tanh", "1:outer"),
        ("neg", ""),
        ("sigmoid", "2:constant"),  # in a graph of its own, as all without gradients
        ("add", "2:constant"),
    ]


def test_outside_of_a_capture_nothing_happens() -> None:
    with marked_lines("name"):
        assert torch.equal(Lines()(torch.zeros(2)).isnan(), torch.zeros(2) > 0)


def test_all_of_a_module_is_marked_for_each_call_of_it() -> None:
    block: Any = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    mark_module(block, "Encoder")
    mark_module(block[0], "Linear")  # the outermost counts
    whole = nn.Sequential(nn.Tanh(), block, nn.Tanh(), block)
    found = marks(copy.deepcopy(whole), torch.ones(2))
    assert [operator for operator, _ in found] == [
        "tanh",
        "linear",
        "relu",
        "tanh",
        "linear",
        "relu",
    ]
    first, second = found[1][1], found[4][1]
    assert [mark for _, mark in found] == ["", first, first, "", second, second]
    assert first != second
    assert {first.partition(":")[2], second.partition(":")[2]} == {"Encoder"}


def test_marks_are_the_same_for_the_same_module() -> None:
    assert marks(Lines(), torch.ones(2)) == marks(Lines(), torch.ones(2))
