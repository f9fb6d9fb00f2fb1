"""What a session knows by name."""

from __future__ import annotations

import pytest

import samba_onnx as samba
from samba_onnx.errors import InputError, UsageError
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
