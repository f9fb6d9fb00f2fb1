"""``survey``: many models in processes of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnx
import pytest

from samba_onnx.compiling.compiler import analyze
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.report import Report
from samba_onnx.tools.survey.survey import _analyses
from samba_onnx.tools.survey.survey_totals import figures_of
from tests.cli.conftest import SambaPort

MODEL = '<ir_version: 10, opset_import: ["" : 21, "TopLevel" : 1]> g (float[8] x) => (float[8] y) { %s }'


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models"
    folder.mkdir()
    for name, body in (("good", "y = Relu(x)"), ("odd", "a = TopLevel.Odd(x) y = Relu(a)")):
        onnx.save(onnx.parser.parse_model(MODEL % body), folder / f"{name}.onnx")
    return folder


def _times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_a_survey_does_only_what_is_missing_or_has_changed(
    samba_port: SambaPort, models: Path, tmp_path: Path
) -> None:
    (models / "bad.onnx").write_bytes(b"no model")
    result = samba_port("survey", "models", "--json", "survey.json", "--csv", "survey.csv", "-j", 2)
    assert (result.status, result.err) == (1, "samba-port survey: 1 analysis failed\n")
    assert result.out.startswith("3 models: 1 of 2 run whole on sn40l, 1 analysis failed\n")
    document = json.loads((tmp_path / "survey.json").read_text())
    bad, good, odd = document["entries"]
    assert (bad["state"], good["state"], odd["state"]) == ("failed", "done", "done")
    assert "expected an ONNX model" in bad["error"]
    for entry in (good, odd):
        figures = figures_of(Report.from_manifest(analyze(entry["model"], target="sn40l")))
        assert entry["figures"]["cpu_nodes"] == figures.cpu_nodes
        assert entry["figures"]["modelled_seconds"] == figures.modelled_seconds
    assert len((tmp_path / "survey.csv").read_text().splitlines()) == 4
    before = _times(tmp_path / "survey")
    again = samba_port("survey", "models")
    assert (again.status, again.out) == (1, result.out)
    assert _times(tmp_path / "survey") == before
    (models / "bad.onnx").write_bytes((models / "good.onnx").read_bytes())
    mended = samba_port("survey", "models", "-q", "--fail-on-fallback")
    assert (mended.status, mended.out) == (1, "3 models: 2 of 3 run whole on sn40l\n")
    assert mended.err == "samba-port survey: 1 analysis shows nodes on the CPU\n"
    after = _times(tmp_path / "survey")
    assert before.items() <= after.items()
    assert len(after) == len(before) + 1


def test_what_takes_too_long_is_stopped_and_tried_again_when_asked(
    samba_port: SambaPort, models: Path, tmp_path: Path
) -> None:
    model = models / "good.onnx"
    late = samba_port("survey", model, "--timeout", 0.001)
    assert late.status == 1
    assert "it took longer than 0.001 s and was stopped" in late.out
    kept = samba_port("survey", model)
    assert (kept.status, kept.out) == (1, late.out)
    retried = samba_port("survey", model, "--retry", "-q")
    assert (retried.status, retried.err) == (0, "")
    assert [path.suffixes[-2:] for path in (tmp_path / "survey").iterdir()] != [
        [".failed", ".json"]
    ]
    assert samba_port("survey", model, "-q").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("models", "--targets", "sn99"), "sn99"),
        (("nothing",), "nothing: this does not exist"),
        (("models", "--memory", "much"), "--memory much"),
        (("models", "--json", "models/good.onnx"), "overwrite"),
        (("models", "--output", "models/good.onnx"), "overwrite"),
        (("models", "--jobs", "0"), "--jobs"),
    ],
)
def test_wrong_usage(
    samba_port: SambaPort, models: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    result = samba_port("survey", *arguments)
    assert (result.status, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert words in result.err
    assert not (tmp_path / "survey").exists()


def test_conditions_of_a_target_of_ones_own_are_no_part_of_its_file_name(tmp_path: Path) -> None:
    model, target = tmp_path / "m.onnx", tmp_path / "own.toml"
    onnx.save(onnx.parser.parse_model(MODEL % "y = Relu(x)"), model)
    places = set()
    for text, conditions in (("sn30", ":tuned"), ("sn10", ":tuned"), ("sn10", ":host-launch")):
        target.write_text(f'extends = "{text}"')
        (one,) = _analyses([str(model)], [f"{target}{conditions}"], CompileOptions(), "survey")
        places.add(one.report)
    assert len(places) == 3


def test_a_cluster_needs_ray(
    samba_port: SambaPort, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where it is not installed.
    monkeypatch.setitem(sys.modules, "ray", None)
    result = samba_port("survey", "models", "--engine", "ray")
    assert (result.status, result.out) == (2, "")
    assert "pip install 'samba-onnx[ray]'" in result.err
