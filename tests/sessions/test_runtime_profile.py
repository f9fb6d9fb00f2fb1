"""What a profile of one stretch of a program says."""

from __future__ import annotations

import dataclasses
import logging
import re
from pathlib import Path

import pytest

from samba_onnx.runtime.profile import CallTime, Profile
from samba_onnx.sessions.runtime_profile import RuntimeProfile, level

ON_RDU = CallTime(0, 2, "FWD_0", True, 1, 0.5, 0.5, 0.5, 1e-6, 1e-7)
ON_HOST = dataclasses.replace(
    ON_RDU, call=1, on_rdu=False, modelled_seconds=None, modelled_launch_seconds=None
)


def counted() -> int:
    return sum(range(10))


def test_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENABLE_RUNTIME_PERF", raising=False)
    assert level() == ""
    for value, expected in (("detailed", "DETAILED"), ("SUMMARY", "SUMMARY"), ("loud", "")):
        monkeypatch.setenv("ENABLE_RUNTIME_PERF", value)
        assert level() == expected


def test_calls_stand_before_functions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("ENABLE_RUNTIME_PERF", "SUMMARY")
    times = Profile()
    times.add("g", ON_RDU)
    times.add("g", ON_HOST)
    path = tmp_path / "profile.log"
    profile = RuntimeProfile(lambda: (times, ["g"]))
    profile.start_runtime_profile(timer_enabled=True)
    counted()
    # What runs already goes on.
    profile.start_runtime_profile(timer_enabled=False)
    with caplog.at_level(logging.INFO, "samba_onnx.sessions.runtime_profile"):
        profile.end_runtime_profile(str(path))
    wall, rdu, host, *rest = path.read_text().splitlines()
    assert re.fullmatch(r"wall time 0\.\d{6} s", wall)
    assert caplog.messages == [wall]
    assert rdu.startswith("graph g  call 0  FWD_0  1 executions  0.500000 s  measured on this CPU:")
    assert rdu.endswith("  modelled on the RDU: 0.000001000 s")
    assert host.endswith("  runs on the host")
    text = "\n".join(rest)
    assert "Ordered by: cumulative time" in text
    assert "(counted)" in text


def test_without_a_timer_there_is_no_wall_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ENABLE_RUNTIME_PERF", "SUMMARY")
    path = tmp_path / "profile.log"
    profile = RuntimeProfile(lambda: (None, []))
    profile.start_runtime_profile(timer_enabled=False)
    counted()
    profile.end_runtime_profile(str(path))
    text = path.read_text()
    assert "(counted)" in text
    assert "wall time" not in text
    assert "graph" not in text
