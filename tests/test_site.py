"""What of the site needs no Sphinx: its menus are the lists of the index, its first page lists all versions."""

from __future__ import annotations

import re
from pathlib import Path

import samba_onnx
from docs.site.__main__ import write_versions
from docs.site.order import MENUS, REFERENCE, menus, sections
from samba_onnx.operator_names import FUNCTIONAL
from samba_onnx.version import __version__

ROOT = Path(__file__).parent.parent


def test_menus_are_the_lists_of_the_index() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    parts = sections(text)
    assert [caption for caption, _ in parts] == re.findall(r"^## (.*)$", text, re.MULTILINE)
    pages = [page for _, pages in [*parts, REFERENCE] for page in pages]
    assert len(pages) == len(set(pages)) > 40
    assert all((ROOT / f"{page.removeprefix('/')}.md").exists() for page in pages)
    written = menus("docs/index", text)
    assert written.count("```{toctree}") == len(parts) + 1
    assert all(f"\n{page}\n" in written for page in pages)
    assert all("/docs/" in menus(name, "") for name in MENUS)
    assert menus("docs/python", "# Python") == ""


def test_the_first_page_lists_versions_the_newest_first(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "0.2.1", __version__):
        (tmp_path / name / "docs").mkdir(parents=True)
        (tmp_path / name / "docs" / "index.html").touch()
    write_versions(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r">([\d.]+)</a>", page) == ["0.10.0", "0.9.0", "0.2.1", "0.1.0"]


def test_the_reference_has_every_public_name() -> None:
    folder = ROOT / "docs" / "site" / "reference"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.md"))
    named = set(re.findall(r"^\.\. auto\w+:: samba_onnx\.(?:\w+\.)*(\w+)$", text, re.MULTILINE))
    modules = {"functional", "graph", "nn", "optim", "sambaflow", "sambaloader", "session"}
    modules |= {"translations", "utils", "__version__", "SambaError", "SNType"}
    # Those of torch are documented by torch.
    assert set(samba_onnx.__all__) - named - modules - set(FUNCTIONAL) == set()
