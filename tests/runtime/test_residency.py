"""Where values are: places that are the same, told apart from those that are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import ScheduleError
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.device import Device
from tests.runtime.building import (
    FALLBACK,
    FROM,
    INPUT,
    TO,
    WEIGHT,
    Piece,
    Plan,
    build,
    fallback,
    planned,
    section,
)

X = np.arange(4, dtype=np.float32)


def test_equal_places_are_one_state(tmp_path: Path) -> None:
    plan = Plan([section("f (float[4] x) => (float[4] y) { y = Neg(x) }")], ["x"], ["y"])
    with build(tmp_path, plan) as pef, Device(pef) as device:
        values = device._values
        first = values.settle()
        values.keep_on_host("other", X)
        assert values.settle() is not first
        values.release_host(["other"])
        assert values.settle() is first
        for number in range(200):
            values.keep_on_host(f"value {number}", X)
            values.settle()
        assert len(values._states) <= 64, "states are let go"


def test_values_of_other_shapes_in_one_place_do_not_survive_a_write(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("f (float[4] x) => (float[4] y) { y = Neg(x) }"),
            Piece("f (float[2] z) => (float[2] v) { v = Neg(z) }", graph="short"),
        ],
        ["x"],
        ["y"],
        shared={"x": "place", "z": "place"},
        graphs={"short": (["z"], ["v"])},
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for _ in range(3):
            device.run({"z": X[:2]}, graph="short")
            np.testing.assert_array_equal(device.run({"x": X}, graph="main")["y"], -X)
            with pytest.raises(ScheduleError, match="'z' has no value"):
                device.read("z")
            with pytest.raises(ValueError, match="'z' was never given"):
                device.run(graph="short")


def test_a_resident_that_the_last_of_several_fallbacks_writes(tmp_path: Path) -> None:
    """Its copy to the device is one of the call that made it."""
    plan = Plan(
        [
            section("s (float[4] x) => (float[4] a) { a = Neg(x) }"),
            fallback("c (float[4] a) => (float[4] b) { b = Neg(a) }"),
            fallback(
                "c (float[4] b, float[4] total) => (float[4] total__updated) "
                "{ total__updated = Add(total, b) }"
            ),
        ],
        ["x"],
        [],
        [
            ("x", TO, INPUT, 0),
            ("a", FROM, FALLBACK, 1),
            ("total", FROM, FALLBACK, 2),
            ("total__updated", TO, FALLBACK, 2),
        ],
        [("total", WEIGHT)],
        kinds={"total": SymbolKind.BUFFER, "total__updated": SymbolKind.BUFFER},
        shared={"total__updated": "total"},
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.load({"total": X})
        for run in range(1, 4):
            device.run({"x": X})
            assert device.ledger.run() == planned(plan, pef)
            np.testing.assert_array_equal(device.read("total"), (run + 1) * X)
