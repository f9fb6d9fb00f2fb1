"""From SambaFlow back to plain PyTorch: there and back computes the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("libcst")
pytest.importorskip("torch")

from samba_onnx.tools.adapt.adapting import restore_source
from samba_onnx.tools.adapt.source import ProgramFile
from tests.cli.conftest import SambaPort
from tests.tools.adapt.expected import ADAPTED, CORPUS


def _there_and_back(samba_port: SambaPort, folder: Path, name: str) -> None:
    output = folder / "there"
    output.mkdir()
    assert samba_port("adapt", CORPUS / name, "-o", output, "-q").status == 0
    report = folder / "back.json"
    program = output / Path(name).name
    result = samba_port("adapt", program, "--from", "sambaflow", "--check", "20", "--json", report)
    assert result.status == 0, result.out + result.err
    document = json.loads(report.read_text())
    assert document["check"]["agrees"]
    assert document["check"]["printed_differences"] == []
    assert "sambaflow" not in "".join(
        line for line in document["diff"].splitlines() if line.startswith("+")
    )


def test_a_program_comes_back(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _there_and_back(samba_port, tmp_path, "accumulating.py")


@pytest.mark.parametrize("name", [name for name in ADAPTED if not name.startswith("accelerate")])
def test_every_program_comes_back(
    samba_port: SambaPort, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _there_and_back(samba_port, tmp_path, name)


def test_what_sambaflow_alone_has_is_named() -> None:
    text = "import sambaflow.samba as samba\n\nprint(samba.session.get_section_types())\n"
    points = restore_source(ProgramFile("sections.py", text)).blocking
    assert [(point.pattern, point.line) for point in points] == [("sambaflow-only", 3)]


def test_a_plain_program_is_left_alone(samba_port: SambaPort) -> None:
    result = samba_port("adapt", CORPUS / "script_linear.py", "--from", "sambaflow")
    assert result.status == 0
    assert "is no SambaFlow program, and is left as it is" in result.out
