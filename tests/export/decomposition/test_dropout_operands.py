"""Graphs that only run forward, with rates and seeds of their dropouts as operands."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn import functional

from samba_onnx.errors import InternalError, ModelError
from samba_onnx.export.decomposition import dropout_operands
from samba_onnx.export.decomposition.dropout import dropout_mask
from samba_onnx.export.decomposition.dropout_operands import DroppingGraph, with_dropout_operands

MASK = torch.ops.samba.dropout_mask.default


class Calling(nn.Module):
    """A module of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def exported(function: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
    graph_module: fx.GraphModule = torch.export.export(Calling(function), inputs).graph_module
    return graph_module


def dropping(graph_module: fx.GraphModule) -> DroppingGraph:
    result = with_dropout_operands(graph_module, lambda node, kind: f"{kind}_of_{node.name}")
    assert result is not None
    return result


class Machine(fx.Interpreter):
    """Runs a graph; of every mask each third element is a zero."""

    def __init__(self, graph: DroppingGraph, values: Mapping[str, Tensor]) -> None:
        super().__init__(graph.graph_module)
        self.values = values
        self.masks: dict[int, Tensor] = {}

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Tensor:
        return self.values[str(target)]

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is not MASK:
            return super().call_function(target, args, kwargs)
        rate, seed, shape, stream = args
        assert (rate.dtype, seed.dtype) == (torch.float32, torch.int32)
        size = torch.Size(shape)
        self.masks[stream] = (torch.arange(size.numel()) % 3 > 0).reshape(size)
        return self.masks[stream]


def run(graph: DroppingGraph, rate: float, **inputs: Tensor) -> tuple[Any, dict[int, Tensor]]:
    operands = {
        name: torch.tensor(rate if argin.type == "tensor(float)" else 0, dtype=torch.float32)
        for name, argin in graph.argins.items()
    }
    seeds = {name: value.int() for name, value in operands.items() if "seed" in name}
    machine = Machine(graph, {**inputs, **operands, **seeds})
    results = machine.run()
    return results[0] if len(results) == 1 else results, machine.masks


def two(x: Tensor) -> Tensor:
    return functional.dropout(functional.relu(functional.dropout(x, 0.25)), 0.5).sin()


def test_every_dropout_reads_a_rate_and_a_seed() -> None:
    x = torch.randn(4, 6)
    graph_module = exported(two, x)
    before = str(graph_module.graph)
    graph = dropping(graph_module)
    assert str(graph_module.graph) == before
    assert {name: (one.name, one.type, one.default) for name, one in graph.argins.items()} == {
        "dropout_rate_0": ("dropout_of_dropout__rate", "tensor(float)", 0.25),
        "dropout_seed_0": ("dropout_of_dropout__seed", "tensor(int32)", 0.0),
        "dropout_rate_1": ("dropout_of_dropout_1__rate", "tensor(float)", 0.5),
        "dropout_seed_1": ("dropout_of_dropout_1__seed", "tensor(int32)", 0.0),
    }
    placeholders = graph.graph_module.graph.find_nodes(op="placeholder")
    assert {node.name for node in placeholders} == {"inputs_0", *graph.argins}
    for node in placeholders:
        if node.name in graph.argins:
            wanted = torch.float32 if "rate" in node.name else torch.int32
            assert (node.meta["val"].shape, node.meta["val"].dtype) == ((), wanted)
    result, masks = run(graph, 0.5, inputs_0=x)
    assert list(masks) == [0, 1]
    torch.testing.assert_close(result, (4 * functional.relu(x) * masks[0] * masks[1]).sin())


@pytest.mark.parametrize("function", [torch.sin, lambda x: functional.dropout(x, 0.5, False)])
def test_a_graph_that_drops_nothing_stays_as_it_is(function: Any) -> None:
    graph_module = exported(function, torch.randn(4))
    assert with_dropout_operands(graph_module, lambda node, kind: kind) is None


def test_nodes_of_a_dropout_know_where_it_was_written() -> None:
    graph_module = exported(two, torch.randn(4, 6))
    written = [node for node in graph_module.graph.nodes if "dropout" in node.name]
    masks = [
        node for node in dropping(graph_module).graph_module.graph.nodes if node.target is MASK
    ]
    for key in ("stack_trace", "nn_module_stack"):
        assert [node.meta[key] for node in masks] == [node.meta[key] for node in written]
    assert all("val" in node.meta for node in masks)


def test_an_operator_that_cannot_be_traced_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dropout_operands, "traced", lambda *_: None)
    with pytest.raises(ModelError, match=r"cannot be compiled with its dropout: call eval\(\)"):
        dropping(exported(two, torch.randn(4, 6)))


