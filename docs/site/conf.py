"""Settings of Sphinx. The source is the checkout, so that links between pages are those that a code host shows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.site.order import menus  # noqa: E402  the checkout is on no path before
from samba_onnx.version import __version__  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "samba-onnx"
author = "The samba-onnx authors"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/**/*.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "SUPPORT.md",
    "README.md",
    "examples/README.md",
    "benchmarks/README.md",
]
exclude_patterns = [
    ".*",
    "out",
    "build",
    "dist",
    "samba_onnx",
    "runtime",
    "passes",
    "tests",
    "models",
]

myst_heading_anchors = 4  # links to headings, as code hosts make them
myst_enable_extensions: list[str] = []
suppress_warnings = [
    "myst.header",  # pages that are written by programs begin with a comment
    "toc.not_included",  # the README is the code host's first page, not the site's
    "misc.highlighting_failure",  # samples of Python that leave out what is not shown
]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"samba-onnx {version}"
html_static_path = ["static"]
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_use_index = True

linkcheck_timeout = 20
linkcheck_ignore = [r"https://github\.com/OWNER/.*"]


def setup(app: Sphinx) -> None:
    """Add the menus to the pages that list what is below them."""
    app.connect("source-read", _add_menus)


def _add_menus(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] += menus(name, source[0])
