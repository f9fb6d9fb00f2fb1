"""Findings in SARIF."""

from __future__ import annotations

import json
from pathlib import Path

from samba_onnx.tools.lint.rule_table import RULES
from tests.cli.conftest import SambaPort


def test_a_code_host_finds_rule_level_and_place(samba_port: SambaPort, tmp_path: Path) -> None:
    rules = list(RULES.values())[:5]
    for rule in rules:
        (tmp_path / f"{rule.id}.py").write_text(rule.example)
    files = [tmp_path / f"{rule.id}.py" for rule in rules]
    samba_port("lint", *files, "--sarif", tmp_path / "l.sarif", "--json", tmp_path / "l.json")
    log = json.loads((tmp_path / "l.sarif").read_text())
    findings = json.loads((tmp_path / "l.json").read_text())["findings"]
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    (run,) = log["runs"]
    stated = run["tool"]["driver"]["rules"]
    assert findings
    assert len(run["results"]) == len(findings)
    for result, finding in zip(run["results"], findings, strict=True):
        assert stated[result["ruleIndex"]]["id"] == result["ruleId"] == finding["rule"]
        assert result["level"] == finding["severity"]
        assert result["level"] in ("error", "warning", "note")  # SARIF's own words
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == finding["path"]
        assert place["region"] == {"startLine": finding["line"], "startColumn": finding["column"]}
        assert result["message"]["text"] == finding["message"]


def test_nothing_found_is_a_run_without_results(samba_port: SambaPort, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import torch\n")
    assert samba_port("lint", path, "--sarif", tmp_path / "l.sarif").status == 0
    (run,) = json.loads((tmp_path / "l.sarif").read_text())["runs"]
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])


def test_a_program_is_never_overwritten(samba_port: SambaPort, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import torch\n")
    result = samba_port("lint", path, "--sarif", path)
    assert (result.status, result.out) == (2, "")
    assert path.read_text() == "import torch\n"
