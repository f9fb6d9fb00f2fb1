"""Profiles: which events there are, and the files that are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from samba_onnx.sessions import Profiler, SambaSession
from tests.sessions.conftest import Compiled


def test_the_documented_events_are_measured(
    session: SambaSession, compiled: Compiled, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    with session.samba_profile(str(path)) as profiler:
        outputs = compiled.trace()
        session.run(compiled.inputs, outputs)
        session.run(compiled.inputs, outputs, section_types=["fwd"])
        session.get_tensors(outputs)
        compiled.model.inner.bias.rdu()
    assert profiler is session.profiler
    names = {
        "SAMBA_SET_PEF": 1,
        "SAMBA_INIT_RUNTIME": 1,
        "SAMBA_SESSION_RUN": 1,
        "SAMBA_SESSION_RUN_FWD": 1,
        "PyRT_RUN": 2,
        "PyRT_GET_TENSORS": 2,
        "PyRT_SET_TENSORS": 2,
    }
    counted = {name: len(profiler._get_iter_times(name)) for name in profiler.names()}
    assert counted == names
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
    assert sorted(event["name"] for event in events) == sorted(
        name for name, count in names.items() for _ in range(count)
    )
    run = next(event for event in events if event["name"] == "SAMBA_SESSION_RUN_FWD")
    inner = [event for event in events if event["name"] == "PyRT_RUN"][1]
    assert run["ts"] <= inner["ts"]
    assert inner["dur"] <= run["dur"]


def test_nothing_is_measured_while_it_is_off(session: SambaSession, compiled: Compiled) -> None:
    outputs = compiled.trace()
    session.run(compiled.inputs, outputs)
    assert session.profiler.events == ()
    session.profiler.end_event(session.profiler.start_event("mine"))
    session.start_samba_profile()
    session.run(compiled.inputs, outputs)
    session.end_samba_profile()
    session.run(compiled.inputs, outputs)
    assert session.profiler.names() == ("PyRT_RUN", "SAMBA_SESSION_RUN")


def test_events_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    profiler = Profiler()

    @profiler.event("called")
    def double(value: int) -> int:
        return 2 * value

    assert double(2) == 4
    profiler.start_profile()
    assert [double(value) for value in range(3)] == [0, 2, 4]
    with profiler.event("block"):
        handle = profiler.start_event("step")
        profiler.end_event(handle)
    profiler.stop_profile()
    assert [event.name for event in profiler.events] == ["called"] * 3 + ["step", "block"]
    assert len(profiler._get_iter_times("called", warmup=1)) == 2
    latency = profiler.get_latencies(["called", "unknown"], warmup=1)
    assert list(latency) == ["called"]
    throughput = profiler.get_throughputs(["called"], batch=8, warmup=1)
    assert throughput["called"] == pytest.approx(8 / latency["called"])
    profiler.print_statistics(["called"], warmup=1, num_samples_per_iter=8)
    assert capsys.readouterr().out.startswith("called: latency 0.0000")
    profiler.start_profile()
    assert profiler.events == ()


@pytest.mark.parametrize("level", ["SUMMARY", "DETAILED", "", "loud"])
def test_the_runtime_profile_needs_the_environment(
    session: SambaSession,
    compiled: Compiled,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
) -> None:
    monkeypatch.setenv("ENABLE_RUNTIME_PERF", level)
    path = tmp_path / "profile.log"
    outputs = compiled.trace()
    session.start_runtime_profile()
    session.run(compiled.inputs, outputs)
    session.end_runtime_profile(str(path))
    session.end_runtime_profile(str(tmp_path / "again.log"))
    assert not (tmp_path / "again.log").exists()
    assert path.exists() == (level in ("SUMMARY", "DETAILED"))
    if path.exists():
        text = path.read_text()
        assert text.startswith("wall time 0.")
        assert "runner.py" in text
        calls = [line for line in text.splitlines() if line.startswith("graph forward  call ")]
        assert bool(calls) == (level == "DETAILED")
        for line in calls:
            measured, modelled = line.split("  ")[-2:]
            assert measured.startswith("measured on this CPU: min 0.")
            assert modelled.startswith("modelled on the RDU: 0.")
