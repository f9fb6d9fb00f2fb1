"""What a session knows by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import InputError, UsageError
from samba_onnx.sessions import SESSION
from samba_onnx.sessions.traced import TracedGraph
from samba_onnx.sessions.traced_state import TracedState
from tests.sessions.conftest import Compiled, Parts


def traced(parts: Parts, compiled: Compiled) -> TracedState:
    parts.tracer.trace(compiled.model, compiled.inputs, pef=compiled.path)
    return parts.state


def test_tensors_are_known_by_group_and_name(parts: Parts, compiled: Compiled) -> None:
    state = traced(parts, compiled)
    assert {group: len(tensors) for group, tensors in state.tensors.items()} == {
        "inputs": 2,
        "outputs": 2,
        "weights": 4,
        "buffers": 0,
        "grads": 0,
    }
    assert len(list(state)) == 8
    assert state.get_samba_tensor_by_name("shift") is compiled.shift
    assert not state.renamed
    with pytest.raises(InputError, match="'bias' was not traced; traced were 'features', 'shift'"):
        state.get_samba_tensor_by_name("bias")
    state.forget("shift")
    assert list(state.tensors["inputs"]) == ["features"]
    state.clear()
    assert list(state) == []
    assert state.graphs == {}
    assert state.listing() == "none"


def test_names_of_added_tensors_are_free(parts: Parts, compiled: Compiled) -> None:
    state = traced(parts, compiled)
    assert [state.is_valid_aux_tensor_name(name) for name in ("mask", "features", "")] == [
        True,
        False,
        False,
    ]
    state.add_aux_tensor(samba.ones(2), "mask")
    assert not state.is_valid_aux_tensor_name("mask")
    with pytest.raises(UsageError, match="there is a tensor 'mask' already"):
        state.add_aux_tensor(samba.ones(2), "mask")
    state.clear()
    assert not state.is_valid_aux_tensor_name("mask")
    assert state.is_valid_aux_tensor_name("features")


class Net(nn.Module):
    """In bfloat16, with a buffer that runs write."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(2, 3), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)).square().mean()


def test_of_a_program_that_trains(parts: Parts, tmp_path: Path) -> None:
    model = Net().bfloat16()
    samba.from_torch_model_(model)
    x = samba.from_torch_tensor(torch.ones(4, 2, dtype=torch.bfloat16), name="x")
    optimizers = [
        samba.optim.AdamW(model.linear.parameters(), lr=0.1, fp32_params=True),
        samba.optim.SGD(model.norm.parameters(), lr=0.1, momentum=0.5),
    ]
    path = SESSION.compile(model, (x,), optimizers, output=tmp_path / "m.pef", check=False)
    states = parts.state.optimizer_states
    parts.tracer.trace(model, (x,), pef=path)
    # What was handed out at the start is what is filled.
    assert states is parts.state.optimizer_states
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert set(parts.state.tensors["buffers"]) == {f"net__norm__{name}" for name in statistics}
    assert set(parts.state.tensors["weights"]) == {
        f"net__{layer}__{name}" for layer in ("linear", "norm") for name in ("weight", "bias")
    }
    momentum = states["net__norm__weight__momentum_buffer"]
    assert torch.equal(samba.to_torch(momentum), torch.zeros(3, dtype=torch.bfloat16))
    average = states["net__linear__weight__exp_avg"]
    assert torch.equal(samba.to_torch(average), torch.zeros(3, 2))
    # Zeros would be other weights: of a copy in float32, only the optimizer knows what it begins with.
    master = states["net__linear__weight__master"]
    assert not master.materializer_provided
    ones = {name: lambda t: torch.ones(t.shape) for name in (master.sn_name, "net__no__master")}
    parts.state.promise(ones)
    assert torch.equal(samba.to_torch(master), torch.ones(3, 2))
    assert "net__no__master" not in states


def test_graphs_add_their_tensors_to_those_of_others(parts: Parts, compiled: Compiled) -> None:
    state = traced(parts, compiled)
    first = state.graphs["forward"]
    second = TracedGraph(
        name="second",
        model=None,
        inputs=(samba.zeros(2, name="more"),),
        outputs=(samba.zeros(2, name="end"),),
        fingerprint=first.fingerprint,
        symbols={"more": "m"},
    )
    state.adopt(second, parts.program.manifest)
    assert list(state.tensors["inputs"]) == ["features", "shift", "more"]
    assert [*state.tensors["outputs"]][2:] == ["end"]
    assert state.renamed
    state.adopt(first, parts.program.manifest)
    assert state.renamed
    state.clear()
    assert not state.renamed


def test_a_listing_has_the_first_twelve_names() -> None:
    state = TracedState()
    assert not state.renamed
    for count in range(11, 15):
        names = [f"t{number}" for number in range(count)]
        state.tensors["inputs"] = {name: samba.zeros(1, name=name) for name in names}
        expected = ", ".join(map(repr, names[:12])) + (", ..." if count > 12 else "")
        assert state.listing() == expected
