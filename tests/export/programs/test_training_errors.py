"""What cannot be trained is refused in words that name the operator and the user's line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.errors import GradientError, ModelError, UsageError
from samba_onnx.export.programs.training import export_training

VALUE = torch.randn(3, 4)


class Calling(nn.Module):
    """A linear layer, and any function of its result."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, value: Tensor) -> Any:
        return self.function(self.linear(value))


def test_a_loss_that_reaches_no_parameter() -> None:
    module = Calling(lambda found: (found.sum(), torch.ones(2)))
    with pytest.raises(GradientError, match=r"output 1 .* reaches no parameter"):
        export_training(module, (VALUE,), loss_indices=[1])


def test_a_loss_behind_an_operator_without_gradient_names_it() -> None:
    module = Calling(lambda found: found.argmax(-1).float().mean())
    with pytest.raises(GradientError, match=r"aten\.argmax.* at test_training_errors\.py:\d+"):
        export_training(module, (VALUE,))


def test_a_loss_behind_a_part_without_gradients_names_its_line() -> None:
    def constant(found: Tensor) -> Tensor:
        with torch.no_grad():
            doubled = found * 2.0
        return doubled.sum()

    with pytest.raises(
        GradientError, match=r"test_training_errors\.py:\d+ is under torch\.no_grad"
    ):
        export_training(Calling(constant), (VALUE,))


def test_frozen_parameters_only() -> None:
    module = Calling(torch.sum).requires_grad_(False)
    with pytest.raises(GradientError, match="reaches no parameter"):
        export_training(module, (VALUE,))


@pytest.mark.parametrize("name", ["igamma", "heaviside"])
def test_an_operator_that_torch_cannot_differentiate(name: str) -> None:
    function = getattr(torch, name)
    module = Calling(lambda found: function(found.exp(), found.exp()).sum())
    with pytest.raises(GradientError, match=rf"{name}.* at test_training_errors\.py:\d+"):
        export_training(module, (VALUE,))


class Caching(nn.Module):
    """Computes a part of its result in the first run only."""

    def __init__(self, *, detached: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale: Tensor | None = None
        self.detached = detached

    def forward(self, value: Tensor) -> Tensor:
        if self.scale is None:
            scale = self.linear.weight.exp()
            self.scale = scale.detach() if self.detached else scale
        return (self.linear(value) @ self.scale).square().mean()


def test_a_tensor_kept_with_the_history_of_an_earlier_run() -> None:
    """Torch's gradient goes through it to the weight, once; that of a compiled graph would not."""
    module = Caching(detached=False)
    module(VALUE)
    with pytest.raises(GradientError, match=r"'scale', which an earlier run computed"):
        export_training(module, (VALUE,))
    constant = Caching(detached=True)
    constant(VALUE)
    assert export_training(constant, (VALUE,)).members


def test_sizes_that_depend_on_values() -> None:
    module = Calling(lambda found: found[found > 0].mean())
    with pytest.raises(ModelError, match=r"test_training_errors\.py:\d+ returns sizes that depend"):
        export_training(module, (VALUE,))


def test_outputs_of_integers_are_no_losses() -> None:
    module = Calling(lambda found: found.argmax(-1))
    with pytest.raises(GradientError, match="floating-point"):
        export_training(module, (VALUE,))


@pytest.mark.parametrize("indices", [[2], [-3], [(0, 1)]])
def test_loss_indices_out_of_range(indices: Any) -> None:
    module = Calling(lambda found: (found.sum(), found))
    with pytest.raises(UsageError, match="2 outputs: use indices from 0 to 1"):
        export_training(module, (VALUE,), loss_indices=indices)


def test_unknown_inputs_have_no_gradient() -> None:
    with pytest.raises(UsageError, match=r"of image, but .* are value"):
        export_training(Calling(torch.sum), (VALUE,), input_gradients=["image"])


@pytest.mark.parametrize(
    "noise",
    [
        lambda found: found + torch.randn_like(found),
        lambda found: found * torch.rand(4),
        lambda found: torch.bernoulli(torch.sigmoid(found)) * found,
        lambda found: functional.rrelu(found, training=True),
    ],
)
def test_randomness_outside_dropout(noise: Any) -> None:
    module = Calling(lambda found: noise(found).sum())
    with pytest.raises(ModelError, match=r"at test_training_errors\.py:\d+ draws random numbers"):
        export_training(module, (VALUE,))


def test_what_gradients_need_must_not_be_written_before() -> None:
    class Queue(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("queue", torch.ones(3, 3))

        def forward(self, value: Tensor) -> Tensor:
            near = self.linear(value) @ self.queue
            self.queue.copy_(value.detach())
            return near.square().mean()

    module = Queue()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        module(torch.ones(3, 3)).backward()
    with pytest.raises(
        GradientError, match=r"matmul\S* at test_training_errors\.py:\d+ .* a clone"
    ):
        export_training(module, (torch.ones(3, 3),))
