"""Values on their way into a run and out of it, and the sentences about those that do not fit."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import InputError, UsageError
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.sessions.run_values import (
    FetchedOutput,
    fetched_outputs,
    input_arrays,
    output_tensor,
    wrapped,
)
from samba_onnx.tensor.marks import Marks

GRAPH: Any = SimpleNamespace(name="g", outputs=("y", "z"))
SYMBOLS = {
    "x": Symbol("x", SymbolKind.INPUT, "tensor(float)", (2, 4)),
    "n": Symbol("n", SymbolKind.INPUT, "tensor(int32)", (2,)),
}
TRACED: Any = SimpleNamespace(
    symbol=lambda name: {"mine": "x", "result": "z"}.get(name, name),
    inputs=(samba.zeros(2, 4, name="mine"), samba.zeros(1, name="unread")),
)
ONES = torch.ones(2, 4)


def test_what_the_host_alone_has_is_given_unless_the_run_has_it() -> None:
    host = {"x": ONES, "n": torch.zeros(2, dtype=torch.int32), "other": ONES}
    arrays = input_arrays(GRAPH, None, SYMBOLS, {"n": torch.tensor([3, 4])}, host)
    assert set(arrays) == {"x", "n"}
    assert arrays["n"].tolist() == [3, 4]


def test_inputs_are_known_as_they_were_traced() -> None:
    given = {"mine": ONES, "unread": torch.ones(1)}
    assert list(input_arrays(GRAPH, TRACED, SYMBOLS, given, {})) == ["x"]
    has = r"has 'x' tensor\(float\)\[2, 4\], 'n' tensor\(int32\)\[2\]: name the tensor"
    for traced in (TRACED, None):
        with pytest.raises(InputError, match=rf"'image' does not exist; graph 'g' {has}"):
            input_arrays(GRAPH, traced, SYMBOLS, {"image": ONES}, {})
    with pytest.raises(InputError, match="graph 'g' has none: name"):
        input_arrays(GRAPH, None, {}, {"image": ONES}, {})


def test_an_input_of_another_shape_is_told_of_before_its_numbers_are_looked_at() -> None:
    large = {"n": torch.tensor([2**40, 1, 1])}
    with pytest.raises(
        InputError, match=r"torch.int64 of shape \[3\], compiled was tensor\(int32\)\[2\]: give"
    ):
        input_arrays(GRAPH, None, SYMBOLS, large, {})
    batched = {"n": dataclasses.replace(SYMBOLS["n"], batch_shape=(1,))}
    with pytest.raises(InputError, match=r"\[2\], mini-batches of \[1\] one after the other: give"):
        input_arrays(GRAPH, None, batched, large, {})


def test_outputs_are_asked_for_by_names_and_tensors() -> None:
    elsewhere = samba.zeros(1, name="y")
    elsewhere.sn_region_name = "place"
    asked = {"first": "result", "second": elsewhere}
    one, other = fetched_outputs(GRAPH, TRACED, asked)
    assert one == FetchedOutput("z", Marks("result"), computed=True)
    assert other == FetchedOutput("y", Marks("y", "place"), computed=True)
    assert fetched_outputs(GRAPH, TRACED, samba.zeros(1, name="y"))[0].marks == Marks("y")
    with pytest.raises(
        UsageError, match="'loss' does not exist; graph 'g' has outputs 'y', 'z': ask"
    ):
        fetched_outputs(GRAPH, None, "loss")


def test_what_comes_out_is_a_leaf_without_a_gradient() -> None:
    leaf = wrapped(ONES.clone(), Marks("y"))
    assert (leaf.sn_name, leaf.requires_grad) == ("y", False)
    with pytest.raises(UsageError, match="output 'y' is list, which no tensor can hold"):
        output_tensor(FetchedOutput("y", Marks("y"), computed=True), {"y": [ONES]})
