"""ONNX models in the place of modules: their inputs by name, and what they look like."""

from __future__ import annotations

import os
from typing import Any

import onnx
import pytest
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.sessions.onnx_models import input_symbols, is_onnx, onnx_fingerprint
from tests.importing.building import parse, ramp

X, Y, OTHER = (samba.zeros(2, name=name) for name in ("x", "y", "other"))
NAMES = ("x", "y")


def test_what_is_an_onnx_model() -> None:
    assert [is_onnx(one) for one in ("m.onnx", onnx.ModelProto(), nn.ReLU())] == [True, True, False]
    assert is_onnx(os.fspath("m.onnx"))
    with pytest.raises(UsageError, match=r"^the model is int; give"):
        is_onnx(3)
    with pytest.raises(UsageError, match="the class ReLU, and not a module of it"):
        is_onnx(nn.ReLU)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"y": X, "x": Y}, {"y": X, "x": Y}),
        ({"x": X}, {"x": X}),
        ({"a": Y, "b": X}, {"y": Y, "x": X}),
        ({"x": X, "a": OTHER}, {"x": X, "y": OTHER}),
        ((Y, X), {"y": Y, "x": X}),
        ([OTHER, X], {"x": OTHER, "y": X}),
        (OTHER, {"x": OTHER}),
        ({"x": X, "y": 3}, {"x": X}),
    ],
)
def test_inputs_are_told_apart_by_key_name_or_place(
    inputs: Any, expected: dict[str, samba.SambaTensor]
) -> None:
    found = input_symbols(NAMES, inputs)
    assert {name: id(tensor) for name, tensor in found.items()} == {
        name: id(tensor) for name, tensor in expected.items()
    }


def test_more_inputs_than_the_model_has_are_refused() -> None:
    with pytest.raises(UsageError, match=r"3 inputs were given; the ONNX model has x, y$"):
        input_symbols(NAMES, (X, Y, OTHER))


def test_a_fingerprint_has_the_shapes_that_are_known() -> None:
    model = parse(
        "g (float[n, 6] x, float[3] unread) => (float[n, 3] y) { y = MatMul(x, w) }", w=ramp(6, 3)
    )
    # As old models have it.
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [6, 3]))
    print_, names = onnx_fingerprint(model, {})
    assert names == ("x", "unread")
    assert print_.interface == (
        "input 'x' float[n, 6]",
        "input 'unread' float[3]",
        "output 'y' float[n, 3]",
    )
    sized, _ = onnx_fingerprint(model, {"x": (4, 6)})
    assert sized.interface[:2] == ("input 'x' [4, 6]", "input 'unread' float[3]")
