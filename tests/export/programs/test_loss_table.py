"""Which outputs are losses, for every loss that torch has: held against torch's autograd."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from samba_onnx.export.capture.captured_modules import export_module
from samba_onnx.export.capture.loss_marks import LOSS_FUNCTIONS
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
    assert called == {
        loss
        for loss in LOSS_FUNCTIONS
        if hasattr(functional, loss.__name__) and getattr(functional, loss.__name__) is loss
    }


BY_TORCHS_NAME: dict[str, Callable[[Tensor], Tensor]] = {
    "binary_cross_entropy_with_logits": lambda x: torch.binary_cross_entropy_with_logits(
        x, torch.ones_like(x), None, None, 1
    ),
    "cosine_embedding_loss": lambda x: torch.cosine_embedding_loss(x, x * x, torch.ones(len(x))),
    "ctc_loss": lambda x: torch.ctc_loss(
        x.log_softmax(-1)[:, None], torch.tensor([[1, 2]]), [4], [2], 0, 1
    ),
    "hinge_embedding_loss": lambda x: torch.hinge_embedding_loss(x, torch.ones_like(x)),
    "kl_div": lambda x: torch.kl_div(x.log_softmax(-1), torch.ones_like(x) / 3, 1),
    "margin_ranking_loss": lambda x: torch.margin_ranking_loss(x, x * x, torch.ones_like(x)),
    "poisson_nll_loss": lambda x: torch.poisson_nll_loss(
        x, torch.ones_like(x), True, False, 1e-8, 1
    ),
    "triplet_margin_loss": lambda x: torch.triplet_margin_loss(x, x * x, x + 1),
}
"""Losses that torch has in its own namespace, too: calls of one number for some predictions."""


class Calling(nn.Module):
    """A layer, and a loss of what it predicts."""

    def __init__(self, loss: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.loss = nn.Linear(3, 3), loss

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        prediction = self.layer(x)
        return prediction, self.loss(prediction)


def test_the_table_has_every_loss_in_torchs_own_namespace() -> None:
    named = {
        loss.__name__ for loss in LOSS_FUNCTIONS if getattr(torch, loss.__name__, None) is loss
    }
    assert named - {"miopen_ctc_loss"} == set(BY_TORCHS_NAME)  # that one is of another device


@pytest.mark.parametrize("name", BY_TORCHS_NAME)
def test_a_loss_by_torchs_own_name_is_one(name: str) -> None:
    exported = export_module(Calling(BY_TORCHS_NAME[name]), (torch.randn(4, 3),), {})
    trained = set(exported.graph_signature.inputs_to_parameters)
    losses = find_losses(exported.graph, flat_outputs(exported), trained)
    assert (losses.positions, losses.basis) == ((1,), Basis.RECOGNISED)


@pytest.mark.parametrize("case", _slow_but_for_a_sample(WHOLE))
def test_the_loss_is_the_loss_and_the_prediction_is_not(case: LossCase) -> None:
    exported = export_module(case.module(), inputs(), {})
    trained = set(exported.graph_signature.inputs_to_parameters)
    losses = find_losses(exported.graph, flat_outputs(exported), trained)
    assert losses.positions == (case.position,)
    assert losses.basis is Basis.RECOGNISED


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
