"""Pages in a real browser: every control, widths, themes, paper, accessibility, and no request."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

import samba_onnx
from samba_onnx.report.page.page import report_page
from tests.report.page.browser import AXE, Browser, chromium
from tests.report.page.test_page import hostile_model, large

MODEL = """
    <ir_version: 8, opset_import: ["" : 18]>
    net (float[8, 16, 16] x) => (float[8, 16, 16] y) {
        a = MatMul(x, x)
        b = LpPool <kernel_shape = [1]> (a)
        c = Exp(a)
        d = Add(b, c)
        e = MatMul(d, d)
        f = Relu(e)
        y = MatMul(f, f)
    }
"""
NAMES = ("small", "hostile", "large")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    models = {"small": onnx.parser.parse_model(MODEL), "hostile": hostile_model()}
    for node in models["small"].graph.node:
        node.name = f"/layers.{node.output[0]}/{node.op_type}"
    reports = {
        name: samba_onnx.Report.from_manifest(samba_onnx.analyze(model, placement="strict"))
        for name, model in models.items()
    }
    reports["large"] = large(10_000)
    for name, report in reports.items():
        (folder / f"{name}.html").write_text(report_page(report, "analyze"), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in reports}


def click(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector({json.dumps(selector)}).click()")


def press(browser: Browser, key: str) -> None:
    browser.run(
        "var c = document.getElementById('canvas'); c.focus();"
        f"c.dispatchEvent(new KeyboardEvent('keydown', {{key: {json.dumps(key)}, bubbles: true}}))"
    )


def search(browser: Browser, query: str) -> list[str]:
    browser.run(
        f"var box = document.getElementById('search'); box.value = {json.dumps(query)};"
        "box.dispatchEvent(new Event('input'))"
    )
    found = browser.run("[...document.querySelectorAll('#results li')].map((one) => one.innerText)")
    return [str(text) for text in found]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [320, 360, 1280, 2560])  # 320: a window of 1280 at 400 %
@pytest.mark.parametrize(
    "media",
    [
        {"prefers_color_scheme": "light"},
        {"prefers_color_scheme": "dark"},
        {"forced_colors": "active"},
    ],
    ids=["light", "dark", "forced"],
)
def test_pages_fit_and_ask_for_nothing(
    browser: Browser, pages: dict[str, Path], name: str, width: int, media: dict[str, Any]
) -> None:
    browser.open(pages[name], width=width, **media)
    assert browser.complaints() == []
    assert browser.requests() == [pages[name].as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.getElementById('canvas').width") > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.skipif(not AXE.exists(), reason="npm ci --prefix tests/report/page installs axe")
def test_pages_are_accessible(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str
) -> None:
    browser.open(pages[name], prefers_color_scheme=scheme)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    search(browser, "matmul")
    click(browser, "#results button") if name != "large" else press(browser, "Enter")
    # The policy of the page holds for what looks at it, too.
    browser.command("Page.setBypassCSP", enabled=True)
    browser.run(AXE.read_text(encoding="utf-8"))
    found = browser.run("axe.run()")
    browser.command("Page.setBypassCSP", enabled=False)
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []


def test_search_finds_names_operators_and_modules(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["small"])
    assert len(search(browser, "matmul")) == 3
    assert len(search(browser, "MATMUL layers.e")) == 1
    assert browser.text("#found") == "1 node"
    assert search(browser, "nowhere") == []
    assert browser.text("#found") == "0 nodes"
    assert search(browser, "") == []


def test_a_node_has_an_address(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["small"])
    search(browser, "exp")
    click(browser, "#results button")
    address = browser.run("location.hash")
    assert address == "#node=%2Flayers.c%2FExp"
    browser.go("about:blank")
    browser.go(pages["small"].as_uri() + address)
    assert browser.text("#detail h3") == "/layers.c/Exp"
    browser.run("location.hash = '#node=gone'")
    browser.settle()
    assert browser.text("#found").startswith("The node of this link")


def test_details_lead_to_neighbours_and_to_the_cpu(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["small"])
    search(browser, "relu")
    click(browser, "#results button")
    assert "Reads from" in browser.text("#detail")
    browser.run("[...document.querySelectorAll('#detail button')].at(-1).click()")
    assert "3 steps to the CPU" in browser.text("#detail")
    browser.run("[...document.querySelectorAll('#detail button')].at(-1).click()")
    assert browser.text("#detail h3") == "/layers.b/LpPool"
    assert "LpPool does not run on" in browser.text("#detail")


def test_keys_go_along_open_and_close(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["small"])
    press(browser, "ArrowRight")
    first = browser.text("#detail h3")
    press(browser, "ArrowRight")
    assert browser.text("#detail h3") != first
    press(browser, "Enter")
    assert browser.text("#path").startswith("All sections")
    press(browser, "ArrowRight")
    assert "operator" in browser.text("#detail")
    press(browser, "Escape")
    assert "in the order of the schedule" in browser.text("#path")


def test_controls_change_the_picture(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["large"])

    def picture() -> str:
        browser.settle()
        return str(browser.run("document.getElementById('canvas').toDataURL()"))

    pictures = [picture()]
    for selector in ("#fold", "#larger", "#smaller"):
        click(browser, selector)
        pictures.append(picture())
    for colour in ("time", "bound"):
        browser.run(
            f"var box = document.getElementById('colour'); box.value = '{colour}';"
            "box.dispatchEvent(new Event('change'))"
        )
        pictures.append(picture())
    assert all(before != after for before, after in itertools.pairwise(pictures))
    assert browser.run("document.getElementById('fold').getAttribute('aria-pressed')") == "false"


def test_modules_are_a_tree(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["small"])
    click(browser, "#tree > summary")
    assert "layers · 7 nodes" in browser.text("#modules")
    browser.run("document.querySelector('#modules details').open = true")
    browser.settle()
    click(browser, "#modules details li button")
    assert browser.text("#detail h3").startswith("/layers.")


def test_without_a_script_everything_but_the_graph_is_there(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["small"])
        document = browser.command("DOM.getDocument")["root"]["nodeId"]
        body = browser.command("DOM.querySelector", nodeId=document, selector="body")["nodeId"]
        shown = browser.command("DOM.getOuterHTML", nodeId=body)["outerHTML"]
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert "The graph is drawn by a script" in shown
    assert "LpPool does not run on" in shown
    assert "Where a run's time goes" in shown
    assert '<div id="graph-box" hidden' in shown


def test_a_page_is_printed(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["small"])
    printed = base64.b64decode(browser.command("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF-")
    assert len(printed) > 20_000


def test_hostile_names_do_nothing(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert len(search(browser, "alert")) == 3
    click(browser, "#results button")
    assert "<img src=x onerror=alert(2)>" in browser.text("#detail")
    assert browser.run("document.images.length") == 0
    assert browser.run("document.scripts.length") == 2
    assert browser.complaints() == []


def test_the_script_has_its_types() -> None:
    folder = Path(__file__).parent
    compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists():
        pytest.skip("npm ci --prefix tests/report/page installs the compiler")
    answer = subprocess.run(
        ["node", compiler, "-p", folder], capture_output=True, text=True, check=False
    )
    assert answer.stdout == ""
