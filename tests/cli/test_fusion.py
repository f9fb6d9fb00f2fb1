"""``--level o1`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from tests.cli.conftest import SambaPort

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 8] x) => (float[4, 2] y) <float[8, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}> {
    a = MatMul(x, w) b = Relu(a) y = Sigmoid(b) }"""
RULES = """
pair: {priority: 1, pattern: {act: {op_type: relu, child: gate}, gate: {op_type: sigmoid}}}
idle: {priority: 2, pattern: {act: {op_type: tanh}}}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path / "m.onnx", tmp_path / "rules.yaml"


def test_the_report_of_every_command_says_what_rules_matched(
    samba_port: SambaPort, files: tuple[Path, Path]
) -> None:
    model, rules = files
    stated = ("--level", "o1", "--optimization-rules", rules)
    analyzed = samba_port("analyze", model, *stated)
    assert analyzed.status == 0
    assert "Fused: operators that a rule made one section" in analyzed.out
    assert "never matched: idle" in analyzed.out
    assert samba_port("convert", model, *stated, "--no-sample").status == 0
    inspected = samba_port("inspect", model.with_suffix(".pef"), "--json", "-")
    report = json.loads(inspected.out)
    assert [(r["rule"], r["sections"], r["nodes"]) for r in report["fusion"]] == [
        ("idle", 0, 0),
        ("pair", 1, 2),
    ]
    assert [section["rule"] for section in report["sections"]] == ["", "pair"]
    assert report["level"] == "o1"
    same = samba_port("diff", model.with_suffix(".pef"), model, "--optimization-rules", rules)
    assert same.status == 0
    other = samba_port("diff", model.with_suffix(".pef"), model)
    assert other.status == 2
    assert "rules of rules.yaml: give that file, too, with --optimization-rules" in other.err
    default = samba_port("analyze", model, "--level", "o1", "--json", "-")
    assert {s["rule"] for s in json.loads(default.out)["sections"]} == {"linear_activation", ""}
    both = samba_port("analyze", model, *stated, "--use-o1-default-rules", "--json", "-")
    assert {s["rule"] for s in json.loads(both.out)["sections"]} == {"linear", "pair"}


@pytest.mark.parametrize("command", ["analyze", "convert", "survey"])
def test_rules_at_another_level_are_refused(
    command: str, samba_port: SambaPort, files: tuple[Path, Path]
) -> None:
    model, rules = files
    result = samba_port(command, model, "--optimization-rules", rules)
    assert (result.status, result.out) == (2, "")
    assert "--optimization-rules counts at --level o1, and the level is o3" in result.err
    result = samba_port(command, model, "--level", "o0", "--use-o1-default-rules")
    assert (result.status, result.out) == (2, "")


def test_a_file_of_rules_that_cannot_be_used(
    samba_port: SambaPort, files: tuple[Path, Path]
) -> None:
    model, rules = files
    rules.write_text(RULES.replace("tanh", "tanhh"))
    result = samba_port("convert", model, "--level", "o1", "--optimization-rules", rules)
    assert (result.status, result.out) == (2, "")
    assert "rule idle: pattern: act: op_type: 'tanhh' is no operator" in result.err
    assert "did you mean 'tanh'" in result.err
    assert not model.with_suffix(".pef").exists()
    result = samba_port("analyze", model, "--level", "o1", "--optimization-rules", "none.yaml")
    assert result.status == 2
    assert "none.yaml" in result.err


def test_rules_are_not_written_over(samba_port: SambaPort, files: tuple[Path, Path]) -> None:
    model, rules = files
    stated = ("--level", "o1", "--optimization-rules", rules, "--json", rules)
    assert samba_port("analyze", model, *stated).status == 2
    assert rules.read_text() == RULES
