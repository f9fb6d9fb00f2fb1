"""Profiles: which events there are, and the files that are written."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
    events = slices(path)
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


def measured(patch: pytest.MonkeyPatch, *events: tuple[str, float, float]) -> Profiler:
    """A profiler that is on, and has measured these."""
    made = Profiler()
    made.start_profile()
    for name, *times in events:
        clock = SimpleNamespace(perf_counter=iter(times).__next__)
        patch.setattr("samba_onnx.sessions.profiler.time", clock)
        made.end_event(made.start_event(name))
    return made


TIMES = (("step", 1.0, 3.0), ("none", 4.0, 4.0), ("step", 5.0, 9.0), ("short", 9.0, 9.5))


def test_means_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    made = measured(monkeypatch, *TIMES)
    assert made.get_latencies(made.names()) == {"step": 3, "none": 0, "short": 0.5}
    assert made.get_latencies(made.names(), warmup=1) == {"step": 4}
    # Of what took no time at all, nobody can say how fast it was.
    assert made.get_throughputs(made.names(), 6) == {"step": 2, "short": 12}
    assert made.get_throughputs(["step"], 6, warmup=1) == {"step": 1.5}


PRINTED: dict[str, tuple[dict[str, Any], str]] = {
    "all": (
        {},
        "step: latency 3.000000 s\nnone: latency 0.000000 s\nshort: latency 0.500000 s\n",
    ),
    "one": ({"keys": ["short"]}, "short: latency 0.500000 s\n"),
    "warm": ({"keys": ["step"], "warmup": 1}, "step: latency 4.000000 s\n"),
    "both": (
        {"keys": ["none", "short"], "num_samples_per_iter": 6},
        "none: latency 0.000000 s\nshort: latency 0.500000 s, throughput 12.000 samples/s\n",
    ),
    "throughput": (
        {"keys": ["step"], "num_samples_per_iter": 6, "measurements": ["throughput"]},
        "step: throughput 2.000 samples/s\n",
    ),
    "latency": (
        {"keys": ["step"], "num_samples_per_iter": 6, "measurements": ["latency"]},
        "step: latency 3.000000 s\n",
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_statistics_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    options, text = PRINTED[name]
    measured(monkeypatch, *TIMES).print_statistics(**options)
    assert capsys.readouterr().out == text


def slices(path: Path) -> list[dict[str, Any]]:
    """Return the stretches of time in a trace, without what describes its tracks."""
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def test_a_trace_counts_in_microseconds_since_the_first_event(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    made = measured(monkeypatch, ("inner", 2.0, 2.5), ("outer", 1.0, 3.0))
    made.save(path)
    rest = {"ph": "X", "pid": 1, "tid": 1, "args": {}}
    assert slices(path) == [
        {"name": "outer", "ts": 0.0, "dur": 2e6, **rest},
        {"name": "inner", "ts": 1e6, "dur": 5e5, **rest},
    ]
    made.start_profile()
    made.save(path)
    assert json.loads(path.read_text())["traceEvents"] == []
    made.stop_profile()
    assert made.start_event("more") is None


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


def test_traces_of_replicas_can_be_shown_as_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("perfetto", reason="pip install 'samba-onnx[trace]'")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    made = measured(monkeypatch, ("run", 2.0, 2.5))
    clock = SimpleNamespace(time=lambda: 1_000_000.0, perf_counter=lambda: 3.0)
    monkeypatch.setattr("samba_onnx.sessions.profiler.time", clock)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    for rank in range(2):
        monkeypatch.setattr("torch.distributed.get_rank", lambda rank=rank: rank)
        made.save(tmp_path / "run.pftrace")
    files = [tmp_path / "run.pftrace", tmp_path / "run.rank1.pftrace"]
    trace = Trace.FromString(b"".join(file.read_bytes() for file in files))
    tracks = [
        packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")
    ]
    assert len({track.uuid for track in tracks}) == len(tracks) == 4
    names = [track.process.process_name for track in tracks if track.HasField("process")]
    assert names == ["rank 0 of 2", "rank 1 of 2"]
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    # A second before the clock was read, on each.
    assert [event.timestamp for event in events] == 2 * [999_999_000_000_000, 999_999_500_000_000]
    assert len({event.trusted_packet_sequence_id for event in events}) == 2
