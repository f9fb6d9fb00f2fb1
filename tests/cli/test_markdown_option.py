"""``--markdown`` and ``--github``: a report for a pull request, and what a job of GitHub is told."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import SambaPort

GRAPH = (
    '<ir_version: 10, opset_import: ["" : 21]> g (float[n] x) => (int64[1,m] y) { y = NonZero(x) }'
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(GRAPH), path)
    return path


def test_a_job_gets_a_summary_behind_others_and_annotations(
    samba_port: SambaPort, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    options = ("--github", "--fail-on-fallback", "--markdown", tmp_path / "m.md", "-q")
    result = samba_port("analyze", model, *options)
    assert result.status == 1
    assert "::error title=samba-port analyze::1 fallback to the CPU, 0 allowed\n" in result.err
    text = (tmp_path / "m.md").read_text()
    assert summary.read_text() == "before\n" + text
    assert "- ❌ --fail-on-fallback: 1 fallback to the CPU, 0 allowed\n" in text


def test_github_is_asked_for_in_a_job_only(
    samba_port: SambaPort, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    result = samba_port("convert", model, "-o", tmp_path / "m.pef", "--github")
    assert (result.status, result.out) == (2, "")
    assert "GITHUB_STEP_SUMMARY" in result.err
    assert not (tmp_path / "m.pef").exists()


def test_markdown_may_be_the_answer(samba_port: SambaPort, model: Path) -> None:
    result = samba_port("analyze", model, "--markdown", "-")
    assert result.out.startswith("<!-- samba-port m.onnx sn40l -->\n")
    both = samba_port("analyze", model, "--markdown", "-", "--json", "-")
    assert (both.status, both.out) == (2, "")
    assert "one answer goes to standard output" in both.err
