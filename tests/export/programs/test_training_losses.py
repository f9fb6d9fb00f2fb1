"""Which outputs count as losses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.errors import GradientError
from samba_onnx.export.programs.losses_rule import chosen_losses, find_losses


def losses_of(function: Any) -> list[int]:
    """Return what the rule finds among the outputs of a function of logits and labels."""

    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.loss = nn.MultiLabelSoftMarginLoss()

        def forward(self, value: Tensor, labels: Tensor) -> Any:
            return function(self, self.linear(value), labels)

    inputs = (torch.randn(5, 4), torch.randint(0, 3, (5,)))
    return find_losses(_outputs(torch.export.export(Called(), inputs, strict=False)))


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


def test_nested_outputs_are_named_by_paths() -> None:
    class Nested(nn.Module):
        def forward(self, value: Tensor) -> Any:
            return {"first": value, "pair": (value + 1, [value + 2, value.argmax()])}

    exported = torch.export.export(Nested(), (torch.randn(3),), strict=False)
    outputs, spec = _outputs(exported), exported.call_spec.out_spec
    assert chosen_losses([0, (1, 1, 0)], outputs, spec) == [0, 2]
    assert chosen_losses([(-3,), -2], outputs, spec) == [1, 2]
    with pytest.raises(GradientError, match="output 3"):
        chosen_losses([3], outputs, spec)
