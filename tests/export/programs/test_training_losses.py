"""Which outputs count as losses."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from samba_onnx.errors import GradientError
from samba_onnx.export.capture.captured_modules import export_module
from samba_onnx.export.differentiation.joint import flat_outputs
from samba_onnx.export.programs.losses_rule import Basis, LossChoice, chosen_losses, find_losses
from samba_onnx.export.programs.training import export_training


class DiceLoss(nn.Module):
    """A loss that nobody but its class's name calls so."""

    def forward(self, value: Tensor, target: Tensor) -> Tensor:
        return 1 - 2 * (value * target).sum() / (value.sum() + target.sum())


class Relative(nn.MSELoss):
    """A loss of torch's in another formula."""

    def forward(self, value: Tensor, target: Tensor) -> Tensor:
        return ((value - target) / (target.abs() + 1)).square().mean()


class Both(nn.MSELoss):
    """A loss of torch's that returns more than the loss."""

    def forward(self, value: Tensor, target: Tensor) -> Any:
        return value, super().forward(value, target)


class Judged(NamedTuple):
    """Logits with what they are worth."""

    logits: Tensor
    loss: Tensor


class Called(nn.Module):
    """Calls a function with itself, logits and labels."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.linear = nn.Linear(4, 3)
        self.loss = nn.MultiLabelSoftMarginLoss()
        self.dice, self.relative, self.both = DiceLoss(), Relative(), Both()
        self.register_buffer("average", torch.zeros(()))

    def forward(self, value: Tensor, labels: Tensor) -> Any:
        return self.function(self, self.linear(value), labels)


def choice_of(function: Any) -> LossChoice:
    """Return what the rule finds among the outputs of a function of logits and labels."""
    inputs = (torch.randn(5, 4), torch.randint(0, 3, (5,)))
    exported = export_module(Called(function), inputs, {})
    trained = exported.graph_signature.inputs_to_parameters
    outputs, spec = flat_outputs(exported), exported.call_spec.out_spec
    return find_losses(exported.graph, outputs, trained, spec)


def losses_of(function: Any) -> list[int]:
    return list(choice_of(function).positions)


def _outputs(exported: torch.export.ExportedProgram) -> Any:
    return exported.graph.output_node().args[0]


CROSS_ENTROPY = functional.cross_entropy


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda m, x, y: (CROSS_ENTROPY(x, y), x), [0]),
        (lambda m, x, y: (x, CROSS_ENTROPY(x, y)), [1]),
        (lambda m, x, y: (CROSS_ENTROPY(x, y) * 1, x * 1), [0]),
        (lambda m, x, y: (CROSS_ENTROPY(x, y, reduction="none").mean(), x), [0]),
        (lambda m, x, y: (CROSS_ENTROPY(x, y, reduction="none").view(5, 1), x), [0]),
        (lambda m, x, y: (x, CROSS_ENTROPY(x, y) + 0.1 * m.linear.weight.pow(2).sum()), [1]),
        (lambda m, x, y: (CROSS_ENTROPY(x, y), CROSS_ENTROPY(x, y) / 2, x), [0, 1]),
        (lambda m, x, y: (functional.nll_loss(x.log_softmax(-1), y), x), [0]),
        (lambda m, x, y: (functional.mse_loss(x, x * 2), x), [0]),
        (lambda m, x, y: (functional.l1_loss(x, x * 2), x), [0]),
        (lambda m, x, y: (functional.smooth_l1_loss(x, x * 2), x), [0]),
        (lambda m, x, y: (functional.huber_loss(x, x * 2), x), [0]),
        (lambda m, x, y: (functional.kl_div(x, x * 2, reduction="batchmean"), x), [0]),
        (lambda m, x, y: (functional.multi_margin_loss(x, y), x), [0]),
        (lambda m, x, y: (functional.binary_cross_entropy(x.sigmoid(), x * 0), x), [0]),
        (lambda m, x, y: (functional.binary_cross_entropy_with_logits(x, x * 0), x), [0]),
        (lambda m, x, y: (functional.poisson_nll_loss(x, x * 2), x), [0]),
        (lambda m, x, y: (functional.cosine_embedding_loss(x, x, y.float()), x), [0]),
        (lambda m, x, y: (functional.triplet_margin_loss(x, x, x), x), [0]),
        (lambda m, x, y: (m.loss(x, x * 0), x), [0]),
        (lambda m, x, y: {"loss": CROSS_ENTROPY(x, y), "logits": x, "nothing": None}, [0]),
        (lambda m, x, y: (x, x.sum()), [0, 1]),
        (lambda m, x, y: (x, x.argmax(-1)), [0]),
        (lambda m, x, y: ((x - 1).pow(2).mean(), y), [0]),
    ],
)
def test_outputs_that_a_loss_made(function: Any, expected: list[int]) -> None:
    assert losses_of(function) == expected


MSE = functional.mse_loss


def written_into_memory(m: nn.Module, x: Tensor, y: Tensor) -> Any:
    losses = torch.zeros(2)
    losses[1] = MSE(x, x * 2)
    return x, losses, losses.detach(), losses.sum()


def added_in_place(m: nn.Module, x: Tensor, y: Tensor) -> Any:
    total = torch.zeros(())
    for column in x.unbind(1):
        total += MSE(column, column * 2)
    return x, total


def without_gradients(m: nn.Module, x: Tensor, y: Tensor) -> Any:
    with torch.no_grad():
        metric = MSE(x, x * 2)
    return metric, CROSS_ENTROPY(x, y), x


def in_low_precision(m: nn.Module, x: Tensor, y: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return MSE(x, x * 2), x


def averaged_beside(m: Called, x: Tensor, y: Tensor) -> Any:
    loss = MSE(x, x * 2)
    m.average.mul_(0.9).add_(0.1 * loss.detach())  # type: ignore[operator]
    return m.average.clone(), loss, x  # type: ignore[operator]


def focal(m: nn.Module, x: Tensor, y: Tensor) -> Any:
    each = functional.binary_cross_entropy_with_logits(x, x.sigmoid().detach(), reduction="none")
    return x, ((1 - torch.exp(-each)) ** 2 * each).mean()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (written_into_memory, [3]),
        (added_in_place, [1]),
        (without_gradients, [1]),
        (in_low_precision, [0]),
        (averaged_beside, [1]),
        (focal, [1]),
        (lambda m, x, y: (x, checkpoint(MSE, x, x * 2, use_reentrant=False)), [1]),
        (lambda m, x, y: (CROSS_ENTROPY(x, y), MSE(x.detach(), torch.ones(5, 3)), x), [0]),
        (lambda m, x, y: (CROSS_ENTROPY(x, y), CROSS_ENTROPY(x, y).exp(), x), [0]),
        (lambda m, x, y: torch.broadcast_tensors(x, MSE(x, x * 2)), [1]),
        (lambda m, x, y: (torch.stack([MSE(x, x * 2), m.loss(x, x * 0)]).unbind()[1], x), [0]),
        (lambda m, x, y: (MSE(x, x * 2, reduction="none").mean(1).topk(2)[0].sum(), x), [0]),
        (lambda m, x, y: (x.index_select(0, MSE(x, x * 2).long().view(1)), MSE(x, x * 2)), [1]),
        (lambda m, x, y: (torch.where(MSE(x, x * 2) > 1, x, -x), MSE(x, x * 2)), [1]),
        (lambda m, x, y: (torch.ops.aten.mse_loss(x, x * 2), x), [0]),
        (lambda m, x, y: (x, torch.cosine_embedding_loss(x, x * 2, y.sign())), [1]),
        (lambda m, x, y: (m.dice(x, x * 2), x.view(-1)), [0]),
        (lambda m, x, y: (m.relative(x, x * 2), x.squeeze()), [0]),
        (lambda m, x, y: m.both(x, x * 2), [1]),
    ],
)
def test_losses_by_where_they_come_from(function: Any, expected: list[int]) -> None:
    choice = choice_of(function)
    assert (list(choice.positions), choice.basis) == (expected, Basis.RECOGNISED)


def in_low_precision_beside_its_parts(m: nn.Module, x: Tensor, y: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one, other = MSE(x, x * 2), m.loss(x, x * 0)  # type: ignore[operator]
        return one, other, x, one + other


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda m, x, y: (x, loss := MSE(x, x * 2), loss + CROSS_ENTROPY(x, y), loss * 2), [2, 3]),
        (lambda m, x, y: ((each := MSE(x, x * 2, reduction="none")).mean(), each, x), [0]),
        (lambda m, x, y: (loss := MSE(x, x * 2), x, loss), [0]),
        (lambda m, x, y: (*torch.stack([MSE(x, x * 2), m.loss(x, x * 0)]).unbind(), x), [0, 1]),
        (lambda m, x, y: (loss := MSE(x, x * 2), loss.sqrt(), loss.detach() + 1), [0]),
        (lambda m, x, y: (added_in_place(m, x, y)[1] + (loss := MSE(x, x * 3)), loss, x), [0]),
        (in_low_precision_beside_its_parts, [3]),
    ],
)
def test_parts_of_losses_count_once(function: Any, expected: list[int]) -> None:
    assert losses_of(function) == expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda m, x, y: {"logits": x, "loss": (x - 1).square().mean()}, [1]),
        (lambda m, x, y: {"mse": MSE(x, x * 2), "loss": CROSS_ENTROPY(x, y)}, [1]),
        (lambda m, x, y: {"a": {"loss": x.sum()}, "b": [{"loss": x.mean()}, x]}, [0, 1]),
        (lambda m, x, y: Judged(x, (x - 1).square().mean()), [1]),
    ],
)
def test_what_is_called_a_loss_is_one(function: Any, expected: list[int]) -> None:
    choice = choice_of(function)
    assert (list(choice.positions), choice.basis) == (expected, Basis.CALLED)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda m, x, y: (MSE(x, x * 2).sqrt(), x), [0]),
        (lambda m, x, y: (x, torch.logsumexp(MSE(x, x * 2, reduction="none"), (0, 1))), [1]),
    ],
)
def test_what_is_computed_of_losses_is_one_where_there_is_no_other(
    function: Any, expected: list[int]
) -> None:
    choice = choice_of(function)
    assert (list(choice.positions), choice.basis) == (expected, Basis.COMPUTED)


def test_an_output_that_cannot_be_trained_is_no_loss() -> None:
    def function(m: nn.Module, x: Tensor, y: Tensor) -> Any:
        return x.detach(), (x - 1).square().mean(), y.float()

    assert choice_of(function) == LossChoice((1,), Basis.ALL)
    assert choice_of(lambda m, x, y: (x.mean(), x.sum())).is_doubtful
    assert choice_of(lambda m, x, y: x).is_doubtful
    module = Called(lambda m, x, y: (MSE(x.detach(), torch.ones(5, 3)), x))
    with pytest.raises(GradientError, match=r"output 0 .* reaches no parameter"):
        export_training(module, (torch.randn(5, 4), torch.randint(0, 3, (5,))))


def by_hand(logits: Tensor, labels: Tensor) -> Tensor:
    return -logits.log_softmax(-1).gather(1, labels[:, None]).mean()


MIXED = {
    "beside": (lambda m, x, y: (by_hand(x, y), x), [0], [0, 1]),
    "behind": (lambda m, x, y: (x, by_hand(x, y)), [1], [0, 1]),
    "of one element": (lambda m, x, y: (x, by_hand(x, y).reshape(1)), [1], [0, 1]),
    "two of three": (lambda m, x, y: (x.mean(), x, (x - 1).square().sum()), [0, 2], [0, 1, 2]),
    "by name": (lambda m, x, y: {"logits": x, "objective": by_hand(x, y)}, [1], [0, 1]),
}


@pytest.mark.parametrize(("function", "numbers", "all_of_them"), MIXED.values(), ids=MIXED.keys())
def test_a_number_beside_tensors_is_refused_with_the_index_to_state(
    function: Any, numbers: list[int], all_of_them: list[int]
) -> None:
    inputs = (torch.randn(5, 4), torch.randint(0, 3, (5,)))
    with pytest.raises(GradientError) as caught:
        export_training(Called(function), inputs)
    assert f"loss_indices={numbers}" in str(caught.value)
    assert f"loss_indices={all_of_them} for the sum of all" in str(caught.value)
    for indices in (numbers, all_of_them):
        exported = export_training(Called(function), inputs, loss_indices=indices)
        assert list(exported.losses.positions) == indices


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x, y: (x.mean(), x.square().sum()),  # several numbers, all of which are meant
        lambda m, x, y: (x, x * 2),  # several tensors
        lambda m, x, y: (by_hand(x, y), x.detach()),  # the other cannot be trained
        lambda m, x, y: (by_hand(x, y), y),  # nor can integers
        lambda m, x, y: (nn.functional.cross_entropy(x, y), x),  # a loss of torch's is recognised
        lambda m, x, y: {"loss": by_hand(x, y), "logits": x},  # it is called so
    ],
)
def test_outputs_of_one_kind_are_taken_as_documented(function: Any) -> None:
    assert export_training(Called(function), (torch.randn(5, 4), torch.randint(0, 3, (5,))))


def test_nested_outputs_are_named_by_paths() -> None:
    class Nested(nn.Module):
        def forward(self, value: Tensor) -> Any:
            return {"first": value, "pair": (value + 1, [value + 2, value.argmax()])}

    exported = torch.export.export(Nested(), (torch.randn(3),), strict=False)
    outputs, spec = _outputs(exported), exported.call_spec.out_spec
    assert chosen_losses([0, (1, 1, 0)], outputs, spec).positions == (0, 2)
    assert chosen_losses([(-3,), -2], outputs, spec).positions == (1, 2)
    with pytest.raises(GradientError, match="output 3"):
        chosen_losses([3], outputs, spec)
