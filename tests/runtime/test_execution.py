"""How long calls take by a clock that ticks once whenever it is read."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from samba_onnx.runtime.device import Device
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
    clock = SimpleNamespace(perf_counter=itertools.count(1000).__next__)
    monkeypatch.setattr("samba_onnx.runtime.execution.time", clock)
    with build(tmp_path, plan) as pef, Device(pef, time_sections=True) as device:
        for _ in range(3):
            device.run({"x": X})
        times = device.profile.calls("main")
        assert [(time.measured_seconds, time.fastest_seconds) for time in times] == [(3, 1), (3, 1)]
