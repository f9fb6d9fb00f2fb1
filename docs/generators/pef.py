"""The fields of the manifest in ``docs/pef.md``: ``python -m docs.generators.pef`` writes them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from samba_onnx.report.manifest_schema import field_tables

PAGE: Final = Path(__file__).parents[1] / "pef.md"
_START: Final = "<!-- fields -->\n"
_END: Final = "<!-- /fields -->\n"


def page(text: str) -> str:
    """Return the page with its tables of fields written anew.

    Args:
        text: The page as it is.
    """
    before, _, rest = text.partition(_START)
    _, _, after = rest.partition(_END)
    return f"{before}{_START}\n{field_tables()}\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
