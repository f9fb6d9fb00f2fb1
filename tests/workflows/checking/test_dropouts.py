"""Models with active dropouts are compared with the rates at 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.operators import registry
from samba_onnx.export.programs.training import export_training
from samba_onnx.workflows.checking.dropouts import rates_at_zero
from samba_onnx.workflows.checking.outcome import ComparisonOutcome, NotComparableError
from samba_onnx.workflows.checking.training import compare_training
from tests.workflows.checking.planted import LINE, batch, net, wrong_number

functional = nn.functional

WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "functional": lambda x: functional.dropout(x, 0.5),
    "functional, by keyword": lambda x: functional.dropout(x, p=0.5),
    "in place": lambda x: functional.dropout(x * 1, 0.5, inplace=True),
    "operator": lambda x: torch.dropout(x, 0.5, True),
    "native": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "alpha": lambda x: functional.alpha_dropout(x, 0.5, True),
    "one dimension": nn.Dropout1d(0.5),
    "two dimensions": lambda x: nn.Dropout2d(0.5)(x[None]),
    "three dimensions": lambda x: nn.Dropout3d(0.5)(x[None, None]),
    "features": lambda x: nn.FeatureAlphaDropout(0.5)(x[None]),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x, None, 0.5),
    "attention, by keyword": lambda x: functional.scaled_dot_product_attention(
        x, x, x, dropout_p=0.5
    ),
}


@pytest.mark.parametrize("way", list(WAYS))
def test_every_way_to_drop_values_keeps_all_of_them(way: str) -> None:
    x = torch.randn(3, 8, 8)
    torch.manual_seed(0)
    with rates_at_zero():
        first = WAYS[way](x)
    torch.manual_seed(1)
    with rates_at_zero():
        second = WAYS[way](x)
    assert torch.equal(first, second)
    assert not torch.equal(first, WAYS[way](x))


@pytest.mark.parametrize(
    "module",
    [
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True),
        nn.LSTM(8, 4, num_layers=2, dropout=0.5),
        nn.GRU(8, 4, num_layers=2, dropout=0.5, batch_first=True),
        nn.RNN(8, 4, num_layers=2, dropout=0.5),
    ],
    ids=lambda module: type(module).__name__,
)
def test_layers_that_drop_values_inside(module: nn.Module) -> None:
    x = torch.randn(3, 5, 8)

    def outcome() -> Tensor:
        result = module(x)
        first: Tensor = result[0] if isinstance(result, tuple) else result
        return first

    torch.manual_seed(0)
    with rates_at_zero():
        first = outcome()
    torch.manual_seed(1)
    with rates_at_zero():
        second = outcome()
    assert torch.equal(first, second)
    assert not torch.equal(first, outcome())


def test_other_random_numbers_are_noticed() -> None:
    drawn = r"aten\.rand_like\.default draws random numbers in torch"
    with pytest.raises(NotComparableError, match=drawn), rates_at_zero():
        torch.rand_like(torch.ones(2))


def test_a_model_with_dropouts_is_compared() -> None:
    module, inputs = net(0.5).train(), batch()
    comparison = compare_training(module, inputs, export_training(module, inputs))
    assert comparison.outcome is ComparisonOutcome.DONE
    assert comparison.notes == (
        "What was compiled is compared with eager torch with the rates of all dropouts at 0.",
    )
    assert "net__layer__weight__grad" in comparison.errors


class Stack(nn.Module):
    """Recurrent layers and attention with dropouts inside."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(8, 8, num_layers=2, dropout=0.5, batch_first=True)
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(self.recurrent(x)[0]).square().mean()


def test_dropouts_inside_of_layers_are_compared() -> None:
    torch.manual_seed(0)
    module, inputs = Stack().train(), (torch.randn(2, 3, 8),)
    comparison = compare_training(module, inputs, export_training(module, inputs))
    assert comparison.outcome is ComparisonOutcome.DONE
    assert comparison.errors


def test_a_wrong_operator_beside_a_dropout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", wrong_number)
    module, inputs = net(0.5).train(), batch()
    exported = export_training(module, inputs)
    with pytest.raises(ExportMismatchError, match=rf"aten\.silu\.default at {LINE}"):
        compare_training(module, inputs, exported)


def test_a_wrong_gradient_beside_a_dropout_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE, "silu_backward", wrong_number)
    module, inputs = net(0.5).train(), batch()
    exported = export_training(module, inputs)
    with pytest.raises(ExportMismatchError, match="gradient of 'net__layer__"):
        compare_training(module, inputs, exported)
