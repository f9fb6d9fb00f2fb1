"""No error in a translation, a decomposition or the wiring of a program gets through the check."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.differentiation.decompositions import decompositions
from samba_onnx.export.operators import registry
from samba_onnx.export.programs.inference import Exported
from samba_onnx.export.programs.training import export_training
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part
from tests.comparing.eager.networks import CNNS, SEQUENCES, as_trained, images, tokens
from tests.comparing.eager.planted_errors import ERRORS

NETWORKS = {**CNNS, **SEQUENCES}
QUICK = {
    "the running variance is that of the batch",
    "softmax's gradient lacks a term",
    "a gate is 0.1 % too large",
}
"""What the fast tests plant: a buffer, a dropped term of a gradient, and a recurrence."""


def exported(network: str, *, trained: bool = True) -> tuple[Any, Any, Exported]:
    """Return a network, its inputs, and what it was exported to."""
    torch.manual_seed(5)
    module = NETWORKS[network]().train()
    inputs = images() if network in CNNS else tokens()
    if trained:
        as_trained(module, 5)
    return module, inputs, export_training(module, inputs)


def refused(network: str, trained: bool, match: str = "computes in torch") -> None:
    with pytest.raises(ExportMismatchError, match=match) as caught:
        compare_training(*exported(network, trained=trained))
    assert "report" not in str(caught.value)
    assert "skip" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(QUICK))
def test_errors_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(name, monkeypatch)
    refused(ERRORS[name].network, trained=True)


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize("name", sorted(ERRORS))
def test_all_errors_are_refused(name: str, trained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(name, monkeypatch)
    if trained or ERRORS[name].shows_fresh:
        refused(ERRORS[name].network, trained)
    else:
        assert compare_training(*exported(ERRORS[name].network, trained=False)).errors


def plant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ERRORS[name]
    right = registry._TABLE[error.operator]
    monkeypatch.setitem(registry._TABLE, error.operator, error.wrong(right))


aten = torch.ops.aten


def passing(gradient: Any, value: Any, threshold: float) -> Any:
    return torch.where(value <= threshold, 0.01 * gradient, gradient)


def forgetful(value: Any, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any) -> Any:
    """Normalise, and leave the statistics alone."""
    return aten._native_batch_norm_legit.no_stats(value, weight, bias, *rest)


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        (aten.threshold_backward.default, passing),
        (aten.native_batch_norm.default, forgetful),
    ],
    ids=["threshold_backward", "native_batch_norm"],
)
def test_wrong_decompositions_are_refused(
    target: Any, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(decompositions(), target, wrong)
    refused("resnet", trained=True)


def test_exchanged_gradients_are_refused() -> None:
    module, inputs, original = exported("resnet")

    def exchanged(part: Part) -> Part:
        if part.type is not SectionType.BCKWD:
            return part
        outputs = {value.name: value for value in part.model.graph.outputs}
        first = outputs["classifier__body__1__first__1__weight__grad"]
        second = outputs["classifier__body__1__second__1__weight__grad"]
        first.name, second.name = second.name, first.name
        return part

    program = original.program
    parts = tuple(exchanged(part) for part in program.parts)
    wrong = dataclasses.replace(original, program=dataclasses.replace(program, parts=parts))
    with pytest.raises(ExportMismatchError, match="each operator by itself"):
        compare_training(module, inputs, wrong)
