"""A step of an optimizer that computes something else than torch.optim's is noticed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import nn

from samba_onnx.comparing.eager import optimizers as checking
from samba_onnx.comparing.eager.optimizers import compare_updates
from samba_onnx.comparing.outcome import Comparison, ComparisonOutcome
from samba_onnx.compiling.torch.torch_programs import Training, trained_program
from samba_onnx.errors import EngineRefusalError, ExportMismatchError
from samba_onnx.export.programs import optimizers
from samba_onnx.export.programs.optimizers import optimizer_parts
from samba_onnx.export.programs.update_rules import Update, Updated, adam_update, sgd_update
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.optim import SGD, Adam, AdamW, optimizer_record
from tests.comparing.eager.planted import absent_update, batch, net
from tests.optim.update_cases import CASES, parameters

Rule = Callable[[Update], Updated]


def compared(
    names: Mapping[str, torch.Tensor], several: Sequence[torch.optim.Optimizer]
) -> Comparison:
    records = [optimizer_record(one, index, names) for index, one in enumerate(several)]
    specs = {
        name: (onnx_type(tensor.dtype), tuple(tensor.shape))
        for name, tensor in names.items()
        if tensor.requires_grad
    }
    return compare_updates(records, optimizer_parts(records, specs).update)


@pytest.mark.parametrize(("ours", "theirs", "options"), CASES)
@pytest.mark.parametrize("clipped", [False, True])
def test_right_steps_pass(ours: Any, theirs: Any, options: dict[str, Any], clipped: bool) -> None:
    names = parameters()
    limit = 1.0 if clipped else None
    comparison = compared(names, [ours(names.values(), max_grad_norm=limit, **options)])
    assert comparison.outcome is ComparisonOutcome.DONE
    assert comparison.notes == ()
    assert {f"{name}__updated" for name in names} <= set(comparison.errors)
    assert max(comparison.errors.values()) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(
    ("ours", "options"),
    [(SGD, {"momentum": 0.9}), (AdamW, {}), (AdamW, {"max_grad_norm": 1.0}), (Adam, {})],
)
def test_right_steps_of_other_types_pass(
    ours: Any, options: dict[str, Any], dtype: torch.dtype, copies: bool
) -> None:
    names = parameters(dtype)
    comparison = compared(names, [ours(names.values(), fp32_params=copies, **options)])
    assert comparison.outcome is ComparisonOutcome.DONE
    has_master = copies and dtype.itemsize == 2
    assert ("model__w0__master__updated" in comparison.errors) == has_master


def test_several_optimizers_groups_and_frozen_parameters_pass() -> None:
    names = parameters()
    first, second, third, *rest = names.values()
    third.requires_grad_(False)
    groups: list[dict[str, Any]] = [{"params": [first, third], "lr": 0.5}, {"params": [second]}]
    several = [
        AdamW(groups, lr=0.0, weight_decay=0.3, max_grad_norm=1e6),
        torch.optim.SGD(rest, lr=3.0, momentum=0.5),
    ]
    comparison = compared(names, several)
    assert comparison.outcome is ComparisonOutcome.DONE
    assert "model__w2__updated" not in comparison.errors
    assert {"model__w0__updated", "model__w4__updated"} <= set(comparison.errors)


def uphill(rule: Rule) -> Rule:
    def planted(update: Update) -> Updated:
        weight, state = rule(update)
        build = update.build
        return build.subtract(build.multiply(update.weight, 2.0), weight), state

    return planted


def negated(rule: Rule) -> Rule:
    def planted(update: Update) -> Updated:
        weight, state = rule(update)
        return update.build.unary("Neg", weight), state

    return planted


def undecayed(rule: Rule) -> Rule:
    def planted(update: Update) -> Updated:
        key = "decay" if "decay" in update.scalars else "weight_decay"
        one = update.build.add(update.build.multiply(update.scalars[key], 0.0), key == "decay")
        return rule(_with(update, {**update.scalars, key: one}))

    return planted


def _with(update: Update, scalars: Mapping[str, ir.Value]) -> Update:
    return Update(update.build, update.flags, scalars, update.weight, update.gradient, update.state)


def stale(rule: Rule) -> Rule:
    def planted(update: Update) -> Updated:
        weight, state = rule(update)
        old = {key: update.build.multiply(update.state[key], 1.0) for key in state}
        return weight, old

    return planted


def scaled(rule: Rule) -> Rule:
    def planted(update: Update) -> Updated:
        weight, state = rule(update)
        build = update.build
        step = build.multiply(build.subtract(weight, update.weight), 1.01)
        return build.add(update.weight, step), state

    return planted


@pytest.mark.parametrize("fault", [uphill, negated, undecayed, stale, scaled])
@pytest.mark.parametrize(
    ("ours", "name", "rule", "options"),
    [
        (SGD, "sgd_update", sgd_update, {"momentum": 0.9}),
        (Adam, "adam_update", adam_update, {}),
        (AdamW, "adam_update", adam_update, {"max_grad_norm": 1.0}),
    ],
)
def test_planted_errors_are_refused(
    ours: Any,
    name: str,
    rule: Rule,
    options: dict[str, Any],
    fault: Callable[[Rule], Rule],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimizers, name, fault(rule))
    names = parameters()
    what = r"state '\w+' of 'model__w0'" if fault is stale else "'model__w0'"
    pattern = rf"of {ours.__name__} in the exported graph .*: {what} by [0-9.e-]+ of its largest"
    # The rates are 0, as at the beginning of a warm-up: the check takes larger ones.
    with pytest.raises(ExportMismatchError, match=pattern):
        compared(names, [ours(names.values(), lr=0.0, **options)])


def test_a_wrong_norm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = optimizers._sum_of_squares
    monkeypatch.setattr(
        optimizers,
        "_sum_of_squares",
        lambda build, value: build.multiply(right(build, value), 1.05),
    )
    names = parameters()
    with pytest.raises(ExportMismatchError, match="step 1 of SGD in the exported graph"):
        compared(names, [SGD(names.values(), max_grad_norm=1e6)])


def test_many_numbers_are_prepared_and_get_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MOST_NUMBERS", 16)
    names = parameters()
    comparison = compared(names, [SGD(names.values())])
    assert comparison.notes == (
        "The update of the parameters is not compared with torch.optim: it has 271 numbers, and "
        "only up to 16 are compared.",
    )
    monkeypatch.setattr(optimizers, "adam_update", absent_update)
    with pytest.raises(EngineRefusalError, match="OPT part"):
        compared(names, [AdamW(names.values())])


@pytest.mark.parametrize("accumulation", [False, True])
def test_programs_are_compared_with_their_optimizers(
    accumulation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = net()
    records = [optimizer_record(AdamW(model.parameters()), 0, _named(model))]
    training = Training(gradient_accumulation=accumulation)
    monkeypatch.setattr(optimizers, "adam_update", negated(adam_update))
    trained_program(model, batch(), records, training)
    with pytest.raises(ExportMismatchError, match="of AdamW in the exported graph"):
        trained_program(model, batch(), records, training, check=True)


def _named(model: nn.Module) -> dict[str, torch.Tensor]:
    return {f"net__{n.replace('.', '__')}": p for n, p in model.named_parameters()}
