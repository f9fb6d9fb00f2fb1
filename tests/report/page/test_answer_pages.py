"""Pages of ``convert``, ``run``, ``compare``, ``diff`` and ``survey`` in a real browser: accessible, narrow, without a request."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

from tests.cli.conftest import SambaPort, samba_port
from tests.report.page.browser import AXE, Browser
from tests.report.page.test_browser import MODEL, browser

__all__ = ["browser", "samba_port"]

COMMANDS = {
    "convert": ("convert", "a.onnx", "-o", "c.pef"),
    "run": ("run", "a.pef", "--random", "0"),
    "compare": ("compare", "a.onnx", "a.pef"),
    "diff": ("diff", "a.pef", "a.onnx", "--target", "sn30"),
    "survey": ("survey", "a.onnx"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_pages_of_answers_are_accessible(
    browser: Browser,
    samba_port: SambaPort,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "a.onnx")
    samba_port("convert", "a.onnx", "-q")
    result = samba_port(*COMMANDS[name], "--html", "page.html", "-q")
    assert result.status in (0, 1), result.err
    page = tmp_path / "page.html"
    for width in (360, 1280):
        browser.open(page, width=width, prefers_color_scheme="light")
        assert browser.complaints() == []
        assert browser.requests() == [page.as_uri()]
        assert browser.run("document.documentElement.scrollWidth") <= width
    if not AXE.exists():
        pytest.skip("npm ci --prefix tests/report/page installs axe")
    for scheme in ("light", "dark"):
        browser.open(page, prefers_color_scheme=scheme)
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        browser.command("Page.setBypassCSP", enabled=True)
        browser.run(AXE.read_text(encoding="utf-8"))
        found = browser.run("axe.run()")
        browser.command("Page.setBypassCSP", enabled=False)
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
