"""Tables for notebooks: what names from outside hold is text, never markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from samba_onnx.safety.files import printable


def notebook_table(caption: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Return a table in HTML.

    Args:
        caption: What stands above it.
        rows: The cells of each row.
        head: Titles of the columns; without them the first cell of each row is its title.
    """
    titles = f"<tr>{''.join(_cell(title, 'th') for title in head)}</tr>" if head else ""
    first = "td" if head else "th"
    body = "".join(
        f"<tr>{''.join(_cell(cell, 'td' if number else first) for number, cell in enumerate(row))}</tr>"
        for row in rows
    )
    return f"<table><caption>{escape(printable(caption, 500))}</caption>{titles}{body}</table>"


def _cell(content: object, tag: str) -> str:
    # Words to the left: a notebook sets cells to the right, as if all were numbers.
    side = "right" if isinstance(content, int | float) else "left"
    text = f"{content:,}" if isinstance(content, int) else str(content)
    return f'<{tag} style="text-align:{side}">{escape(printable(text))}</{tag}>'
