"""What executes calls: the engine as the user asked for it, and a clock."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine import registry
from samba_onnx.runtime.engine.protocol import Engine, EngineSettings
from tests.runtime.building import Plan, build, fallback, section

X = np.arange(4, dtype=np.float32)


def test_the_time_of_a_call_is_that_between_its_begin_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(
        [
            section("s (float[4] x) => (float[4] a) { a = Neg(x) }"),
            fallback("c (float[4] a) => (float[4] y) { y = Neg(a) }"),
        ],
        ["x"],
        ["y"],
    )
    # A begin and an end in turns, which are 1, 3, 5, ... apart.
    clock = SimpleNamespace(perf_counter=itertools.accumulate(itertools.count()).__next__)
    monkeypatch.setattr("samba_onnx.runtime.execution.time", clock)
    with build(tmp_path, plan) as pef, Device(pef, time_sections=True) as device:
        for _ in range(3):
            device.run({"x": X})
        times = device.profile.calls("main")
        measured = [(t.measured_seconds, t.fastest_seconds, t.median_seconds) for t in times]
        assert measured == [(1 + 5 + 9, 1, 5), (3 + 7 + 11, 3, 7)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (None, True)),
        ({"threads": 3}, (3, True)),
        ({"prepack": False}, (None, False)),
        ({"threads": 1, "prepack": False}, (1, False)),
    ],
)
def test_the_engine_is_told_what_the_user_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    expected: tuple[int | None, bool],
) -> None:
    told: list[EngineSettings] = []

    def make(settings: EngineSettings) -> Engine:
        told.append(settings)
        return registry.ENGINES["reference"](settings)

    monkeypatch.setattr(registry, "ENGINES", {**registry.ENGINES, "listening": make})
    plan = Plan([section("s (float[4] x) => (float[4] y) { y = Neg(x) }")], ["x"], ["y"])
    with build(tmp_path, plan) as pef, Device(pef, engine="listening", **options) as device:
        np.testing.assert_array_equal(device.run({"x": X})["y"], -X)
    assert [(settings.threads, settings.prepack) for settings in told] == [expected]
