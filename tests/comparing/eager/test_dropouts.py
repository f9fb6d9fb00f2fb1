"""Models with active dropouts are compared with the rates at 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn

from samba_onnx.comparing.eager.dropouts import _set_rate, rates_at_zero, without_dropouts
from samba_onnx.comparing.eager.training import compare_training
from samba_onnx.comparing.outcome import ComparisonOutcome, NotComparableError
from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.capture.captured_modules import PlaceholderKind, captured, export_module
from samba_onnx.export.decomposition.dropout import rate_of
from samba_onnx.export.operators import registry
from samba_onnx.export.programs.training import export_training
from tests.comparing.eager.planted import LINE, batch, net, wrong_number

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

    module.eval()
    right = outcome()
    module.train()
    torch.manual_seed(0)
    with rates_at_zero():
        first = outcome()
    torch.manual_seed(1)
    with rates_at_zero():
        second = outcome()
    assert torch.equal(first, second)
    assert not torch.equal(first, outcome())
    torch.testing.assert_close(first, right)


def test_other_random_numbers_are_noticed() -> None:
    drawn = r"aten\.rand_like\.default draws random numbers in torch"
    with pytest.raises(NotComparableError, match=drawn), rates_at_zero():
        torch.rand_like(torch.ones(2))


class Dropping(nn.Module):
    """Drops values in all ways in which a captured graph can; each rate is written in another place."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(8, 8, num_layers=2, dropout=0.5, batch_first=True)
        self.scale = torch.full((8,), 2.0)

    def forward(self, input: Tensor) -> Tensor:
        x = self.recurrent(input)[0] * self.scale
        x = (
            functional.dropout(x, 0.5, self.training)
            + torch.native_dropout(x, 0.5, self.training)[0]
        )
        rate = 0.5 if self.training else 0.0
        x = functional.scaled_dot_product_attention(x, x, x, dropout_p=rate)
        return functional.scaled_dot_product_attention(x, x, x, None, rate).exp()


def test_a_captured_graph_without_dropouts_is_that_of_the_module_in_eval() -> None:
    torch.manual_seed(0)
    module, x = Dropping().train(), torch.randn(2, 3, 8)
    exported = export_module(module, (x,), {})
    names = captured(export_module(module, (x,), {}), ["input"])
    # torch's own graph has an ``input``, which no copy can have.
    placeholders = tuple(dataclasses.replace(p, name=p.exported) for p in names.placeholders)
    constants = {p.exported: names.constants[p.name] for p in names.placeholders if p.name in names.constants}  # fmt: skip
    original = dataclasses.replace(
        names, graph_module=exported.graph_module, placeholders=placeholders, constants=constants
    )
    assert "input" in {p.name for p in placeholders}
    before = str(exported.graph)
    still = without_dropouts(original)
    assert str(exported.graph) == before
    nodes = still.graph_module.graph.find_nodes(op="placeholder")
    assert [p.name for p in still.placeholders] == [node.name for node in nodes]
    assert [p.kind for p in still.placeholders] == [p.kind for p in placeholders]
    assert not any(rate_of(node) for node in still.graph_module.graph.nodes if node.users)
    assert any(rate_of(node) for node in exported.graph.nodes)
    members = dict(module.named_parameters())
    operands = [
        x
        if p.kind is PlaceholderKind.INPUT
        else still.constants[p.name]
        if p.kind is PlaceholderKind.CONSTANT
        else members[p.qualified]
        for p in still.placeholders
    ]
    with torch.no_grad():
        (result,) = fx.Interpreter(still.graph_module).run(*operands)
        torch.testing.assert_close(result, module.eval()(x))


@pytest.mark.parametrize("by_keyword", [False, True])
def test_rates_are_set_where_they_stand(by_keyword: bool) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    rest: tuple[object, ...] = (None,) if by_keyword else (None, 0.5)
    keywords = {"dropout_p": 0.5} if by_keyword else {}
    attention = torch.ops.aten.scaled_dot_product_attention.default
    node = graph.call_function(attention, (x, x, x, *rest), keywords)
    assert rate_of(node) == 0.5
    _set_rate(node)
    assert (node.args[4:], node.kwargs) == (
        ((), {"dropout_p": 0.0}) if by_keyword else ((0.0,), {})
    )


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
