"""What a run is asked for, as it is meant."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from samba_onnx.runtime.reducing import GradientReduction, ReductionMode
from samba_onnx.sessions.run_arguments import RunArguments

TYPES: dict[str, tuple[Any, Any]] = {
    "one": ("FWD", ("FWD",)),
    "none": (None, ()),
    "read once": (iter(["FWD", "OPT"]), ("FWD", "OPT")),
    "a list": (["FWD"], ["FWD"]),
    "a set": ({"FWD"}, {"FWD"}),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_can_be_read_twice(name: str) -> None:
    given, expected = TYPES[name]
    assert RunArguments([], [], section_types=given).resolved().section_types == expected


def test_a_model_comes_first_and_all_else_one_place_later() -> None:
    model, inputs, outputs, rates = nn.Linear(1, 1), ["x"], ["y"], {"lr": 0.1}
    for given, (numbers, is_parallel) in (
        ((model, inputs, outputs, rates), (rates, False)),
        ((model, inputs, outputs, True), (None, True)),
        ((inputs, outputs, rates, True), (rates, True)),
    ):
        asked = RunArguments(*given).resolved()
        assert (asked.inputs, asked.outputs) == (inputs, outputs)
        assert (asked.numbers, asked.data_parallel) == (numbers, is_parallel)
    assert RunArguments(model, inputs).resolved().outputs == ()


def test_the_device_is_asked_for_all_of_it() -> None:
    reduction = GradientReduction(ReductionMode.OPTIMAL, 2, True)
    plain = RunArguments([], []).request("g", ["x"], ["y"], reduction)
    assert (plain.graph, plain.reduction, plain.single) == ("g", reduction, False)
    assert RunArguments([], [], detect_anomaly=True).request("g", [], [], None).single
