"""``analyze`` says what to change first, and plans again as suppositions have it."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from samba_onnx.cli.application import answer

TEXT = """<ir_version: 9, opset_import: ["": 20]>
g (float[64,64] x) => (float[64,64] y) { a = Relu(x)
 b = Acos(a)
 y = Relu(b) }"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_the_first_block_says_what_to_change(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(["analyze", model]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "Change first"
    assert lines[4].split()[:3] == ["1", "Acos", "(operator)"]
    assert any(line.strip().startswith("If every node ran on the RDU: ") for line in lines)
    assert answer(["analyze", model, "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    (change,) = report["changes"]
    assert (change["operator"], change["transfers_saved"]) == ("Acos", 2)
    assert change["bytes_saved"] == 2 * 64 * 64 * 4
    assert report["bounds"][0]["transfers"] == 2


def test_a_supposition_shows_both_plans(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["analyze", model, "--what-if", "support=Acos", "--json", "-"]) == 0
    difference = json.loads(capsys.readouterr().out)
    figures = {figure["name"]: figure for figure in difference["figures"]}
    assert (figures["fallbacks"]["before"], figures["fallbacks"]["after"]) == (1, 0)
    # A supposition that makes it worse is no failure.
    assert answer(["analyze", model, "--what-if", "link.latency=1s", "-q"]) == 0
    assert "worse" in capsys.readouterr().out


def test_a_chip_may_have_less_memory_than_compute_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    product = TEXT.replace("Acos(a)", "MatMul(a, a)")
    onnx.save(onnx.parser.parse_model(product), tmp_path / "p.onnx")
    words = ["analyze", str(tmp_path / "p.onnx"), "--what-if", "sram.bytes=1kB", "-q"]
    assert answer(words) == 0
    assert "modelled seconds" in capsys.readouterr().out


def test_a_supposition_that_cannot_be(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["analyze", model, "--what-if", "support=Nothing"]) == 2
    assert "ONNX has no operator 'Nothing'" in capsys.readouterr().err
