"""The order of the site's pages is that of ``docs/index.md``: lists for readers are menus of the site."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

MENUS = {
    "docs/cli": "docs/commands/*.md",
    "docs/decisions/index": "docs/decisions/[0-9]*.md",
}
"""Pages that have others below them which are found, not listed."""
REFERENCE = ("Reference", ["/docs/site/reference/index"])
"""What only the site has: signatures and docstrings."""


def menus(name: str, text: str) -> str:
    """Return what a page needs so that the site's menu has what the page lists.

    Args:
        name: The page, without its suffix.
        text: Its Markdown.
    """
    if name == "docs/index":
        return "".join(_menu(caption, pages) for caption, pages in [*sections(text), REFERENCE])
    if name in MENUS:
        found = sorted(ROOT.glob(MENUS[name]))
        return _menu(
            "", ["/" + path.relative_to(ROOT).with_suffix("").as_posix() for path in found]
        )
    return ""


def sections(text: str) -> list[tuple[str, list[str]]]:
    """Return the headings of the index, each with the pages below it.

    Args:
        text: The Markdown of the index, which lies in ``docs``.
    """
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    found = []
    for caption, body in zip(parts[::2], parts[1::2], strict=True):
        links = re.findall(r"^(?:-|\d+\.) \[[^\]]+\]\(([^)#]+)\.md\)", body, re.MULTILINE)
        found.append((caption, [_absolute(link) for link in links]))
    return found


def _absolute(link: str) -> str:
    return (
        f"/{link.removeprefix('../')}" if link.startswith("../") else f"/docs/{PurePosixPath(link)}"
    )


def _menu(caption: str, pages: list[str]) -> str:
    stated = [f":caption: {caption}"] if caption else []
    lines = ["```{toctree}", ":hidden:", ":titlesonly:", *stated, "", *pages, "```"]
    return "\n\n" + "\n".join(lines) + "\n"
