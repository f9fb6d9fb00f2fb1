"""Which calls a run executes, and in which order: one answer for all who ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samba_onnx.errors import ScheduleError, UsageError
from samba_onnx.pef.manifest import Call, Fallback, Graph, Section
from samba_onnx.program.kinds import SectionType
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.selection import section_types_of, select_sweeps
from tests.runtime.building import FROM, INPUT, OUTPUT, TO, Plan, build, section

FWD, BCKWD, OPT = SectionType.FWD, SectionType.BCKWD, SectionType.OPT
TYPES = (FWD, FWD, BCKWD, FWD, OPT)
"""Of stages 10 to 14, which calls 0 to 4 execute; the second runs on the host."""
STAGES: dict[int, Section | Fallback] = {
    number: (Fallback if number == 11 else Section)(
        number, f"s{number}", "main", "", (), (), (), {}, type=kind
    )
    for number, kind in enumerate(TYPES, 10)
}
GRAPH = Graph("main", (), (), tuple(Call(n, n + 10) for n in range(len(TYPES))), (), ())


def sweeps(**options: Any) -> list[list[int]]:
    return [[call.id for call in calls] for calls in select_sweeps(STAGES, GRAPH, **options)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[0, 1, 2, 3, 4]]),
        ({"section_ids": [], "section_types": ()}, [[0, 1, 2, 3, 4]]),
        ({"section_ids": 12}, [[2]]),
        ({"section_ids": np.array([10, 14])}, [[0, 4]]),
        ({"section_ids": [10, [11, (13,)]]}, [[0, 1, 3]]),
        ({"section_ids": [13, 10, 12, 12]}, [[3], [0, 2], [2]]),
        ({"section_ids": {13, 10, 12}}, [[0, 2, 3]]),
        ({"section_ids": [14, 10], "until_call": 4}, [[0]]),
        ({"section_types": "Fwd"}, [[0, 1, 3]]),
        ({"section_types": ["fwd", BCKWD]}, [[0, 1, 2, 3]]),
        ({"section_types": ["OPT", "fwd"]}, [[4], [0, 1, 3]]),
        ({"section_types": frozenset(["OPT", "FWD"])}, [[0, 1, 3, 4]]),
        ({"section_types": ["fwd"], "from_call": 1, "until_call": 3}, [[1]]),
        ({"from_call": 3}, [[3, 4]]),
        ({"until_call": 5}, [[0, 1, 2, 3, 4]]),
    ],
)
def test_passes(options: dict[str, Any], expected: list[list[int]]) -> None:
    assert sweeps(**options) == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"section_ids": [1], "section_types": ["FWD"]}, UsageError, "one of them, not both"),
        ({"section_ids": [[True]]}, UsageError, "has True; give integers"),
        ({"section_ids": "10"}, UsageError, "has '10'; give integers"),
        ({"section_ids": [1.0]}, UsageError, "has 1.0; give integers"),
        ({"section_ids": [10, 1]}, ScheduleError, "section 1 .* 'main', which has 10, 11, 12, 13"),
        ({"section_ids": {1}}, ScheduleError, "section 1 does not exist"),
        (
            {"section_types": ["sgd"]},
            ScheduleError,
            "^section type SGD .* 'main', which has FWD, BCKWD, OPT",
        ),
        ({"from_call": 6}, ScheduleError, "call 6 does not exist .* calls are 0 to 4"),
        ({"until_call": -1}, ScheduleError, "call -1 does not exist"),
        ({"until_call": "2"}, ScheduleError, "call '2' does not exist"),
        ({"from_call": 2, "until_call": 2}, ScheduleError, "no call"),
        ({"section_ids": [14], "until_call": 4}, ScheduleError, "no call"),
    ],
)
def test_what_cannot_be_selected(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sweeps(**options)


def test_a_graph_without_calls_is_one_empty_pass() -> None:
    assert select_sweeps({}, Graph("empty", ("x",), ("x",), (), (), ())) == ((),)


def test_types_of_what_is_executed() -> None:
    assert section_types_of(STAGES, select_sweeps(STAGES, GRAPH, [14, 12])) == {BCKWD, OPT}


def overlaid() -> Plan:
    """A chain whose third value takes the place of the first."""
    return Plan(
        [
            section("s (float[4] x) => (float[4] a) { a = Add(x, x) }"),
            section("s (float[4] a) => (float[4] b) { b = Mul(a, a) }"),
            section("s (float[4] b) => (float[4] c) { c = Neg(b) }"),
            section("s (float[4] c) => (float[4] y) { y = Neg(c) }"),
        ],
        ["x"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 3)],
        shared={"c": "a"},
    )


X = np.array([1, -2, 3, 0.5], np.float32)


def test_a_device_makes_several_passes_in_one_run(tmp_path: Path) -> None:
    with build(tmp_path, overlaid()) as pef, Device(pef) as device:
        for _ in range(3):
            y = device.run({"x": X}, section_ids=[[0, 1], [0, 1, 2, 3]])["y"]
            np.testing.assert_array_equal(y, 4 * X * X)
            assert [move.symbol for move in device.ledger.run()] == ["x", "y"]
        assert device.ledger.runs == 3


def test_a_later_pass_must_not_read_what_was_overwritten(tmp_path: Path) -> None:
    """Section 2 writes where section 1 reads: only section 0 makes that value again."""
    with build(tmp_path, overlaid()) as pef, Device(pef) as device:
        device.run({"x": X}, section_ids=[0])
        before = device.ledger.transfers
        with pytest.raises(ScheduleError, match=r"section 1 .* reads 'a', whose .* run section 0"):
            device.run({"x": 0 * X}, section_ids=[1, 2, 1])
        assert device.ledger.transfers == before
        np.testing.assert_array_equal(device.run()["y"], 4 * X * X)
        given = {"x": 2 * X}
        y = device.run(given, section_ids=[0, 1, 2, 0, 1, 2, 3])["y"]
        np.testing.assert_array_equal(y, 16 * X * X)


@pytest.mark.parametrize(
    ("count", "listed"), [(0, "none"), (2, "0, 1"), (12, "9, 10, 11"), (13, "10, 11, ...")]
)
def test_a_refusal_lists_the_first_sections(count: int, listed: str) -> None:
    numbers = range(count)
    stages = {n: Section(n, f"s{n}", "main", "", (), (), (), {}, type=FWD) for n in numbers}
    graph = Graph("main", (), (), tuple(Call(n, n) for n in numbers), (), ())
    with pytest.raises(ScheduleError) as caught:
        select_sweeps(stages, graph, [99])
    message = str(caught.value)
    assert message.startswith("section 99 does not exist in graph 'main', which has ")
    assert message.endswith(f" {listed}")
