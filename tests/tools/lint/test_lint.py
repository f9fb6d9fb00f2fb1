"""``lint``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from samba_onnx.tools.lint.findings import Severity
from samba_onnx.tools.lint.rule_table import RULES
from tests.cli.conftest import SambaPort

SCHEMA = Path(__file__).parents[3] / "docs" / "lint.schema.json"
WORST = {
    severity: next(r for r in RULES.values() if r.severity is severity) for severity in Severity
}
"""A rule of each severity."""


def write(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_finding_has_its_place_its_reason_and_what_to_write(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    rule = RULES["branch-on-values"]
    path = write(tmp_path, rule.example)
    result = samba_port("lint", path)
    assert (result.status, result.err) == (1, "")
    lines = result.out.splitlines()
    assert lines[0] == "1 error in 1 file"
    assert lines[2].startswith(f"{path}:6:12: error: `x.sum() > 0` decides")
    assert lines[2].endswith("`Net.forward` [branch-on-values]")
    assert f"  why: {rule.why}" in lines
    assert f"  instead: {rule.instead}" in lines


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("limit", ["error", "warning", "note", "never", None])
def test_the_exit_status_says_whether_anything_is_too_bad(
    samba_port: SambaPort, tmp_path: Path, severity: Severity, limit: str | None
) -> None:
    path = write(tmp_path, WORST[severity].example)
    result = samba_port("lint", path, *([] if limit is None else ["--fail-on", limit]))
    order = ["error", "warning", "note"]
    bad = limit != "never" and order.index(severity.value) <= order.index(limit or "error")
    assert result.status == (1 if bad else 0)


def test_nothing_found(samba_port: SambaPort, tmp_path: Path) -> None:
    path = write(tmp_path, "import torch\n")
    assert samba_port("lint", path) == samba_port("lint", path, "-q")
    assert samba_port("lint", path).out == "nothing found in 1 file\n"
    assert samba_port("lint", path, "--fail-on", "note").status == 0


def test_as_json(samba_port: SambaPort, tmp_path: Path) -> None:
    rule = RULES["host-operator"]
    path = write(tmp_path, rule.example)
    document = json.loads(samba_port("lint", path, "--json", "-").out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    (finding,) = document["findings"]
    assert (finding["path"], finding["line"], finding["column"]) == (str(path), 11, 16)
    assert (finding["rule"], finding["severity"]) == ("host-operator", "warning")
    assert (document["errors"], document["warnings"], document["notes"]) == (0, 1, 0)
    assert [row["why"] for row in document["rules"]] == [rule.why]


def test_long_lists_end_with_how_many_are_left(samba_port: SambaPort, tmp_path: Path) -> None:
    forward = "\n".join("        print(x)" for _ in range(20))
    path = write(tmp_path, f"class A:\n    def forward(self, x):\n{forward}\n")
    short, long = samba_port("lint", path), samba_port("lint", path, "-v")
    assert short.out.count("[print-in-forward]") == 12
    assert "… and 8 more findings (-v shows all)" in short.out
    assert long.out.count("[print-in-forward]") == 20


def test_a_target_of_its_own_rules(samba_port: SambaPort, tmp_path: Path) -> None:
    path = write(tmp_path, RULES["odd-batch"].example)
    assert samba_port("lint", path).status == 0
    assert samba_port("lint", path, "--target", "sn30").status == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (\n", "program.py:1: this is no Python that Python 3."),
        ("\0", "null bytes"),
        (f"x = {'-' * 100_000}1\n", "nested too deeply"),
        (f"class A:\n def forward(self, x):\n  return {'x + ' * 3000}x\n", "nested too deeply"),
    ],
)
def test_what_is_no_python_is_told_in_one_line(
    samba_port: SambaPort, tmp_path: Path, text: str, words: str
) -> None:
    result = samba_port("lint", write(tmp_path, text))
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert words in result.err


def test_missing_and_empty_places(samba_port: SambaPort, tmp_path: Path) -> None:
    missing = samba_port("lint", tmp_path / "missing.py")
    assert missing.status == 2
    assert "cannot open this program" in missing.err
    empty = samba_port("lint", tmp_path)
    assert empty.status == 2
    assert "expected Python files in this folder" in empty.err


def test_a_program_is_not_overwritten(samba_port: SambaPort, tmp_path: Path) -> None:
    path = write(tmp_path, "x = 1\n")
    assert samba_port("lint", path, "--json", path).status == 2
    assert path.read_text() == "x = 1\n"


def test_nothing_of_a_program_is_executed_and_torch_is_not_needed(tmp_path: Path) -> None:
    path = write(tmp_path, f"import torch\nopen({str(tmp_path / 'made')!r}, 'w')\n")
    code = (
        "import sys\n"
        "from samba_onnx.cli import main\n"
        f"sys.argv = ['samba-port', 'lint', {str(path)!r}]\n"
        "print(main(), 'torch' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stderr == "0 False\n"
    assert not (tmp_path / "made").exists()
