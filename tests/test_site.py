"""What of the site needs no Sphinx: its menus are the lists of the index, its first page lists all versions."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import samba_onnx
from docs.site.__main__ import build_tags, write_versions
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


def test_every_tagged_version_is_built_by_its_own_pages(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    script = clone / "docs" / "site" / "__main__.py"
    script.parent.mkdir(parents=True)
    for version in ("0.1.0", "0.2.0"):
        script.write_text(
            "import pathlib\n"
            f"page = pathlib.Path('out/site/{version}/docs/index.html')\n"
            f"page.parent.mkdir(parents=True); page.write_text('this is {version}')\n"
        )
        for command in ("init -q", "add .", f"commit -q -m {version}", f"tag v{version}"):
            author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
            subprocess.run(["git", *author, *command.split()], cwd=clone, check=True)
    place = tmp_path / "site"
    assert build_tags(clone, place) == 0
    pages = {path.parents[1].name: path.read_text() for path in place.glob("*/docs/index.html")}
    assert pages == {"0.1.0": "this is 0.1.0", "0.2.0": "this is 0.2.0"}
    script.write_text("raise SystemExit(3)")
    assert build_tags(clone, place) == 0, "what is there is not built again"


def test_the_reference_has_every_public_name() -> None:
    folder = ROOT / "docs" / "site" / "reference"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.md"))
    named = set(re.findall(r"^\.\. auto\w+:: samba_onnx\.(?:\w+\.)*(\w+)$", text, re.MULTILINE))
    modules = {"functional", "graph", "nn", "optim", "sambaflow", "sambaloader", "session"}
    modules |= {"translations", "utils", "__version__", "SambaError", "SNType"}
    # Those of torch are documented by torch.
    assert set(samba_onnx.__all__) - named - modules - set(FUNCTIONAL) == set()
