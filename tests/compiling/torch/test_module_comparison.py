"""A PEF against the module that it was made of: its layers in eager torch, and gradients by parameter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from samba_onnx.comparing.compared_values import ComparedValue
from samba_onnx.compiling.torch.module_comparison import compare_module
from samba_onnx.compiling.torch.porting import TorchModel, port
from samba_onnx.errors import UsageError
from tests.comparing.broken_passes import BROKEN
from tests.comparing.test_value_comparison import with_pass


class Net(nn.Module):
    """Two layers with a Tanh and a dropout between them, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.act = nn.Tanh()
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(5, 3)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        out = self.second(self.drop(self.act(self.first(x))))
        return nn.functional.cross_entropy(nn.functional.silu(out), target)


def example(*, train: bool) -> TorchModel:
    torch.manual_seed(0)
    net = Net().train(train)
    inputs = (torch.randn(4, 6), torch.tensor([0, 2, 1, 1]))
    optimizers = (torch.optim.SGD(net.parameters(), lr=0.1),) if train else ()
    return TorchModel("net", net, inputs, {}, optimizers=optimizers)


def test_layers_in_bfloat16_are_shown_with_their_distance_from_float32(tmp_path: Path) -> None:
    model = example(train=False)
    with port(model, tmp_path / "net.pef", precision="bf16") as pef:
        result = compare_module(model, pef)
    assert result.passed
    distances = {value.node: value.statistics.comparison for value in result.values}
    with torch.no_grad():
        first = model.module.first(model.args[0])
    error = distances["first (Linear)"].max_absolute_error
    assert 2**-12 < error / float(first.abs().max()) < 2**-7


def test_every_layer_agrees_with_what_eager_torch_returned(tmp_path: Path) -> None:
    model = example(train=False)
    with port(model, tmp_path / "net.pef") as pef:
        result = compare_module(model, pef)
    assert result.passed
    layers = {value.node for value in result.values}
    assert layers >= {"first (Linear)", "act (Tanh)", "second (Linear)"}
    assert all(value.location for value in result.values)
    hidden = model.module.first(model.args[0])
    value = next(value for value in result.values if value.node == "first (Linear)")
    assert value.statistics.comparison.shape == tuple(hidden.shape)
    assert result.total >= len(result.values)


def test_the_layer_where_an_error_begins_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = example(train=False)
    with_pass(monkeypatch, BROKEN["Tanh"])
    with port(model, tmp_path / "net.pef") as pef:
        result = compare_module(model, pef)
    first = result.first
    assert first is not None
    assert (first.node, first.operator) == ("act (Tanh)", "tanh")
    assert first.operands_agree
    assert first.location.startswith("test_module_comparison.py:")
    hidden = model.module.first(model.args[0])
    error = (hidden.sigmoid() - hidden.tanh()).abs().max().item()
    # One float32 product of six terms on either side.
    assert first.statistics.comparison.max_absolute_error == pytest.approx(error, rel=1e-5)
    later = [value for value in result.values if value.position > first.position]
    assert later
    assert not any(value.passed or value.operands_agree for value in later)


def by_name(values: tuple[ComparedValue, ...], operator: str) -> dict[str, ComparedValue]:
    return {value.node: value for value in values if value.operator == operator}


def test_gradients_agree_with_autograd_by_parameter(tmp_path: Path) -> None:
    model = example(train=True)
    with port(model, tmp_path / "net.pef") as pef:
        result = compare_module(model, pef)
    assert result.passed
    gradients = by_name(result.values, "gradient")
    assert gradients.keys() == {name for name, _ in model.module.named_parameters()}
    assert result.total == len(result.values) == 5  # with the loss
    for name, parameter in model.module.named_parameters():
        assert gradients[name].statistics.comparison.shape == tuple(parameter.shape)
        assert gradients[name].statistics.cosine == pytest.approx(1.0, abs=1e-6)
        assert parameter.grad is None  # the module stays as it was


def test_a_wrong_backward_is_seen_in_the_gradients_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = example(train=True)
    model.module.drop = nn.Identity()  # whose forward subtracts, too
    with_pass(monkeypatch, BROKEN["Sub"])  # 1 - sigmoid(x), in the backward of SiLU
    with port(model, tmp_path / "net.pef") as pef:
        result = compare_module(model, pef)
    assert not result.passed
    wrong = {value.node for value in result.values if not value.passed}
    assert wrong >= {"second.weight", "second.bias", "first.weight"}
    assert by_name(result.values, "output")[""].passed  # the forward is right


def test_a_rounding_that_torch_makes_itself_is_no_error(tmp_path: Path) -> None:
    class Cancelling(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            # Exact: 0. In float32 what is left depends on the order of the sum.
            return (x @ torch.ones(4096, 1)) - x.sum(1, keepdim=True)

    torch.manual_seed(1)
    model = TorchModel("c", Cancelling().eval(), (torch.randn(3, 4096) * 100,), {})
    with port(model, tmp_path / "c.pef") as pef:
        result = compare_module(model, pef)
    assert result.passed


def test_a_pef_of_something_else_is_refused(tmp_path: Path) -> None:
    class Other(nn.Module):
        def forward(self, a: Tensor) -> Tensor:
            return a.exp()

    model = TorchModel("o", Other().eval(), (torch.from_numpy(np.ones((2, 2), np.float32)),), {})
    with (
        port(example(train=False), tmp_path / "net.pef") as pef,
        pytest.raises(UsageError, match=r"compare takes what it was made of|no content"),
    ):
        compare_module(model, pef)
