"""Where values are: places that are the same, told apart from those that are not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import ScheduleError
from samba_onnx.pef.manifest import Cause, Direction
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
        seen = [first]
        for change in (
            lambda: values.keep_on_host("other", X),
            lambda: values.keep_on_host("more", X),
            lambda: values.written_on_device(["other"]),
            lambda: values.written_on_device(["y"]),
            lambda: values.release_host(["more"]),
            lambda: values.forget(["y"]),
        ):
            change()
            assert all(values.settle() is not state for state in seen), "values are elsewhere"
            seen.append(values.settle())
        values.forget(["other"])
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


def test_the_host_keeps_an_input_for_its_fallbacks_and_no_other(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("s (float[4] x, float[4] z) => (float[4] a) { a = Mul(x, z) }"),
            fallback("c (float[4] a, float[4] x) => (float[4] y) { y = Add(a, x) }"),
        ],
        ["x", "z"],
        ["y"],
        [("x", TO, INPUT, 0), ("z", TO, INPUT, 0), ("a", FROM, FALLBACK, 1)],
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for factor in range(1, 4):
            y = device.run({"x": factor * X, "z": X})["y"]
            np.testing.assert_array_equal(y, factor * (X * X + X))
            assert device.ledger.run() == planned(plan, pef), "the host has x already"
        assert device._values.is_on_host("x")
        assert not device._values.is_on_host("z"), "nobody on the host reads it"


def test_equal_copies_share_a_record(tmp_path: Path) -> None:
    """A ledger of many copies of few kinds is small."""
    plan = Plan([section("s (float[4] x) => (float[4] y) { y = Neg(x) }")], ["x"], ["y"])
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for value in (X, 2 * X):
            device.write("x", value)
        device.read("x")
        first, second, other = device.ledger.transfers
        assert first is second
        assert other != first


def test_copies_between_rdus_take_the_time_of_their_own_link(tmp_path: Path) -> None:
    plan = Plan([section("f (float[4] x) => (float[4] y) { y = Neg(x) }")], ["x"], ["y"])
    link = {"rdu_link_bytes_per_second": 1e6, "rdu_link_latency_seconds": 1e-3}
    plan.target = dataclasses.replace(plan.target, **link)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        values = device._values
        values.enter("x", 1000, Direction.HOST_TO_RDU, Cause.EXPLICIT, None)
        assert device.ledger.transfers[-1].seconds == 1e-6 + 1e-6
        for steps, seconds in ((0, 2e-3), (1, 2e-3), (6, 7e-3)):
            values.enter_exchange("x", 1000, steps, 0)
            assert device.ledger.transfers[-1].seconds == seconds
            assert device.ledger.transfers[-1].direction is Direction.RDU_TO_RDU
