"""The table of commands in ``docs/cli.md``: ``python -m docs.generators.commands`` writes it anew."""

from __future__ import annotations

from pathlib import Path

from samba_onnx.tools import find_tools

PAGE = Path(__file__).parents[1] / "cli.md"

_HEAD = "| command | question that it answers |\n|---|---|\n"


def with_table(page: str) -> str:
    """Return the page with the table that the tools make; all else of it is written by hand.

    Args:
        page: Its text, in which the table ends at an empty line.
    """
    before, _, rest = page.partition(_HEAD)
    _, end, after = rest.partition("\n\n")
    rows = (
        f"| [`{tool.name}`]({tool.page or f'#{tool.name}'}) | {tool.question} |"
        for tool in find_tools().values()
    )
    return before + _HEAD + "\n".join(rows) + end + after


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
