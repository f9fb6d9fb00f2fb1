"""``samba-port calibrate``, and ``--host`` and ``--placement`` that go by what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import onnx.parser
import pytest

from samba_onnx.compiling import host_profiles
from samba_onnx.passes.timing.hosts import load_host
from samba_onnx.tools.calibrate import calibration
from tests.cli.conftest import SambaPort
from tests.unsupported_operator import UNSUPPORTED

MODEL = f"""<ir_version: 10, opset_import: ["" : 21]>
g (float[16,16] x, float[16,65536] w) => (float[16,65536] y)
{{ a = {UNSUPPORTED}(x) b = Neg(a) c = {UNSUPPORTED}(b) y = MatMul(c, w) }}"""


@pytest.fixture(autouse=True)
def _small_and_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibration, "_SIZE", 64)
    monkeypatch.setattr(calibration, "_ELEMENTS", 1 << 12)
    monkeypatch.setattr(host_profiles, "measured_path", lambda: tmp_path / "settings" / "host.toml")


def test_the_profile_is_written_where_host_measured_finds_it(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    analyze = ("analyze", str(tmp_path / "m.onnx"), "--host", "measured", "--json", "-")
    missing = samba_port(*analyze)
    assert missing.status == 2
    assert "write it with samba-port calibrate" in missing.err

    result = samba_port("calibrate", "--seconds", "0.01", "--threads", "1", "--json", "-")

    assert (result.status, result.err) == (0, "")
    document = json.loads(result.out)
    schema = Path(__file__).parents[3] / "docs" / "calibration.schema.json"
    jsonschema.validate(document, json.loads(schema.read_text()))
    host = load_host(document["output"])
    by_name = {row["name"]: row["value"] for row in document["figures"]}
    assert by_name["node_seconds"] == host.node_seconds
    report = samba_port(*analyze)
    assert json.loads(report.out)["modelled_time"]["host"] == "measured"


def test_the_text_has_every_figure_beside_the_default(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    result = samba_port("calibrate", "--seconds", "0.01", "-o", str(path))
    assert result.status == 0
    assert result.out.startswith(f"{path}: ")
    for name in ("peak_flops.float32", "copy_bytes_per_second", "node_seconds", "200 ns"):
        assert name in result.out
    assert load_host(path).assumptions == ()


def test_placements_differ_and_the_report_says_how(samba_port: SambaPort, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    reports = {}
    for placement in ("optimal", "strict"):
        result = samba_port(
            "analyze", str(tmp_path / "m.onnx"), "--placement", placement, "--json", "-"
        )
        assert result.status == 0, result.err
        reports[placement] = json.loads(result.out)
    optimal, strict = reports["optimal"], reports["strict"]
    assert optimal["coverage"]["cpu_supported_nodes"] > 0
    assert strict["coverage"]["cpu_supported_nodes"] == 0
    assert optimal["modelled_time"]["total_seconds"] < strict["modelled_time"]["total_seconds"]
    wrong = samba_port("analyze", str(tmp_path / "m.onnx"), "--placement", "best")
    assert (wrong.status, wrong.out) == (2, "")
    assert "placement is 'best': expected one of optimal, strict" in wrong.err
