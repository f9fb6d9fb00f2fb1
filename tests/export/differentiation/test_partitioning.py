"""What is kept between forward and backward."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from samba_onnx.export.differentiation import partitioning
from samba_onnx.export.programs.training import export_training
from samba_onnx.export.translation.builder import element, sizes
from samba_onnx.program.program import Program


def kept(program: Program) -> dict[str, int]:
    """Return the bytes of what a program keeps for its backward, by name."""
    public = {*program.outputs, *program.residents}
    values = [v for v in program.parts[0].model.graph.outputs if v.name not in public]
    return {v.name or "": math.prod(sizes(v)) * int(element(v).itemsize) for v in values}


class Chain(nn.Module):
    """Two layers with an activation between them."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(8, 64)
        self.activation = activation
        self.second = nn.Linear(64, 4)

    def forward(self, value: Tensor, wanted: Tensor) -> Tensor:
        hidden = self.activation(self.first(value))
        return functional.mse_loss(self.second(hidden), wanted)


INPUTS = (torch.randn(16, 8), torch.randn(16, 4))
HIDDEN = 16 * 64


@pytest.mark.parametrize(
    ("activation", "size"),
    [
        # The result feeds the second layer's gradient, and its sign is that of the argument.
        (nn.ReLU(), 4 * HIDDEN),
        (nn.Tanh(), 4 * HIDDEN),
        (nn.Flatten(), 4 * HIDDEN),
        (nn.Dropout(0.5), (4 + 1) * HIDDEN),
        # Its argument; its result is computed again.
        (nn.GELU(), 4 * HIDDEN),
        (nn.Sequential(nn.SiLU(), nn.Tanh(), nn.GELU("tanh")), 4 * HIDDEN),
        # A sum over rows is not: one tensor after it, one before.
        (nn.Softmax(-1), 4 * HIDDEN),
        (nn.Sequential(nn.GELU(), nn.Softmax(-1)), 8 * HIDDEN),
    ],
)
def test_no_more_is_kept_than_needed(activation: nn.Module, size: int) -> None:
    values = kept(export_training(Chain(activation), INPUTS).program)
    difference = 16 * 4 * 4
    assert sum(values.values()) == size + difference, values


def test_a_large_mask_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "LARGE_MASK", HIDDEN)
    values = kept(export_training(Chain(nn.Dropout(0.5)), INPUTS).program)
    assert sum(values.values()) == 4 * HIDDEN + 16 * 4 * 4, values


@pytest.mark.parametrize(
    ("activation", "size"),
    [
        (nn.ReLU(), 4 * HIDDEN),
        (nn.GELU(), 2 * 4 * HIDDEN),
        (nn.Sequential(nn.SiLU(), nn.Tanh(), nn.GELU("tanh")), 3 * 4 * HIDDEN),
        (nn.Softmax(-1), 4 * HIDDEN),
    ],
)
def test_programs_of_small_sections_keep_activations(activation: nn.Module, size: int) -> None:
    """As torch does: every argument that a gradient needs, and the result that the second layer's gradient reads."""
    values = kept(export_training(Chain(activation), INPUTS, keeps_activations=True).program)
    assert sum(values.values()) == size + 16 * 4 * 4, values


def test_large_masks_are_drawn_again_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "LARGE_MASK", HIDDEN)
    program = export_training(Chain(nn.Dropout(0.5)), INPUTS, keeps_activations=True).program
    assert sum(kept(program).values()) == 4 * HIDDEN + 16 * 4 * 4, kept(program)
    backward = program.parts[1].model.graph
    assert sum(node.op_type == "DropoutMask" for node in backward) == 1


def test_a_comparison_is_kept_as_booleans() -> None:
    class Signs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 64)

        def forward(self, value: Tensor) -> Tensor:
            return torch.relu(self.linear(value)).sum()

    values = kept(export_training(Signs(), INPUTS[:1]).program)
    assert list(values.values()) == [HIDDEN]


def test_views_inputs_weights_and_outputs_are_not_kept() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 64)
            self.last = nn.Linear(8, 8)

        def forward(self, value: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.linear(value)
            turned = hidden.view(16, 8, 8).transpose(1, 2)
            return self.last(turned).sum(), hidden

    assert kept(export_training(Views(), INPUTS[:1], loss_indices=[0]).program) == {}


@pytest.mark.parametrize("keeps", [False, True])
def test_a_small_mask_is_kept_and_not_what_it_scales_by(keeps: bool) -> None:
    program = export_training(Chain(nn.Dropout(0.5)), INPUTS, keeps_activations=keeps).program
    assert sum(kept(program).values()) == (4 + 1) * HIDDEN + 16 * 4 * 4, kept(program)


def test_parts_are_kept_of_what_is_conjugate_by_a_flag() -> None:
    class Spectrum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, value: Tensor) -> Tensor:
            line = torch.fft.rfft(self.linear(value))
            return (line * line.conj() * line).real.square().sum()

    module, value = Spectrum(), INPUTS[0]
    program = export_training(module, (value,), keeps_activations=True).program
    complex_bytes = 16 * 5 * 2 * 4
    assert sorted(kept(program).values()) == [complex_bytes // 2, complex_bytes, complex_bytes]
