"""What a project states counts once in a survey: in its own options, and not again in each analysis."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from samba_onnx.report.reading import read_report
from tests.cli.conftest import SambaPort

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[2, 4] x) => (float[2, 4] y) { a = Relu(x)
 y = Tanh(a) }
"""


@pytest.mark.parametrize(
    ("flags", "expected"), [([], ("sn40l", "o0")), (["--level", "o3"], ("sn40l", "o3"))]
)
def test_flags_count_before_files_and_variables(
    flags: list[str],
    expected: tuple[str, str],
    samba_port: SambaPort,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    (tmp_path / "samba-port.toml").write_text('level = "o0"\n')
    monkeypatch.setenv("SAMBA_PORT_TARGET", "sn10")  # the targets of a survey are its own
    monkeypatch.chdir(tmp_path)
    result = samba_port("survey", "m.onnx", "-q", *flags)
    assert result.status == 0, result.err
    (path,) = Path("survey").glob("*.json")
    report = read_report(path.read_bytes(), str(path))
    assert (report.target, report.level) == expected
