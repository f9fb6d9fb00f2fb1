"""torch in float64, whatever a module asks for, and with every result moved by a rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.comparing.eager.roundings import Roundings, wide, widened

UNIT = 2.0**-23


class Insistent(nn.Module):
    """Asks for float32 in all ways that there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.table = torch.randn(4, 4)
        """No buffer: nobody widens it."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x).float() + torch.zeros(4, dtype=torch.float32) + torch.tensor(0.1)
        x = x.to(torch.bfloat16) @ self.table
        return torch.softmax(x.type(torch.float32), -1, dtype=torch.float32)


def test_whoever_insists_on_float32_gets_float64() -> None:
    torch.manual_seed(0)
    module, x = Insistent(), torch.randn(3, 4)
    table, weight, bias = module.table.double(), module.layer.weight, module.layer.bias
    hidden = x.double() @ weight.double().T + bias.double() + 0.1
    expected = torch.softmax(hidden @ table, -1)
    module.layer.double()
    with widened():
        result = module(wide(x))
    torch.testing.assert_close(result, expected, rtol=1e-13, atol=0.0)
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_results_move_by_a_rounding_and_no_further(dtype: torch.dtype) -> None:
    x = torch.rand(50, dtype=dtype) + 0.5
    with Roundings(UNIT, 0):
        assert torch.equal(x.view(5, 10).clone(), x.view(5, 10))
    for function in (torch.exp, torch.sum):  # the sum is of rank 0
        right = function(x.double())
        with Roundings(UNIT, 0):
            moved = function(x)
        error = ((moved.double() - right) / right).abs().max()
        assert 0 < error < 4 * UNIT


def test_gradients_move_too() -> None:
    x = torch.rand(50, dtype=torch.float64, requires_grad=True)
    (right,) = torch.autograd.grad(x.exp().tanh().sum(), [x])
    with Roundings(UNIT, 0):
        (moved,) = torch.autograd.grad(x.exp().tanh().sum(), [x])
    assert 0 < ((moved - right) / right).abs().max() < 100 * UNIT


def test_whole_numbers_stay() -> None:
    mask = torch.tensor([0.0, 1.0, 3.0, -10000.0, 0.5])
    with Roundings(UNIT, 0):
        moved = mask * 1.0
    assert torch.equal(moved[:4], mask[:4])
    assert moved[4] != 0.5
    assert torch.equal(Roundings(UNIT, 0).moved(mask)[:4], mask[:4])
    assert mask[4] == 0.5
    assert torch.equal(Roundings(UNIT, 0).moved(torch.arange(3)), torch.arange(3))


def test_complex_numbers_move() -> None:
    numbers = torch.randn(9, dtype=torch.complex128)
    moved = Roundings(UNIT, 0).moved(numbers)
    assert 0 < ((moved - numbers).abs() / numbers.abs()).max() <= UNIT


def test_keywords_reach_the_operators() -> None:
    with Roundings(UNIT, 0):
        assert torch.zeros(2, dtype=torch.float64).dtype is torch.float64
    bias, left, right = torch.ones(3), torch.ones(2, 2).double(), torch.ones(2, 3).double()
    with widened():
        assert torch.zeros(2, dtype=torch.complex64).dtype is torch.complex128
        # The bias is still float32: nobody has widened it.
        result = torch.addmm(bias, left, right, beta=3.0, alpha=2.0)
    assert torch.equal(result, torch.full((2, 3), 7.0, dtype=torch.float64))


def test_what_is_not_rounded_is_not_widened() -> None:
    for tensor in (torch.arange(3), torch.ones(2, dtype=torch.bool), torch.ones(2).double()):
        assert wide(tensor).dtype is tensor.dtype
    assert wide(torch.ones(2).bfloat16()).dtype is torch.float64
