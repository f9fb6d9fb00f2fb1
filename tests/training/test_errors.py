"""One clear error for each way in which training cannot be."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # what torch's users call it
from torch import Tensor, nn

import samba_onnx as samba
from samba_onnx.errors import AnomalyError, GradientError, ModelError, NoDeviceError, UsageError
from samba_onnx.sessions import SambaSession
from tests.training.small import Classifier, draw
from tests.training.trajectory import prepare


def converted(model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    samba.from_torch_model_(model)
    return model, samba.optim.SGD(model.parameters(), lr=0.1)


class Rounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        best = self.linear(x).argmax(1)
        return best.float().mean()


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.l1_loss(x, x * 2), self.linear(x)


class Unwritten(nn.Module):
    """The size of what its loss makes depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(x)[label > 0], label[label > 0])


def test_an_operator_without_gradient(tmp_path: Path) -> None:
    model, optimizer = converted(Rounded())
    with pytest.raises(GradientError, match=r"argmax.* at .*test_errors\.py:\d+ has no gradient"):
        prepare(model, {"x": torch.randn(4, 6)}, [optimizer], tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_operator_that_cannot_be_compiled(tmp_path: Path) -> None:
    model, optimizer = converted(Unwritten())
    with pytest.raises(ModelError, match=r"aten\.index.* at test_errors\.py:\d+ returns sizes"):
        prepare(
            model,
            {"x": torch.randn(4, 6), "label": torch.randint(0, 2, (4,))},
            [optimizer],
            tmp_path,
        )
    assert not list(tmp_path.iterdir())


def test_a_loss_that_reaches_no_parameter(tmp_path: Path) -> None:
    model, optimizer = converted(Constant())
    with pytest.raises(GradientError, match=r"output 0 .* reaches no parameter"):
        prepare(model, {"x": torch.randn(4, 6)}, [optimizer], tmp_path)
    with pytest.raises(GradientError, match="reaches no parameter"):
        prepare(model, {"x": torch.randn(4, 6)}, [optimizer], tmp_path, loss_indices=[0])
    prepared = prepare(model, {"x": torch.randn(4, 6)}, [optimizer], tmp_path, loss_indices=[1])
    prepared.run()
    assert set(prepared.gradients()) == {"linear.weight", "linear.bias"}


def test_a_frozen_model(tmp_path: Path) -> None:
    model = Classifier().requires_grad_(False)
    samba.from_torch_model_(model)
    with pytest.raises(GradientError, match="reaches no parameter"):
        prepare(model, draw(), [samba.optim.SGD(model.parameters(), lr=0.1)], tmp_path)


def test_an_optimizer_over_parameters_of_another_model(tmp_path: Path) -> None:
    model, _ = converted(Classifier())
    _, foreign = converted(Constant())
    with pytest.raises(UsageError, match=r"constant__linear__weight|another model|not.*model"):
        prepare(model, draw(), [foreign], tmp_path)


def test_two_optimizers_over_one_parameter(tmp_path: Path) -> None:
    model, one = converted(Classifier())
    other = samba.optim.AdamW([model.get_parameter("inner.weight")])
    with pytest.raises(UsageError, match="inner__weight"):
        prepare(model, draw(), [one, other], tmp_path)


def test_gradients_of_what_was_compiled_without(tmp_path: Path) -> None:
    model = Classifier()
    model.inner.requires_grad_(False)
    model, optimizer = converted(model)
    prepared = prepare(model, draw(), [optimizer], tmp_path)
    prepared.run(draw())
    frozen, x = prepared.model.get_parameter("inner.weight"), prepared.inputs["x"]
    for tensor in (frozen, x, prepared.outputs[1]):
        with pytest.raises(NoDeviceError, match="gradient"):
            _ = tensor.sn_grad
        with pytest.raises(NoDeviceError, match="gradient"):
            tensor.sn_grad = torch.zeros(tuple(tensor.shape))


def test_the_gradient_of_an_inference_program(tmp_path: Path, session: SambaSession) -> None:
    model, _ = converted(Classifier())
    inputs = samba.from_named_dict(draw())
    path = session.compile(model, inputs, output=tmp_path / "m.pef")
    outputs = samba.utils.trace_graph(model, inputs, pef=path)
    for tensor in (model.get_parameter("inner.weight"), outputs[0]):
        with pytest.raises(NoDeviceError, match="gradient"):
            _ = tensor.sn_grad


class Roots(nn.Module):
    """The loss is NaN as soon as an input is negative."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.mse_loss(self.linear(torch.sqrt(x)), torch.zeros(len(x), 3))


def test_a_loss_that_is_no_number(tmp_path: Path, session: SambaSession) -> None:
    model, optimizer = converted(Roots())
    prepared = prepare(model, {"x": torch.rand(4, 6)}, [optimizer], tmp_path)
    (loss,) = prepared.run({"x": torch.rand(4, 6)}, detect_anomaly=True)
    assert loss.isfinite()
    before = prepared.parameters()
    bad = {"x": torch.rand(4, 6) - 2}
    with pytest.raises(AnomalyError, match=r"section 0 .*FWD made 'roots__.*' with \d+ NaN"):
        prepared.run(bad, detect_anomaly=True)
    # The host still has the values of the input that the model was traced with.
    with pytest.raises(AnomalyError, match=r"its input 'x' has 24 NaN and 0 infinite"):
        prepared.run({"x": torch.full((4, 6), torch.nan)}, detect_anomaly=True)
    # Nothing was learned from it.
    after = prepared.parameters()
    assert all(torch.equal(before[name], after[name]) for name in before)
    (loss,) = prepared.run(bad)
    assert loss.isnan()
    session.to_cpu(model)
    assert samba.to_torch(model.get_parameter("linear.weight")).isnan().any()


def test_nothing_of_ours_warns(tmp_path: Path) -> None:
    model, optimizer = converted(Classifier())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepare(model, draw(), [optimizer], tmp_path).run(draw())
    assert not [str(w.message) for w in caught]
