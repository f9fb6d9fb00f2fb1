"""The loss of connectionist temporal classification, against torch's own operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.export.capture.alignments import ctc_loss
from tests.export.training_models import prepared

# Sums of probabilities in another order; float64 leaves nothing but that.
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def scores(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).log_softmax(-1).requires_grad_()


REPEATED = torch.tensor([[1, 1, 2], [3, 2, 0], [1, 2, 1]])
CASES: dict[str, tuple[Callable[[], Tensor], tuple[Any, ...]]] = {
    "padded": (
        lambda: scores(8, 3, 4),
        (REPEATED, torch.tensor([8, 5, 7]), torch.tensor([3, 2, 3])),
    ),
    "Python's numbers": (lambda: scores(8, 3, 4), (REPEATED, (8, 5, 7), (3, 0, 1))),
    "one behind the other": (
        lambda: scores(8, 3, 4),
        (torch.tensor([1, 1, 2, 3, 1]), torch.tensor([8, 8, 4]), torch.tensor([3, 0, 2])),
    ),
    "one behind the other, Python's numbers": (
        lambda: scores(8, 3, 4),
        (torch.tensor([1, 1, 2, 3, 1]), (8, 8, 4), (3, 0, 2)),
    ),
    "one sample": (lambda: scores(6, 4), (torch.tensor([1, 2]), torch.tensor(6), torch.tensor(2))),
    "another blank": (
        lambda: scores(8, 2, 4),
        (torch.tensor([[0, 1], [2, 2]]), torch.tensor([8, 8]), torch.tensor([2, 2]), 3),
    ),
    "filled with anything": (
        lambda: scores(8, 2, 4),
        (torch.tensor([[1, -1, 99], [2, 2, -1]]), torch.tensor([8, 6]), torch.tensor([1, 2])),
    ),
    "too few frames": (
        lambda: scores(3, 2, 4),
        (torch.tensor([[1, 1, 1], [1, 2, 1]]), torch.tensor([3, 3]), torch.tensor([3, 2])),
    ),
    "one frame": (
        lambda: scores(1, 2, 4),
        (torch.tensor([[1], [2]]), torch.tensor([1, 1]), torch.tensor([1, 0])),
    ),
}


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", list(CASES))
def test_losses_and_gradients_are_torchs(name: str, reduction: str, zero_infinity: bool) -> None:
    torch.manual_seed(0)
    make, arguments = CASES[name]
    values = make()
    results = [
        loss(values, *arguments, reduction=reduction, zero_infinity=zero_infinity)
        for loss in (functional.ctc_loss, ctc_loss)
    ]
    torch.testing.assert_close(results[1], results[0], **CLOSE)
    expected, gradient = (torch.autograd.grad(result.sum(), values)[0] for result in results)
    is_number = expected.isfinite()
    torch.testing.assert_close(gradient[is_number], expected[is_number], **CLOSE)
    lost = ~is_number.all(-1)
    assert not gradient[lost].isfinite().all(-1).any()


class Reading(nn.Module):
    """Reads frames as labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 4)
        self.criterion = nn.CTCLoss()

    def forward(self, frames: Tensor, labels: Tensor, sizes: Tensor, counts: Tensor) -> Any:
        values = self.layer(frames).log_softmax(-1)
        return self.criterion(values, labels, sizes, counts), values


def test_lengths_are_values_of_a_run() -> None:
    module = Reading()
    batch = (torch.randn(7, 2, 5), torch.tensor([[1, 1, 2], [3, 2, 1]]))
    machine = prepared(module, (*batch, torch.tensor([7, 7]), torch.tensor([3, 3])))
    for sizes, counts in (([7, 5], [3, 1]), ([4, 7], [2, 0]), ([6, 7], [3, 2])):
        inputs = (*batch, torch.tensor(sizes), torch.tensor(counts))
        machine.give(inputs)
        machine.run()
        module.zero_grad()
        loss, _ = module(*inputs)
        loss.backward()
        torch.testing.assert_close(machine[machine.losses[0]], loss.detach())
        for resident, path in machine.exported.members.items():
            gradient = module.get_parameter(path).grad
            torch.testing.assert_close(machine[f"{resident}__grad"], gradient, rtol=2e-5, atol=2e-6)


def test_torchs_own_name_for_it_is_captured_too() -> None:
    class Direct(Reading):
        def forward(self, frames: Tensor, labels: Tensor, sizes: Tensor, counts: Tensor) -> Any:
            values = self.layer(frames).log_softmax(-1)
            return torch.ctc_loss(values, labels, sizes, counts, 0, 2, True), values

    module = Direct()
    inputs = (
        torch.randn(7, 2, 5),
        torch.tensor([[1, 1, 2], [3, 2, 1]]),
        torch.tensor([7, 7]),
        torch.tensor([3, 3]),
    )
    machine = prepared(module, inputs)
    machine.run()
    torch.testing.assert_close(machine[machine.losses[0]], module(*inputs)[0].detach())
