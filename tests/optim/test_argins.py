"""The scalars of a step, and which hyperparameter keys reach whom."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import PefFormatError, UsageError
from samba_onnx.optim import (
    SGD,
    Adam,
    AdamW,
    DeviceOptimizer,
    Flag,
    OptimizerKind,
    OptimizerRecord,
    derive,
    from_json,
    hyperparameter_names,
    optimizer_record,
    state_keys,
    state_name,
    to_json,
    with_settings,
)
from samba_onnx.optim.argins import refuse_new_clipping, steps_after


def record(kind: type[DeviceOptimizer], **options: Any) -> OptimizerRecord:
    weight = nn.Parameter(torch.ones(2))
    return optimizer_record(kind([weight], **options), names={"w": weight})


def test_bias_corrections_are_those_of_torch_in_double_precision() -> None:
    values = derive(record(AdamW, lr=0.01, weight_decay=0.1), {}, 7)
    corrections = 1 - 0.9**7, math.sqrt(1 - 0.997**7)
    assert values == {
        "optimizer0__group0__decay": 1 - 0.01 * 0.1,
        "optimizer0__group0__one_minus_beta1": 1 - 0.9,
        "optimizer0__group0__beta2": 0.997,
        "optimizer0__group0__one_minus_beta2": 1 - 0.997,
        "optimizer0__group0__epsilon": 1e-8 * corrections[1],
        "optimizer0__group0__step_size": 0.01 / corrections[0] * corrections[1],
    }


def test_the_first_momentum_buffer_is_not_dampened() -> None:
    dampened = record(SGD, momentum=0.9, dampening=0.25)
    name = "optimizer0__group0__one_minus_dampening"
    assert [derive(dampened, {}, step)[name] for step in (1, 2, 3)] == [1.0, 0.75, 0.75]


def test_a_step_of_sgd_reads_these_scalars() -> None:
    given = record(SGD, lr=0.1, momentum=0.9, dampening=0.25, weight_decay=0.5)
    assert derive(given, {}, 2) == {
        "optimizer0__group0__lr": 0.1,
        "optimizer0__group0__weight_decay": 0.5,
        "optimizer0__group0__momentum": 0.9,
        "optimizer0__group0__one_minus_dampening": 0.75,
    }


def test_adam_adds_its_weight_decay_to_the_gradient() -> None:
    values = derive(record(Adam, lr=0.01, weight_decay=0.1), {}, 1)
    assert values["optimizer0__group0__weight_decay"] == 0.1
    assert "optimizer0__group0__decay" not in values


def test_hyperparameters_are_set_by_keys_with_the_region_of_the_group() -> None:
    assert hyperparameter_names(record(SGD)) == ("lr", "momentum", "dampening", "weight_decay")
    assert hyperparameter_names(record(AdamW, max_grad_norm=1.0, argin_region_name="head")) == (
        *("head_lr", "head_beta1", "head_beta2", "head_eps", "head_weight_decay"),
        "head_max_grad_norm",
    )


@pytest.mark.parametrize("separator", ["_", "__", ""])
def test_a_region_is_set_apart_in_any_way(separator: str) -> None:
    adam = record(Adam, argin_region_name="head")
    keys = {f"head{separator}lr": 0.5, f"head{separator}betas": (0.5, 0.25)}
    values = derive(adam, keys, 1)
    assert values["optimizer0__group0__one_minus_beta1"] == 0.5
    assert values["optimizer0__group0__beta2"] == 0.25
    assert with_settings(adam, keys).groups[0].hyperparameters["lr"] == 0.5


def test_the_own_name_of_an_argin_goes_before_all_other_keys() -> None:
    keys = {"lr": 0.5, "optimizer0__group0__lr": 0.25, "optimizer1__group0__lr": 0.125}
    assert derive(record(SGD), keys, 1)["optimizer0__group0__lr"] == 0.25


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_a_number_may_be_zero_or_a_tensor(kind: Any) -> None:
    for setting in (0, 0.0, torch.tensor(0.0)):
        current = with_settings(record(kind, lr=0.1), {"lr": setting, "weight_decay": 1})
        assert current.groups[0].hyperparameters["lr"] == 0.0
        assert current.groups[0].hyperparameters["weight_decay"] == 1.0


def test_settings_of_a_run_are_those_of_its_record() -> None:
    given = record(AdamW, lr=0.1, max_grad_norm=2.0)
    assert with_settings(given, {}) is given
    assert with_settings(given, {"p": 0.5}) == given
    current = with_settings(given, {"lr": 0.5, "beta2": 0.25, "max_grad_norm": 0})
    assert current.max_grad_norm == 0.0
    assert current.groups[0].hyperparameters == {
        "lr": 0.5,
        "beta1": 0.9,
        "beta2": 0.25,
        "eps": 1e-8,
        "weight_decay": 0,
    }


def test_a_step_counts_unless_sgd_has_no_momentum_in_it() -> None:
    assert steps_after(record(SGD), (3,)) == (3,)
    assert steps_after(record(SGD, momentum=0.5), (3,)) == (4,)
    assert steps_after(record(Adam, betas=(0.0, 0.0)), (0,)) == (1,)


def test_clipping_is_refused_where_no_optimizer_clips() -> None:
    plain, clipping = record(SGD), record(AdamW, max_grad_norm=1.0)
    refuse_new_clipping([plain, clipping], {"max_grad_norm": 2.0})
    refuse_new_clipping([plain], {"lr": 2.0})
    with pytest.raises(UsageError, match=r"max_grad_norm is 2.0, .* compiled with SGD without it"):
        refuse_new_clipping([plain], {"max_grad_norm": 2.0})


def test_groups_may_stand_at_different_steps() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    groups: list[Any] = [{"params": [first]}, {"params": [second]}]
    both = optimizer_record(
        SGD(groups, momentum=0.5, dampening=0.25), names={"a": first, "b": second}
    )
    values = derive(both, {}, (1, 2))
    assert values["optimizer0__group0__one_minus_dampening"] == 1.0
    assert values["optimizer0__group1__one_minus_dampening"] == 0.75
    with pytest.raises(UsageError, match="step is 0"):
        derive(both, {}, (1, 0))


def test_keys_without_prefix_reach_every_optimizer_without_one() -> None:
    plain, prefixed = record(SGD, lr=0.1), record(SGD, lr=0.1, argin_region_name="head")
    for key, reached in (("lr", plain), ("head_lr", prefixed), ("headlr", prefixed)):
        for one in (plain, prefixed):
            expected = 0.5 if one is reached else 0.1
            assert derive(one, {key: 0.5, "p": 0.3}, 1)["optimizer0__group0__lr"] == expected


def test_a_group_may_have_keys_of_its_own() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    groups: list[Any] = [
        {"params": [first]},
        {"params": [second], "argin_region_name": "bias", "lr": 0.3},
    ]
    both = optimizer_record(SGD(groups, lr=0.1), names={"a": first, "b": second})
    assert hyperparameter_names(both)[:1] == ("lr",)
    assert "bias_lr" in hyperparameter_names(both)
    values = derive(both, {"lr": 0.2}, 1)
    assert values["optimizer0__group0__lr"] == 0.2
    assert values["optimizer0__group1__lr"] == 0.3
    assert derive(both, {"bias_lr": 0.4}, 1)["optimizer0__group1__lr"] == 0.4


@pytest.mark.parametrize("given", [{"betas": (0.5, 0.25)}, {"beta1": 0.5, "beta2": 0.25}])
def test_betas_are_set_together_or_one_by_one(given: dict[str, Any]) -> None:
    values = derive(record(Adam), given, 1)
    assert values["optimizer0__group0__one_minus_beta1"] == 0.5
    assert values["optimizer0__group0__beta2"] == 0.25


def test_the_largest_norm_is_an_argin_of_the_optimizer() -> None:
    clipped = record(AdamW, max_grad_norm=2.0)
    assert "max_grad_norm" in hyperparameter_names(clipped)
    assert derive(clipped, {}, 1)["optimizer0__max_grad_norm"] == 2.0
    assert derive(clipped, {"max_grad_norm": 3}, 1)["optimizer0__max_grad_norm"] == 3.0
    assert "max_grad_norm" not in hyperparameter_names(record(AdamW))


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (SGD, {"lr": "fast"}, "hyperparameter lr is 'fast'; give a number"),
        (SGD, {"lr": -1.0}, "hyperparameter lr is -1.0; give a number of at least 0"),
        (SGD, {"lr": math.nan}, "hyperparameter lr is nan"),
        (AdamW, {"beta1": 1.0}, "hyperparameter beta1 is 1.0; give a number below 1"),
        (AdamW, {"betas": 0.9}, "betas is 0.9; give two numbers"),
        (AdamW, {"betas": (0.9,)}, "give two numbers"),
        (AdamW, {"betas": (0.9, 0.9, 0.9)}, "give two numbers"),
        (Adam, {"beta2": 1.5}, "hyperparameter beta2 is 1.5; give a number below 1"),
        (SGD, {"lr": math.inf}, "hyperparameter lr is inf"),
        (SGD, {"lr": None, "optimizer0__group0__lr": "x"}, "hyperparameter lr is 'x'"),
        (SGD, {"momentum": -0.9}, "hyperparameter momentum is -0.9; give a number of at least 0"),
        (SGD, {"nesterov": True}, "compiled with nesterov=False: it changes what SGD computes"),
        (SGD, {"maximize": 1.0}, "make SGD with maximize=True and compile again"),
        (AdamW, {"amsgrad": True}, "amsgrad is True, but the program was compiled with amsgrad=F"),
        (Adam, {"optimizer0__group0__amsgrad": True}, "make Adam with amsgrad=True"),
    ],
)
def test_impossible_hyperparameters_are_refused(kind: Any, given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        derive(record(kind), given, 1)


def test_no_momentum_is_no_news_to_an_optimizer_without() -> None:
    given = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.01}
    assert derive(record(SGD, lr=0.0), given, 1)["optimizer0__group0__weight_decay"] == 0.01


def test_steps_are_counted_from_one() -> None:
    with pytest.raises(UsageError, match="step is 0"):
        derive(record(SGD), {}, 0)


@pytest.mark.parametrize(
    "made",
    [
        record(SGD, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
        record(AdamW, amsgrad=True, max_grad_norm=1, fp32_params=True, argin_region_name="x"),
    ],
)
def test_records_survive_json(made: OptimizerRecord) -> None:
    assert from_json(json.loads(json.dumps(to_json(made)))) == made


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kind": "Adagrad"}, "has an optimizer of unknown kind 'Adagrad'"),
        ({"name": 3}, "has an optimizer without name"),
        ({"groups": {}}, "has an optimizer without a list of groups"),
        ({"groups": [1]}, "has int where a group of an optimizer should be"),
        ({"max_grad_norm": "1"}, "has an optimizer whose max_grad_norm is '1'"),
        ({"max_grad_norm": math.inf}, "has an optimizer whose max_grad_norm is inf"),
        ({"fp32_params": None}, "does not say whether weights have a float32 copy"),
        ({"argin_region_name": None}, "has an optimizer without argin_region_name"),
        ({"flags": ["slow"]}, r"has an optimizer with unknown flags \['slow'\]"),
        ({"flags": [["momentum"]]}, "has an optimizer with unknown flags"),
        ({"parameters": [1]}, "has a parameter of an optimizer whose name is no text"),
        ({"hyperparameters": {"lr": 1, "eps": 1}}, "has SGD with hyperparameters lr, eps"),
        (
            {"hyperparameters": None},
            "has NoneType where the hyperparameters of an optimizer should be",
        ),
        (
            {"hyperparameters": {"lr": 1, "momentum": 1, "dampening": 1, "weight_decay": True}},
            "has an optimizer whose weight_decay is True",
        ),
    ],
)
def test_what_is_no_record_is_refused(change: dict[str, Any], complaint: str) -> None:
    document = to_json(record(SGD, momentum=0.9))
    inner = set(change) <= set(document["groups"][0]) - set(document)
    (document["groups"][0] if inner else document).update(change)
    with pytest.raises(PefFormatError, match=f"^the PEF {complaint}.*; compile the model again"):
        from_json(document)


@pytest.mark.parametrize(
    "key",
    [
        *("kind", "name", "fp32_params", "argin_region_name", "groups"),
        *("parameters", "hyperparameters", "flags"),
    ],
)
def test_a_record_that_lacks_anything_is_refused(key: str) -> None:
    document = to_json(record(SGD, momentum=0.9))
    for place in (document, *document["groups"]):
        place.pop(key, None)
    with pytest.raises(PefFormatError, match="compile the model again"):
        from_json(document)


def test_a_record_without_the_largest_norm_clips_nothing() -> None:
    document = to_json(record(SGD))
    assert document["max_grad_norm"] is None
    assert from_json(document).max_grad_norm is None


def test_a_record_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(PefFormatError, match="has list where an optimizer should be"):
        from_json([])


def test_optimizers_of_torch_are_described_too() -> None:
    weight = nn.Parameter(torch.ones(2))
    names = {"w": weight}
    cases = [
        (torch.optim.SGD([weight], lr=0.1, momentum=0.5), OptimizerKind.SGD),
        (torch.optim.Adam([weight], lr=torch.tensor(0.1)), OptimizerKind.ADAM),
        (torch.optim.AdamW([weight], lr=0.1), OptimizerKind.ADAMW),
        (torch.optim.Adam([weight], lr=0.1, decoupled_weight_decay=True), OptimizerKind.ADAMW),
    ]
    for optimizer, kind in cases:
        described = optimizer_record(optimizer, 3, names)
        assert (described.kind, described.parameters) == (kind, ("w",))
        assert described.groups[0].hyperparameters["lr"] == pytest.approx(0.1, rel=1e-7)
        assert described.groups[0].name == "optimizer3__group0"
    assert optimizer_record(cases[0][0], 0, names).groups[0].flags == frozenset()
    nesterov = torch.optim.SGD([weight], lr=0.1, momentum=0.5, nesterov=True)
    assert optimizer_record(nesterov, 0, names).groups[0].flags == {Flag.NESTEROV}


class HalfSteps(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        raise NotImplementedError


@pytest.mark.parametrize("kind", [torch.optim.Adagrad, torch.optim.RMSprop, HalfSteps])
def test_optimizers_with_other_rules_are_refused(kind: Any) -> None:
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(UsageError, match=f"{kind.__name__} cannot be compiled: use SGD"):
        optimizer_record(kind([weight], lr=0.1), names={"w": weight})


@pytest.mark.parametrize(
    ("kind", "flags", "keys"),
    [
        (OptimizerKind.SGD, {Flag.NESTEROV}, ("momentum_buffer",)),
        (OptimizerKind.ADAM, {Flag.MAXIMIZE}, ("exp_avg", "exp_avg_sq")),
        (OptimizerKind.ADAMW, {Flag.AMSGRAD}, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
    ],
)
def test_states_are_called_as_torch_calls_them(
    kind: OptimizerKind, flags: set[Flag], keys: tuple[str, ...]
) -> None:
    assert state_keys(kind, frozenset(flags)) == keys
    assert state_name("w", keys[0]) == f"w__{keys[0]}"


def test_what_torchs_optimizers_do_not_have_is_off() -> None:
    weight = nn.Parameter(torch.ones(2))
    plain = optimizer_record(torch.optim.SGD([weight]), names={"w": weight})
    assert (plain.argin_region_name, plain.fp32_params, plain.max_grad_norm) == ("", False, None)
    assert plain.groups[0].argin_region_name == ""
    own = record(SGD, argin_region_name="x", fp32_params=True)
    assert (own.argin_region_name, own.fp32_params) == ("x", True)


def test_converted_parameters_have_names_of_their_own() -> None:
    layer = nn.Linear(2, 2)
    samba.from_torch_model_(layer)
    record = optimizer_record(SGD(layer.parameters()))
    assert record.parameters == ("linear__weight", "linear__bias")


def test_a_choice_may_be_repeated_as_it_was_made() -> None:
    nesterov = record(SGD, momentum=0.9, nesterov=True)
    assert derive(nesterov, {"nesterov": True, "maximize": False}, 1) == derive(nesterov, {}, 1)


def test_without_a_region_keys_have_no_prefix() -> None:
    values = derive(record(SGD, lr=0.1), {"_lr": 0.5, "__lr": 0.5}, 1)
    assert values["optimizer0__group0__lr"] == 0.1


def test_a_record_without_groups_has_no_scalars() -> None:
    assert derive(dataclasses.replace(record(SGD), groups=()), {}, ()) == {}


def test_a_differentiable_optimizer_is_refused() -> None:
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(UsageError, match=r"^a differentiable optimizer cannot be compiled: leave"):
        optimizer_record(torch.optim.SGD([weight], lr=0.1, differentiable=True))


def test_parameters_need_names() -> None:
    with pytest.raises(UsageError, match=r"shape \(2,\) without a name: convert the model"):
        optimizer_record(SGD([nn.Parameter(torch.ones(2))]))
