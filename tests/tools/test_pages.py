"""``--html`` of every command that has it, on a small model with a node that no RDU has."""

from __future__ import annotations

import builtins
import html
import json
import re
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

import samba_onnx
from tests.cli.conftest import SambaPort

pytest.importorskip("jinja2")

MODEL = """
    <ir_version: 8, opset_import: ["" : 18]>
    net (float[8, 16, 16] x) => (float[8, 16, 16] y) {
        a = MatMul(x, x)
        b = LpPool <kernel_shape = [1]> (a)
        c = Exp(b)
        y = MatMul(c, a)
    }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "net.onnx")
    samba_onnx.convert(tmp_path / "net.onnx", tmp_path / "net.pef").close()
    return tmp_path


def page(path: Path) -> str:
    """Return a page as text, and check that it is a whole one that asks for nothing."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>")
    assert "default-src 'none'" in html.unescape(text)
    assert re.search(r"\ssrc=|@import|url\(", text.partition('id="data"')[0]) is None
    return html.unescape(text)


@pytest.mark.parametrize("command", ["convert", "analyze"])
def test_reports(samba_port: SambaPort, folder: Path, command: str) -> None:
    answer = samba_port(command, "net.onnx", "--html", "net.html")
    assert answer.status == 0
    first = page(folder / "net.html")
    assert "LpPool does not run on sn40l" in first
    assert f"samba-port {command} · sn40l" in first
    samba_port(command, "net.onnx", "--html", "again.html", "-q")
    assert page(folder / "again.html") == first


def test_a_page_in_place_of_the_text(samba_port: SambaPort, folder: Path) -> None:
    answer = samba_port("analyze", "net.onnx", "--html", "-")
    assert answer.out.startswith("<!doctype html>")
    assert answer.out.endswith("</html>")
    both = samba_port("analyze", "net.onnx", "--html", "-", "--json", "-")
    assert (both.status, "one answer goes to standard output" in both.err) == (2, True)


def test_a_run(samba_port: SambaPort, folder: Path) -> None:
    assert (
        samba_port("run", "net.pef", "--random", 0, "--time-sections", "--html", "r.html").status
        == 0
    )
    text = page(folder / "r.html")
    for words in ("per run, measured", "Copies in the ledger", "Time by call", "float32"):
        assert words in text


def test_a_comparison_colours_the_graph(samba_port: SambaPort, folder: Path) -> None:
    assert samba_port("compare", "net.onnx", "net.pef", "--html", "c.html").status == 0
    text = page(folder / "c.html")
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert len(data["node"]["error"]) == len(data["node"]["op"])
    assert all(0 <= error <= 1 for error in data["node"]["error"])
    assert "beyond the tolerance" in text


def test_a_difference_and_a_supposition_have_a_waterfall(
    samba_port: SambaPort, folder: Path
) -> None:
    samba_port("analyze", "net.onnx", "--level", "o0", "--json", "before.json", "-q")
    answer = samba_port("diff", "before.json", "net.pef", "--allow-different", "--html", "d.html")
    assert answer.status in (0, 1)
    supposed = samba_port("analyze", "net.onnx", "--what-if", "support=LpPool", "--html", "w.html")
    assert supposed.status == 0
    for name in ("d.html", "w.html"):
        text = page(folder / name)
        assert "What moved in a run's time" in text
        assert 'id="canvas"' in text


def test_a_survey_leads_to_its_models(samba_port: SambaPort, folder: Path) -> None:
    assert (
        samba_port("survey", "net.onnx", "--output", "out", "--html", "s.html", "--jobs", 1).status
        == 0
    )
    text = page(folder / "s.html")
    (link,) = re.findall(r'href="(out/[^"]+)"', text)
    assert "LpPool does not run on sn40l" in page(folder / link)
    assert 'class="sortable"' in text


def test_what_is_missing_is_said_before_anything_takes_time(
    samba_port: SambaPort, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    answer = samba_port("analyze", "net.onnx", "--html", "net.html")
    assert answer.status == 2
    assert "pip install 'samba-onnx[html]'" in answer.err
    assert not (folder / "net.html").exists()
