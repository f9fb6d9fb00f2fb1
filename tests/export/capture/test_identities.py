"""Tensors that an operator returned unchanged keep their names."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.export.capture.captured_modules import capture
from samba_onnx.export.capture.identities import restore_identities


class Broadcasting(nn.Module):
    """Returns what it broadcasts, as losses of torch do with a prediction and a target."""

    def __init__(self, other: Tensor) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("other", other)

    def forward(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        prediction = self.layer(value)
        one, other = torch.broadcast_tensors(prediction, self.other)
        return prediction, one + 1, other * 1


def _operators(module: nn.Module) -> list[str]:
    batch = torch.randn(2, 4)
    exported = torch.export.export(module, (batch,), strict=False)
    restore_identities(exported)
    outputs = exported.graph.output_node().args[0]
    specs = exported.graph_signature.output_specs
    assert [spec.arg.name for spec in specs] == [node.name for node in outputs]
    torch.testing.assert_close(exported.module()(batch), module(batch), rtol=0, atol=0)
    return [str(node.target) for node in outputs]


def test_a_prediction_that_needs_no_broadcasting_is_the_layers_own() -> None:
    module = Broadcasting(torch.randn(2, 3))
    assert _operators(module)[0] == "aten.linear.default"
    graph = capture(module, (torch.randn(2, 4),)).graph_module.graph
    assert "broadcast_tensors" not in str(graph)


def test_what_is_broadcast_stays_a_value_of_its_own() -> None:
    module = Broadcasting(torch.randn(5, 1, 3))
    graph = capture(module, (torch.randn(2, 4),)).graph_module.graph
    assert "broadcast_tensors" in str(graph)
    assert _operators(module)[1:] == ["aten.add.Tensor", "aten.mul.Tensor"]


def test_what_is_written_in_place_after_a_loss_is_still_the_prediction() -> None:
    class Written(Broadcasting):
        def forward(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            prediction = self.layer(value)
            loss = functional.mse_loss(prediction, self.other)  # type: ignore[arg-type]
            prediction.mul_(2)
            return prediction, loss, prediction + loss

    _operators(Written(torch.randn(2, 3)))
