"""Tensors of a traced graph: what stands for inputs, outputs and members of a module."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.export.programs.inference import inference_program
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.sessions.traced import (
    TracedGraph,
    empty_output,
    empty_tensor,
    host_buffers,
    host_parameters,
    matches,
    traced_graph,
)


class Net(nn.Module):
    """Tied weights, a buffer that is read and one that is only written."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)
        self.two.weight = self.one.weight
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("last", torch.zeros(1, 2))
        self.unused = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, same: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.two(self.one(x + same)) * self.scale
        self.last.copy_(y)
        return y, y.argmax(-1)


NAMES = ["one__weight", "one__bias", "two__bias"]


@pytest.mark.parametrize("converted", [False, True])
def test_members_are_known_by_one_name_and_share_memory(converted: bool) -> None:
    model = Net().eval()
    if converted:
        samba.from_torch_model_(model)
    parameters, buffers = host_parameters(model), host_buffers(model)
    assert set(parameters) == {f"net__{name}" for name in (*NAMES, "unused")}
    assert set(buffers) == {"net__scale", "net__last"}
    for name, tensor in (parameters | buffers).items():
        assert tensor.sn_name == name
    weight = parameters["net__one__weight"]
    assert (weight is model.one.weight) == converted
    assert weight.data_ptr() == model.one.weight.data_ptr()
    assert buffers["net__scale"].data_ptr() == model.scale.data_ptr()
    assert (buffers["net__scale"] is host_buffers(model)["net__scale"]) == converted
    if converted:
        # Another tensor in its place has its own memory.
        model.scale = torch.zeros(2)
        assert host_buffers(model)["net__scale"].torch().tolist() == [0, 0]


def traced(model: nn.Module) -> TracedGraph:
    x = samba.ones(1, 2, name="x")
    inputs = {"x": x, "same": x}
    return traced_graph(inference_program(model, inputs, name="g"), model, inputs)


def test_what_a_traced_graph_is_made_of() -> None:
    model = Net().eval()
    graph = traced(model)
    assert (graph.name, graph.model, graph.training) == ("g", model, False)
    assert [tensor.sn_name for tensor in graph.inputs] == ["x"]
    # What is only written is known by what it becomes; what is unused is not there.
    names = {f"net__{name}" for name in (*NAMES, "scale", "last")}
    assert set(graph.residents) == names
    values, places = graph.outputs
    assert (values.shape, values.dtype) == ((1, 2), torch.float32)
    assert (places.shape, places.dtype) == ((1,), torch.int64)
    assert values.sn_name == graph.program.outputs[0]  # type: ignore[union-attr]
    assert all(output._marks.stands_for_output for output in graph.outputs)
    listed = [tensor.sn_name for tensor in graph.tensors()]
    assert listed == ["x", *graph.residents, values.sn_name, places.sn_name]
    assert traced(Net().train()).training


def test_a_program_of_another_module_names_what_is_missing() -> None:
    model = Net().eval()
    x = samba.ones(1, 2, name="x")
    program = inference_program(model, {"x": x, "same": x}, name="g")
    model.one = nn.Identity()  # type: ignore[assignment]
    with pytest.raises(
        UsageError, match=r"parameter 'net__one__bias' of .* has net__.*, \.\.\.: conv"
    ):
        traced_graph(program, model, {"x": x, "same": x})


def test_gradients_of_a_module_are_those_that_the_pef_has() -> None:
    model = Net()
    graph = traced(model)
    kinds = {
        "net__one__weight__grad": SymbolKind.GRADIENT,
        "net__one__bias__grad": SymbolKind.WEIGHT,
        "net__last__grad": SymbolKind.GRADIENT,
    }
    symbols = [SimpleNamespace(name=name, kind=kind) for name, kind in kinds.items()]
    manifest: Any = SimpleNamespace(symbols=symbols)
    graph.hand_over(manifest)
    assert model.output_tensors is graph.outputs
    assert graph.watch is not None
    assert graph.watch.model is model
    # Both paths of the tied weight.
    assert set(graph.watch.gradients) == {"one.weight", "two.weight", "last"}


def symbol(type_: str, *shape: int | str | None) -> Symbol:
    return Symbol("s", SymbolKind.OUTPUT, f"tensor({type_})", shape)


def test_tensors_without_values() -> None:
    made = empty_tensor(symbol("int64", 3, "n", None))
    assert (made.sn_name, made.shape, made.dtype) == ("s", (3, 0, 0), torch.int64)
    assert not made.has_data
    assert not made._marks.stands_for_output
    assert empty_output(symbol("bool"))._marks.stands_for_output
    with pytest.raises(UsageError, match=r"torch cannot hold a tensor\(string\) \(it is no tensor"):
        empty_tensor(symbol("string"))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (symbol("float", 2, 3), True),
        (symbol("int64", 2, 3), False),
        (symbol("float", 3, 2), False),
        (symbol("float", 2), False),
        (symbol("float", "n", 3), True),
        (symbol("float", None, None), True),
        (symbol("int64", "n", 3), False),
        (symbol("float", "n", 2), False),
        (symbol("float", "n"), False),
        (Symbol("s", SymbolKind.OUTPUT, "tensor(float)", None), True),
        (Symbol("s", SymbolKind.OUTPUT, "tensor(int64)", None), False),
    ],
)
def test_which_tensors_match(one: Symbol, expected: bool) -> None:
    assert matches(one, torch.ones(2, 3)) is expected
