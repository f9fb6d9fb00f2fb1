"""Prepared runs: kept by request, and dropped or passed over for each of the reasons to do so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samba_onnx.errors import DeviceError
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.prepared import PreparedRun
from samba_onnx.runtime.requests import RunRequest, run_request
from tests.runtime.building import WEIGHT, Plan, build, fallback, section

X = np.arange(1, 5, dtype=np.float32)


def scaled(*, weight_on_host: bool = False) -> Plan:
    """``y = x * weight``, of which a fallback may read the weight, too."""
    pieces = [section("s (float[4] x, float[4] weight) => (float[4] y) { y = Mul(x, weight) }")]
    outputs = ["y"]
    if weight_on_host:
        pieces.append(fallback("c (float[4] weight) => (float[4] z) { z = Neg(weight) }"))
        outputs.append("z")
    return Plan(
        pieces, ["x"], outputs, load=[("weight", WEIGHT)], kinds={"weight": SymbolKind.WEIGHT}
    )


def test_equal_requests_are_one_run(tmp_path: Path) -> None:
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        device.load({"weight": X})
        for _ in range(3):
            device.run({"x": X})
            device.run({"x": X}, ["y"], section_ids=[0])
            device.run({"x": X}, ["y"], section_ids={0})
            device.run({"x": X}, ["y"], section_types=["fwd"], graph="main")
        assert len(device.runs) == 4
        request = run_request(None, ["x"], None)
        assert request == RunRequest(None, ("x",), None)
        assert device.prepare(request) is device.prepare(run_request(None, {"x": 0}, None))
        # What was refused is not kept.
        with pytest.raises(Exception, match="does not exist"):
            device.run({"x": X}, ["q"])
        assert len(device.runs) == 4


def ready(device: Device, *inputs: str) -> PreparedRun | None:
    return device.runs.ready(run_request(None, inputs, None))


def test_where_values_are_elsewhere_nothing_is_replayed(tmp_path: Path) -> None:
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        device.load({"weight": X})
        assert ready(device, "x") is None
        device.run({"x": X})  # Brings x and y to the device, so that values are elsewhere now.
        assert ready(device, "x") is None
        device.run({"x": X})
        prepared = ready(device, "x")
        assert prepared is not None
        assert prepared.replay is not None
        device._values.forget(["y"])
        assert ready(device, "x") is None
        np.testing.assert_array_equal(device.run({"x": 2 * X})["y"], 2 * X * X)
        assert prepared.replay is None
        device.run({"x": X})
        assert ready(device, "x") is prepared


def test_a_new_value_of_a_constant_makes_new_sessions(tmp_path: Path) -> None:
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        device.load({"weight": X})
        for _ in range(3):
            device.run({"x": X})
        (step,) = (
            session for _, session in device.prepare(run_request(None, ["x"], None)).plan.steps
        )
        for change in (
            lambda: device.load({"weight": 3 * X}),
            lambda: device.write("weight", 5 * X),
        ):
            session = step._bound  # type: ignore[union-attr]
            change()
            assert ready(device, "x") is not None, "values are where they were"
            assert step._bound is None  # type: ignore[union-attr]
            weight = device.read("weight")
            np.testing.assert_array_equal(device.run({"x": X})["y"], X * weight)
            assert step._bound is not session  # type: ignore[union-attr]


def test_what_the_host_writes_is_read_by_sections_and_fallbacks(tmp_path: Path) -> None:
    plan = scaled(weight_on_host=True)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        device.load({"weight": X})
        for factor in (1, 2, 3):
            for _ in range(3):
                results = device.run({"x": X})
                np.testing.assert_array_equal(results["y"], factor * X * X)
                np.testing.assert_array_equal(results["z"], -factor * X)
                # The host was given the weight: it need not be copied back for the fallback.
                assert [move.symbol for move in device.ledger.run()] == ["x", "y"]
            device.write("weight", (factor + 1) * X)


def test_a_written_input_is_kept_on_the_host_and_then_not(tmp_path: Path) -> None:
    """Writing an input changes where values are; the run after it takes the long way."""
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        device.load({"weight": X})
        for _ in range(3):
            device.run({"x": X})
            device.run()
        assert ready(device) is not None
        device.write("x", 7 * X)
        assert ready(device) is None
        np.testing.assert_array_equal(device.run()["y"], 7 * X * X)


def test_a_closed_device_has_nothing_prepared(tmp_path: Path) -> None:
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        device.load({"weight": X})
        for _ in range(3):
            device.run({"x": X})
        prepared = ready(device, "x")
        assert prepared is not None
        device.close()
        assert ready(device, "x") is None
        assert prepared.replay is None
        with pytest.raises(DeviceError, match=r"^the device was closed; make a new one$"):
            device.execute(prepared, {"x": X})


def test_only_so_many_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samba_onnx.runtime.prepared._MOST_RUNS", 2)
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        device.load({"weight": X})
        device.run({"x": X})
        first = device.prepare(run_request(None, ["x"], None))
        for outputs in (["y"], []):
            device.run({"x": X}, outputs)
        assert len(device.runs) == 2
        assert device.prepare(run_request(None, ["x"], None)) is not first
        np.testing.assert_array_equal(device.run({"x": 2 * X})["y"], 2 * X * X)


def test_what_a_session_keeps_with_a_replay_goes_when_the_replay_does(tmp_path: Path) -> None:
    with build(tmp_path, scaled()) as pef, Device(pef) as device:
        device.load({"weight": X})
        for _ in range(3):
            device.run({"x": X})
        prepared = ready(device, "x")
        assert prepared is not None
        prepared.shortcut = "of a session"
        device.run({"x": X})
        assert prepared.shortcut == "of a session"
        device._values.forget(["y"])
        device.run({"x": X})
        assert prepared.shortcut is None
        prepared.shortcut = "of a session"
        device.close()
        assert prepared.shortcut is None


def test_a_run_that_cannot_be_replayed_is_never_ready(tmp_path: Path) -> None:
    plan = Plan(
        [
            section("s (float[4] x) => (float[4] a) { a = Neg(x) }"),
            fallback("c (float[4] a) => (float[4] y) { y = Neg(a) }"),
        ],
        ["x"],
        ["y"],
    )
    with build(tmp_path, plan) as pef, Device(pef) as device:
        for _ in range(4):
            device.run({"x": X})
            assert ready(device, "x") is None
