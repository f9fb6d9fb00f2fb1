"""``--kernel-looping``: the condition of the target, in plans, reports and PEFs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from samba_onnx.cli.application import answer
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef import load_pef

LAYERS = "".join(f"a{n} = MatMul(b{n}, w)\n b{n + 1} = Relu(a{n})\n" for n in range(4))
TEXT = f"""<ir_version: 9, opset_import: ["": 20]>
g (float[64,64] b0, float[64,64] w) => (float[64,64] b4) {{ {LAYERS} }}"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def _launch() -> float:
    timing = load_target("sn40l").summary.timing
    assert timing is not None
    return timing.launch_seconds


def _report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert answer([*words, "--json", "-"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


@pytest.mark.parametrize("target", ["sn40l", "sn40l:kernel-looping"])
def test_sections_in_turns_are_launched_once_in_report_and_plan(
    model: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("analyze", model, "--level", "o0", "--target")
    plain = _report(capsys, *words, "sn40l")
    looped = _report(capsys, *words, target, "--kernel-looping")
    assert looped["target"] == "sn40l:kernel-looping"
    assert plain["modelled_time"]["parts"]["launch"] == pytest.approx(8 * _launch(), rel=1e-12)
    assert looped["modelled_time"]["parts"]["launch"] == pytest.approx(2 * _launch(), rel=1e-12)
    saved = plain["modelled_time"]["sections_seconds"] - looped["modelled_time"]["sections_seconds"]
    assert saved == pytest.approx(6 * _launch(), rel=1e-9)


def test_a_pef_has_launches_as_they_are_looped(model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "m.pef")
    words = ["convert", model, "-o", path, "--level", "o0", "--no-sample", "-q"]
    assert answer([*words, "--target", "sn40l:tuned", "--kernel-looping"]) == 0
    with load_pef(path) as pef:
        manifest = pef.manifest
    assert manifest.target.name == "sn40l:kernel-looping,tuned"
    time = run_time(manifest, manifest.graphs[0])
    assert time.launch == pytest.approx(2 * _launch(), rel=1e-12)
    assert [bool(section.time and section.time.launch) for section in manifest.sections] == (
        [True, True] + 6 * [False]
    )


def test_times_of_calls_have_launches_as_they_are_looped(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "m.pef")
    words = ["convert", model, "-o", path, "--level", "o0", "--no-sample", "-q", "--kernel-looping"]
    assert answer(words) == 0
    capsys.readouterr()
    report = _report(capsys, "run", path, "--random", "0", "--time-sections")
    launches = [call["modelled_on_rdu_launch_seconds"] for call in report["calls"]]
    assert launches == [_launch(), _launch()] + 6 * [0]
    times = [call["modelled_on_rdu_seconds"] for call in report["calls"]]
    assert times[2:4] == pytest.approx([time - _launch() for time in times[:2]], rel=1e-9)
    planned = _report(capsys, "inspect", path)["modelled_time"]
    assert {**report["modelled_time"], "load_seconds": 0} == {**planned, "load_seconds": 0}
    assert sum(times) == pytest.approx(planned["sections_seconds"], rel=1e-12)
    part = _report(capsys, "run", path, "--random", "0", "--section-ids", "0")
    assert part["modelled_time"] is None


def test_a_model_beside_a_report_is_looped_if_asked(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = str(tmp_path / "plain.json")
    assert answer(["analyze", model, "--level", "o0", "-q", "--json", plain]) == 0
    capsys.readouterr()
    difference = _report(capsys, "diff", plain, model, "--kernel-looping")
    (time,) = (one for one in difference["figures"] if one["name"] == "modelled_seconds")
    assert time["before"] - time["after"] == pytest.approx(6 * _launch(), rel=1e-6)
    assert answer(["diff", plain, plain, "--kernel-looping"]) == 2
    assert "neither side is analyzed" in capsys.readouterr().err
