"""A training program that computes other gradients than autograd is noticed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

from samba_onnx.comparing.eager import training
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.comparing.outcome import ComparisonOutcome
from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.operators import registry
from samba_onnx.export.programs.training import export_training
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part


class Bent(nn.Module):
    """Two layers with a tanh between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.second(torch.tanh(self.first(x)))
        return nn.functional.mse_loss(out, y), out


class Deep(nn.Module):
    """Many normalisations, behind which float32 gradients lose digits."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(8):
            layers += [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
        self.body = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.l1_loss(self.body(x), torch.ones_like(x))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def sample() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 4), torch.randn(3, 2)


@pytest.mark.parametrize("accumulation", [False, True])
def test_right_gradients_pass(accumulation: bool) -> None:
    model, inputs = Bent(), sample()
    exported = export_training(model, inputs, gradient_accumulation=accumulation)
    comparison = compare_training(model, inputs, exported)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert "bent__first__weight__grad" in comparison.errors
    assert all(parameter.grad is None for parameter in model.parameters())


def test_normalisations_are_judged_in_float64() -> None:
    model, inputs = Deep().train(), (torch.randn(4, 8, 6, 6),)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    comparison = compare_training(model, inputs, export_training(model, inputs))
    assert comparison.outcome is ComparisonOutcome.DONE
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name])


def test_a_wrong_gradient_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = registry._TABLE["tanh_backward"]

    def wrong(context: registry.Context, *arguments: Any) -> Any:
        return context.build.multiply(right(context, *arguments), 1.01)  # type: ignore[arg-type]

    monkeypatch.setitem(registry._TABLE, "tanh_backward", wrong)
    model, inputs = Bent(), sample()
    exported = export_training(model, inputs)
    with pytest.raises(ExportMismatchError, match=r"gradient of 'bent__first__"):
        compare_training(model, inputs, exported)


class Lookup(nn.Module):
    """A table whose rows are shortened when they are looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4, max_norm=0.5)
        self.outer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.table(x)).square().mean()


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_weights_that_the_forward_writes_are_compared(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = registry._TABLE["embedding_renorm"]

    def planted(context: registry.Context, weight: Any, *arguments: Any) -> Any:
        written = right(context, weight, *arguments)
        build = context.build
        rows = build.constant([[factor]] + [[1.0]] * 4, weight.dtype)
        return build.multiply(written, rows) if factor != 1 else written  # type: ignore[arg-type]

    monkeypatch.setitem(registry._TABLE, "embedding_renorm", planted)
    model, inputs = Lookup(), (torch.tensor([0, 2, 0]),)
    before = model.table.weight.detach().clone()
    exported = export_training(model, inputs)
    if factor == 1:
        assert compare_training(model, inputs, exported).outcome is ComparisonOutcome.DONE
    else:
        with pytest.raises(ExportMismatchError, match="lookup__"):
            compare_training(model, inputs, exported)
    assert torch.equal(model.table.weight, before)


class Watched(nn.Module):
    """A normalisation in two places, and a buffer that is written and never read."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.BatchNorm1d(4)
        self.first, self.second = norm, nn.Sequential(nn.Linear(4, 4), norm)
        self.register_buffer("last", torch.full((4,), 7.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.second(self.first(x))
        self.last.copy_(out.detach()[0])
        return out.abs().mean()


def test_members_are_the_same_under_every_path_and_those_never_read_as_well() -> None:
    model, inputs = Watched(), (torch.randn(5, 4),)
    exported = export_training(model, inputs)
    comparison = compare_training(model, inputs, exported)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert {"watched__last__updated", "watched__first__running_mean__updated"} <= set(
        comparison.errors
    )


def test_a_module_without_values_is_not_comparable() -> None:
    with torch.device("meta"):
        model = Bent()
    inputs = sample()
    comparison = compare_training(model, inputs, export_training(model, inputs))
    assert comparison.reason == "parameter 'first.weight' has no values"


class Rooted(nn.Linear):
    """The root of zero has an infinite gradient, and zero times infinity is no number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (super().forward(x) * 0.0).abs().sqrt().sum()


def test_gradients_that_are_no_numbers_must_be_none_in_torch_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, inputs = Rooted(4, 2), (torch.randn(3, 4),)
    comparison = compare_training(model, inputs, export_training(model, inputs))
    assert comparison.outcome is ComparisonOutcome.DONE
    bent = Bent(), sample()
    right = registry._TABLE["tanh_backward"]

    def poisoned(context: registry.Context, *arguments: Any) -> Any:
        product = context.build.multiply(right(context, *arguments), float("nan"))  # type: ignore[arg-type]
        return product

    monkeypatch.setitem(registry._TABLE, "tanh_backward", poisoned)
    exported = export_training(*bent)
    with pytest.raises(ExportMismatchError, match=r"gradient of 'bent__first__.* not finite"):
        compare_training(*bent, exported)


def test_gradients_that_are_not_zeroed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    part: Any = SimpleNamespace()
    left = {"m__w__grad__zeroed": np.zeros(2), "m__v__grad__zeroed": np.array([0.0, 1e-9])}
    monkeypatch.setattr(training, "run_part", lambda part, feeds: left)
    with pytest.raises(ExportMismatchError, match=r"sets 'm__v__grad' to other numbers than zero"):
        training._refuse_unless_zero(part)
    del left["m__v__grad__zeroed"]
    training._refuse_unless_zero(part)


def test_a_backward_starts_with_ones_for_losses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("loss__grad", "other__grad", "known")
    inputs = [ir.val(name, ir.DataType.FLOAT, (2,)) for name in names]
    model = ir.Model(ir.Graph(inputs, [], nodes=[], name="backward"), ir_version=10)
    parts = (Part(SectionType.FWD, model), Part(SectionType.BCKWD, model))
    monkeypatch.setattr(training, "run_part", lambda part, feeds: feeds)
    known = np.array([5.0, 6.0])
    for losses, ones in (({"losses": '["loss"]'}, [1.0, 1.0]), ({}, [0.0, 0.0])):
        program: Any = SimpleNamespace(parts=parts, metadata=losses)
        feeds = training._backward(program, {"known": known})
        assert feeds["loss__grad"].tolist() == ones
        assert feeds["other__grad"].tolist() == [0.0, 0.0]
        assert feeds["known"] is known
    forward: Any = SimpleNamespace(parts=parts[:1], metadata={})
    assert training._backward(forward, {}) == {}