def test_dropouts_inside_operators_are_taken_apart() -> None:
    def attend(x: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5, scale=0.25)

    x = torch.randn(1, 2, 5, 4)
    graph = dropping(exported(attend, x))
    result, masks = run(graph, 0.75, inputs_0=x)
    weights = (0.25 * x @ x.transpose(-1, -2)).softmax(-1)
    torch.testing.assert_close(result, (4 * weights * masks[0]) @ x)


def test_several_results_of_one_operator_are_read_one_by_one() -> None:
    def native(x: Tensor) -> tuple[Tensor, Tensor]:
        kept, mask = torch.native_dropout(x, 0.5, True)
        return kept, mask

    x = torch.randn(4, 6)
    (kept, mask), masks = run(dropping(exported(native, x)), 0.5, inputs_0=x)
    assert torch.equal(mask, masks[0])
    torch.testing.assert_close(kept, 2 * x * mask)


def test_dropouts_in_a_graph_of_another_one_are_found() -> None:
    offset = torch.tensor(1.5)

    def inner(x: Tensor) -> Tensor:
        with torch.no_grad():
            first = functional.dropout(x, 0.5)
        with torch.no_grad():
            second = functional.dropout(first + offset, 0.25)
        return second + first

    x = torch.randn(4, 6)
    graph_module = exported(inner, x)
    assert any("wrap_with_set_grad" in str(node.target) for node in graph_module.graph.nodes)
    graph = dropping(graph_module)
    assert len(graph.argins) == 4
    names = {node.name for node in graph.graph_module.graph.find_nodes(op="placeholder")}
    others = dict.fromkeys(names - {*graph.argins, "inputs_0"}, offset)
    result, masks = run(graph, 0.5, inputs_0=x, **others)
    first = 2 * x * masks[0]
    torch.testing.assert_close(result, 2 * (first + 1.5) * masks[1] + first)


def test_a_mask_is_never_computed_on_the_host() -> None:
    with pytest.raises(InternalError, match="please report this"):
        dropout_mask(torch.tensor(0.5), torch.tensor(0), [2], 0)


def scaled(factor: float) -> fx.GraphModule:
    """Return a graph that multiplies by a tensor of its own."""
    graph, root = fx.Graph(), nn.Module()
    root.own = nn.Module()
    root.own.register_buffer("factor", torch.tensor(factor))
    product = graph.call_function(
        torch.ops.aten.mul.Tensor, (graph.placeholder("x"), graph.get_attr("own.factor"))
    )
    graph.output((product,))
    return fx.GraphModule(root, graph)


def test_tensors_of_one_name_in_two_graphs_that_are_called_stay_apart() -> None:
    graph, root = fx.Graph(), nn.Module()
    value = graph.placeholder("x")
    inner = [scaled(2.0), scaled(-3.0)]
    for number, one in enumerate(inner):
        setattr(root, f"called_{number}", one)
        called = graph.get_attr(f"called_{number}")
        without_gradient = torch.ops.higher_order.wrap_with_set_grad_enabled
        results = graph.call_function(without_gradient, (False, called, value))
        value = graph.call_function(operator.getitem, (results, 0))
    graph.output((graph.call_function(torch.ops.aten.dropout.default, (value, 0.5, True)),))
    whole = fx.GraphModule(root, graph)
    x = torch.randn(3, 4)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    for one in (*inner, whole):
        FakeTensorProp(one, mode).propagate_dont_convert_inputs(mode.from_tensor(x))
    result, masks = run(dropping(whole), 0.5, x=x)
    (mask,) = masks.values()
    torch.testing.assert_close(result, torch.where(mask, x * -6 / 0.5, 0.0))
