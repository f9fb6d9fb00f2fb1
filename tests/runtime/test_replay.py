"""Runs that repeat take a short way; nothing that can be seen tells it from the long one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import AnomalyError, DeviceError, ExecutionError, InputError, UsageError
from samba_onnx.pef.manifest import Argin
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.requests import run_request
from tests.runtime.building import (
    FROM,
    INPUT,
    OUTPUT,
    TO,
    WEIGHT,
    Plan,
    build,
    fallback,
    planned,
    section,
)
from tests.runtime.test_residents import cache, training

X = np.arange(4, dtype=np.float32)


def affine() -> Plan:
    return Plan(
        [
            section(
                "s (float[4] x, float[4] z, float k) => (float[4] y, float n) "
                "{ a = Mul(x, k) y = Add(a, z) n = ReduceSum<keepdims=0>(y) }"
            )
        ],
        ["x", "z", "k"],
        ["y", "n"],
        [
            ("x", TO, INPUT, 0),
            ("z", TO, INPUT, 0),
            ("y", FROM, OUTPUT, 0),
            ("n", FROM, OUTPUT, 0),
        ],
        argins=[Argin("k", "tensor(float)", 1.0, (0,))],
    )


def replays(device: Device) -> int:
    return sum(run.replay is not None for run in device.runs._runs.values())


def test_the_short_way_gives_the_same(tmp_path: Path) -> None:
    plan = affine()
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for step in range(6):
            z = np.full(4, step, np.float32)
            result = device.run({"x": X, "z": z}, argins={"k": 0.5 * step})
            np.testing.assert_array_equal(result["y"], X * np.float32(0.5 * step) + step)
            assert result["n"] == result["y"].sum()
            assert result["n"].shape == ()
            assert device.ledger.run() == planned(plan, pef)
            result["y"][:] = np.nan
            z[:] = np.nan
        assert replays(device) == 1
        assert device.ledger.runs == 6
        assert len(device.ledger.transfers) == 24
        # Fewer inputs, other outputs: other runs.
        np.testing.assert_array_equal(device.run({"z": X}, ["n"])["n"], (X * 2.5 + X).sum())
        assert [move.symbol for move in device.ledger.run()] == ["z", "n"]


def test_argins_among_the_inputs_are_set_in_every_run(tmp_path: Path) -> None:
    with build(tmp_path, affine()) as pef, Device(pef) as device:
        for k in range(6):
            result = device.run({"x": X, "k": np.float32(k), "z": X})
            np.testing.assert_array_equal(result["y"], X * k + X)
            assert device.read("k") == k
        assert replays(device) == 0
        with pytest.raises(InputError, match="given twice"):
            device.run({"x": X, "k": 1.0, "z": X}, argins={"k": 2.0})
        with pytest.raises(InputError, match="argin 'k' is 'much'"):
            device.run({"x": X, "k": "much", "z": X})
        assert device.read("k") == 5


def test_a_prepared_run_that_is_given_other_inputs(tmp_path: Path) -> None:
    with build(tmp_path, affine()) as pef, Device(pef) as device:
        for _ in range(3):
            device.run({"x": X, "z": X})
        prepared = device.prepare(run_request(None, ["x", "z"], None))
        assert prepared.replay is not None
        before = device.ledger.transfers
        with pytest.raises(InputError, match="input 'q' does not exist; the graph's inputs are"):
            device.execute(prepared, {"x": X, "q": X})
        assert device.ledger.transfers == before
        np.testing.assert_array_equal(device.execute(prepared, {"x": 2 * X})["y"], 3 * X)
        np.testing.assert_array_equal(device.execute(prepared, {})["y"], 3 * X)
        np.testing.assert_array_equal(device.execute(prepared, {"x": X, "z": X})["y"], 2 * X)
        np.testing.assert_array_equal(device.run({"x": 3 * X, "z": X})["y"], 4 * X)
        result = device.execute(prepared, {"x": X, "z": X}, {"k": 3.0})
        np.testing.assert_array_equal(result["y"], 4 * X)


WRONG: dict[str, tuple[dict[str, object], dict[str, object] | None]] = {
    "another shape": ({"x": X, "z": X[:3]}, None),
    "another dtype": ({"x": X, "z": X.astype(np.float64)}, None),
    "no array": ({"x": X, "z": "much"}, None),
    "an unknown name": ({"x": X, "z": X, "q": X}, None),
    "another name": ({"x": X, "q": X}, None),
    "an argin that is none": ({"x": X, "z": X}, {"k": "much"}),
    "an unknown argin": ({"x": X, "z": X}, {"q": 1.0}),
    "an argin given twice": ({"x": X, "z": X, "k": 1.0}, {"k": 2.0}),
    "a wrong argin and a wrong input": ({"x": X, "z": X[:3]}, {"k": "much"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_repeated_run_refuses_what_a_first_one_refuses(tmp_path: Path, name: str) -> None:
    """With the same words, and leaving the device as it was."""
    inputs, argins = WRONG[name]
    request = run_request(None, ["x", "z"], None)
    messages = []
    with build(tmp_path, affine()) as pef:
        for repeats in (0, 3):
            with Device(pef) as device:
                for _ in range(repeats):
                    device.run({"x": X, "z": X})
                prepared = device.prepare(request)
                assert (prepared.replay is not None) == bool(repeats)
                before = device.ledger.transfers, device.ledger.runs, device.read("k")
                with pytest.raises(InputError) as caught:
                    device.execute(prepared, inputs, argins)
                assert (device.ledger.transfers, device.ledger.runs, device.read("k")) == before
                messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_wrong_inputs_are_refused_on_the_short_way(tmp_path: Path) -> None:
    with build(tmp_path, affine()) as pef, Device(pef) as device:
        for _ in range(3):
            device.run({"x": X, "z": X})
        before = device.ledger.transfers
        for bad, message in (
            ({"x": X, "z": X[:3]}, r"'z' has shape \[3\]"),
            ({"x": X, "z": X.astype(np.float64)}, "'z' has dtype float64"),
            ({"x": X, "q": X}, "'q' does not exist"),
        ):
            with pytest.raises(InputError, match=message):
                device.run(bad)
        with pytest.raises(InputError, match="argin 'k'"):
            device.run({"x": 0 * X, "z": X}, argins={"k": "much"})
        with pytest.raises(UsageError, match="does not exist"):
            device.run({"x": X, "z": X}, [["y"]])  # type: ignore[list-item]
        assert device.ledger.transfers == before
        np.testing.assert_array_equal(device.run()["y"], 2 * X)
        np.testing.assert_array_equal(device.run({"x": X, "z": X}, "y")["y"], 2 * X)
        # What numpy makes an array of is taken as on the long way.
        strided = np.arange(8, dtype=np.float32)[::2]
        np.testing.assert_array_equal(device.run({"x": strided, "z": X})["y"], strided + X)


def test_changes_between_runs_are_seen(tmp_path: Path) -> None:
    with build(tmp_path, cache()) as pef, Device(pef) as device:
        for _ in range(3):
            device.run({"x": X}, ["present"], graph="main")
            for step in range(1, 4):
                y = device.run({"z": X}, ["y"], graph="token")["y"]
                np.testing.assert_array_equal(y, -(2 * X + step * X))
        assert replays(device) == 2
        device.write("past", X)
        np.testing.assert_array_equal(device.run({"z": X}, ["y"], graph="token")["y"], -2 * X)


def test_training_loops_take_the_short_way(tmp_path: Path) -> None:
    plan = training()
    x, weight = np.ones((4, 8), np.float32), np.zeros((8, 3), np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.load({"weight": weight})
        device.write("y__grad", np.ones((4, 3), np.float32))
        for step in range(5):
            for kind in ("FWD", "BCKWD", "OPT"):
                given = {"x": x} if kind == "FWD" else {}
                device.run(given, section_types=[kind], argins={"lr": 0.5})
            np.testing.assert_array_equal(device.read("weight"), weight - 2 * (step + 1))
        assert replays(device) == 3
        device.write("weight", weight)
        device.run({"x": x}, section_types=["FWD"])
        device.run(section_types=["BCKWD"])
        device.run(section_types=["OPT"])
        np.testing.assert_array_equal(device.read("weight"), weight - 2)


def test_fallbacks_always_take_the_long_way(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("s (float[4] x) => (float[4] a) { a = Neg(x) }"),
            fallback("c (float[4] a) => (float[4] y) { y = Neg(a) }"),
        ],
        ["x"],
        ["y"],
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for factor in range(4):
            np.testing.assert_array_equal(device.run({"x": factor * X})["y"], factor * X)
        assert replays(device) == 0


def test_fallbacks_that_copy_nothing_are_executed_all_the_same(tmp_path: Path) -> None:
    """All that one reads is on the host; what is new there leaves every value where it is."""
    plan = Plan(
        [
            fallback("c (float[4] x) => (float[4] a) { a = Neg(x) }"),
            fallback("c (float[4] a) => (float[4] y) { y = Neg(a) }"),
            section("s (float[4] x) => (float[4] z) { z = Abs(x) }"),
        ],
        ["x"],
        ["z", "y"],
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.run({"x": X})
        for factor in range(1, 4):
            for _ in range(3):
                device.run(section_ids=[0])
            device.run({"x": factor * X}, ["z"], section_ids=[2])
            device.run(section_ids=[0])
            y = device.run(None, ["y"], section_ids=[1])["y"]
            np.testing.assert_array_equal(y, factor * X)


def test_an_input_that_the_host_keeps_is_new_for_the_next_fallback(tmp_path: Path) -> None:
    """A section alone is run again and again; the fallback that reads the same comes later."""
    plan = Plan(
        [
            section("s (float[4] x) => (float[4] z) { z = Abs(x) }"),
            fallback("c (float[4] x) => (float[4] y) { y = Neg(x) }"),
        ],
        ["x"],
        ["z", "y"],
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for factor in range(1, 5):
            device.run({"x": factor * X}, ["z"], section_ids=[0])
            assert [move.symbol for move in device.ledger.run()] == ["x", "z"]
        np.testing.assert_array_equal(device.run(None, ["y"], section_ids=[1])["y"], -4 * X)
        assert device.ledger.run() == ()


def test_an_input_that_is_an_output_too_is_the_one_of_the_last_run(tmp_path: Path) -> None:
    plan = Plan([section("s (float[4] x) => (float[4] y) { y = Neg(x) }")], ["x"], ["y", "x"])
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for factor in range(1, 5):
            device.run({"x": factor * X}, ["y"])
        np.testing.assert_array_equal(device.run(None, ["x"])["x"], 4 * X)
        assert device.ledger.run() == ()


def test_failures_and_closing(tmp_path: Path) -> None:
    plan = Plan(
        [section("s (float[4] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }")],
        ["x", "i"],
        ["y"],
    )
    with build(tmp_path, plan) as pef:
        device = Device(pef)
        for index in (0, 1, 2):
            assert device.run({"x": X, "i": np.array([index])})["y"] == X[index]
        with pytest.raises(ExecutionError, match="section 0"):
            device.run({"x": X, "i": np.array([9])})
        assert [move.symbol for move in device.ledger.run()] == ["x", "i"]
        assert device.run({"x": X, "i": np.array([3])})["y"] == 3
        device.close()
        with pytest.raises(DeviceError, match="closed"):
            device.run({"x": X, "i": np.array([3])})


def test_many_runs_take_the_short_way_and_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with build(tmp_path, affine()) as pef, Device(pef, threads=1) as device:
        given = {"x": X, "z": X}
        expected = [device.run(given) for _ in range(2)][-1]

        def refuse(*_: object) -> None:
            raise AssertionError("the long way")

        monkeypatch.setattr(Device, "_execute", refuse)
        assert device.ledger.runs == 2  # which enters the second of them
        entries = len(device.ledger._entries)
        for _ in range(100):
            found = device.run(given)
        assert {name: found[name].tolist() for name in found} == {
            name: expected[name].tolist() for name in expected
        }
        assert device.ledger.runs == 102
        assert len(device.ledger._entries) == entries
        with pytest.raises(AssertionError, match="the long way"):
            device.run(given, detect_anomaly=True)


def anomalous(body: str) -> Plan:
    return Plan(
        [
            section("s (float[4] x, float[4] weight) => (float[4] a) { a = Mul(x, weight) }"),
            section(f"s (float[4] a) => (float[4] b) {{ {body} }}"),
            section("s (float[4] b) => (float[4] y) { y = Neg(b) }"),
        ],
        ["x"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 2)],
        [("weight", WEIGHT)],
        weights={},
    )


@pytest.mark.parametrize(
    ("x", "weight", "message"),
    [
        (
            [1, 1, 1, -1],
            [1, 1, 1, 1],
            r"section 1 \(s_1\) of type FWD made 'b' with 1 NaN and 0 "
            "infinite numbers among 4; all its inputs are finite",
        ),
        ([1, 1, np.nan, 1], [1, 1, 1, 1], r"section 0 .* made 'a' .*; its input 'x' has 1 NaN"),
        ([1, 1, 1, 1], [1, np.inf, 1, 1], r"section 0 .* made 'a' with 0 NaN and 1 infinite"),
    ],
)
def test_anomalies_are_named(
    tmp_path: Path, x: list[float], weight: list[float], message: str
) -> None:
    plan = anomalous("b = Log(a)")
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.load({"weight": np.array(weight, np.float32)})
        given = {"x": np.array(x, np.float32)}
        device.run(given)
        with pytest.raises(AnomalyError, match=message):
            device.run(given, detect_anomaly=True)
        fine = np.ones(4, np.float32)
        device.load({"weight": fine})
        result = device.run({"x": fine}, detect_anomaly=True)
        np.testing.assert_array_equal(result["y"], 0 * fine)
        assert device.ledger.run() == planned(plan, pef)


def test_an_input_is_blamed_whatever_was_there_before(tmp_path: Path) -> None:
    """The step writes where its input was."""
    plan = Plan(
        [section("s (float[4] x) => (float[4] y) { y = Sqrt(x) }")],
        ["x"],
        ["y"],
        shared={"x": "place", "y": "place"},
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        bad = np.array([1, np.nan, np.inf, 1], np.float32)
        with pytest.raises(AnomalyError, match=r"its input 'x' has 1 NaN and 1 infinite"):
            device.run({"x": bad}, detect_anomaly=True)


def test_masks_are_no_anomaly(tmp_path: Path) -> None:
    """Log(0) in an activation is what attention masks hold; as an output it is an anomaly."""
    x, fine = np.zeros(4, np.float32), np.ones(4, np.float32)
    with build(tmp_path, anomalous("b = Log(a)")) as pef, Device(pef) as device:
        device.load({"weight": fine})
        with pytest.raises(
            AnomalyError,
            match=r"section 2 .* made 'y' with 0 NaN and 4 infinite .*input 'b' has 0 NaN and 4",
        ):
            device.run({"x": x}, detect_anomaly=True)


def test_anomalies_in_bfloat16_and_fallbacks(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("s (bfloat16[4] x) => (bfloat16[4] a) { a = Sqrt(x) }"),
            fallback("c (bfloat16[4] a) => (float[4] y) { b = Cast<to=1>(a) y = Reciprocal(b) }"),
        ],
        ["x"],
        ["y"],
    )
    import ml_dtypes

    for number, name in ((-1, "section 0"), (0, "fallback 1")):
        x = np.full(4, number, np.float32).astype(ml_dtypes.bfloat16)
        with (
            build(tmp_path, plan) as pef,
            Device(pef) as device,
            pytest.raises(AnomalyError, match=name),
        ):
            device.run({"x": x}, detect_anomaly=True)
