"""Which outputs are losses, for every loss that torch has: held against torch's autograd."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from samba_onnx.export.capture.loss_marks import LOSS_FUNCTIONS
from samba_onnx.export.capture.modules import export_module
from samba_onnx.export.differentiation.joint import flat_outputs
from samba_onnx.export.programs.losses_rule import Basis, find_losses
from tests.export.loss_table import (
    OPERANDS,
    PLACES,
    REDUCTIONS,
    WAYS,
    LossCase,
    cases,
    function_of,
    inputs,
)
from tests.export.training_models import prepared

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*NLLLoss2d.* has been deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss:UserWarning"),
]

WHOLE = list(cases())
SAMPLE = [
    LossCase(name, WAYS[number % 3], REDUCTIONS[number // 2 % 3], list(PLACES)[number % 5])
    for number, name in enumerate(OPERANDS)
]
"""Every loss once, in one way of each kind."""
SAMPLE += [
    LossCase(name, "function", "mean", "beside")
    for name in ("GaussianNLLLoss", "MultiLabelSoftMarginLoss", "TripletMarginWithDistanceLoss")
]  # which torch has no operator for


def _slow_but_for_a_sample(cases: list[LossCase]) -> list[Any]:
    return [
        pytest.param(case, id=str(case), marks=() if case in SAMPLE else pytest.mark.slow)
        for case in dict.fromkeys(cases)
    ]


def test_the_table_has_every_loss_of_torch() -> None:
    everything = {
        name
        for name in (*nn.modules.loss.__all__, *dir(nn))
        if inspect.isclass(loss := getattr(nn.modules.loss, name, None))
        and issubclass(loss, nn.modules.loss._Loss)
    }
    assert set(OPERANDS) >= everything - {"_Loss", "_WeightedLoss"}


def test_every_function_that_a_loss_calls_is_known() -> None:
    called = {function_of(name) for name in OPERANDS}
    named = {
        function
        for name, function in vars(functional).items()
        if name.endswith("_loss") or "entropy" in name
    }
    assert called >= named  # the table of modules has all functions, too
    assert called == LOSS_FUNCTIONS


@pytest.mark.quick(every=2)
@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("case", _slow_but_for_a_sample(WHOLE))
def test_the_loss_is_the_loss_and_the_prediction_is_not(case: LossCase) -> None:
    exported = export_module(case.module(), inputs(), {})
    trained = set(exported.graph_signature.inputs_to_parameters)
    losses = find_losses(exported.graph, flat_outputs(exported), trained)
    assert losses.positions == (case.position,)
    assert losses.basis is Basis.RECOGNISED


@pytest.mark.quick(every=2)
@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    "case", _slow_but_for_a_sample([*(case for case in WHOLE if case.place == "beside"), *SAMPLE])
)
def test_gradients_are_those_of_the_loss_alone(case: LossCase) -> None:
    torch.manual_seed(0)
    module, batch = case.module(), inputs()
    machine = prepared(module, batch)
    machine.run()
    loss: Tensor = pytree.tree_leaves(module(*batch))[case.position]
    loss.backward(torch.ones_like(loss))
    for resident, path in machine.exported.members.items():
        gradient = module.get_parameter(path).grad
        torch.testing.assert_close(machine[f"{resident}__grad"], gradient, rtol=2e-5, atol=2e-6)
