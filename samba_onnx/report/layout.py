"""How blocks and tables look on a terminal and in a pipe."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from samba_onnx.pef.manifest import Cause, Direction
from samba_onnx.report.units import printable

ARROWS = {
    Direction.HOST_TO_RDU: "host → RDU",
    Direction.RDU_TO_HOST: "RDU → host",
    Direction.RDU_TO_RDU: "RDU → RDU",
}
CAUSES = {Cause.FALLBACK: "fallback boundary"}
CAUSE_ORDER = (
    Cause.INPUT,
    Cause.FALLBACK,
    Cause.COLLECTIVE,
    Cause.OUTPUT,
    Cause.REDUCE,
    Cause.WEIGHT,
    Cause.CONSTANT,
    Cause.EXPLICIT,
)
"""Causes in the order in which a reader meets them."""


_NOTEBOOK_WIDTH: Final = 120
"""Columns of a report in a notebook."""


def render(content: RenderableType, *, width: int | None = None, color: bool = False) -> str:
    """Return what a terminal of ``width`` columns shows, without trailing blanks.

    Args:
        content: What to show.
        width: Columns; None for as many as the content needs, which suits pipes and files.
        color: Whether to add escape sequences for bold and dim text.

    Returns:
        Lines, each with its newline.
    """
    # Names from files are shown as they are: no markup, no emoji, nothing highlighted. Nor does the user's
    # environment change what is written, so that one report is one text.
    console = Console(
        # A pipe has no width: what reads it takes a row for a line.
        width=width or 100_000,
        force_terminal=color,
        color_system="standard" if color else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        console.print(content)
    # rich fills lines with blanks, which would make every file differ with its width.
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


def html(content: RenderableType) -> str:
    """Return what a notebook shows: the same lines, with bold and dim text.

    Args:
        content: What to show.
    """
    console = Console(
        record=True,
        file=io.StringIO(),
        width=_NOTEBOOK_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    console.print(content)
    form = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=form)


def titled(title: str, *contents: RenderableType) -> RenderableType:
    """Return a block: a bold title, the contents indented below it."""
    return Group(Text(title, style="bold"), *(indent(content) for content in contents))


def indent(content: RenderableType) -> RenderableType:
    """Move a block two columns to the right, and pad it no wider than it is."""
    return Padding(content, (0, 0, 0, 2), expand=False)


def facts(lines: Sequence[tuple[str, str]]) -> RenderableType:
    """Return lines behind the words that say what they are about, each word once.

    Args:
        lines: Word and text; control characters in the text are escaped.
    """
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    before = ""
    for word, text in lines:
        grid.add_row(word if word != before else "", _Cell(printable(text)))
        before = word
    return grid


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    limit: int | None = None,
    more: str = "-v shows all",
) -> RenderableType:
    """Return a borderless table.

    Args:
        columns: Headings; one that starts with ``>`` is for numbers and right-aligned.
        rows: Cells; control characters in them are escaped.
        limit: Show at most so many rows and say how many are left; None for all.
        more: What to do to see the rest.

    Returns:
        Something that a rich console prints; long cells wrap and are never cut.
    """
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in columns:
        number = heading.startswith(">")
        grid.add_column(
            heading.removeprefix(">"),
            justify="right" if number else "left",
            # A number in two lines would be read as two numbers.
            no_wrap=number,
            # Folded, not cut: the end of a reason may be what tells it from others.
            overflow="fold",
        )
    # One row more takes no more room than the line that would tell of it.
    shown = rows if limit is None or len(rows) <= limit + 1 else rows[:limit]
    for row in shown:
        grid.add_row(*(_Cell(printable(cell)) for cell in row))
    if len(shown) == len(rows):
        return grid
    return Group(grid, Text(f"… and {len(rows) - len(shown):,} more ({more})", style="dim"))


class _Cell:
    """A text that breaks at blanks, or within a word behind one of ``/ . _ : -``, before it breaks anywhere else.

    Names of values are long words of short ones: ``encoder.layers.3.self_attn_out`` is easier to read in
    two lines that are words than in two that are not.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        # As wide as the whole text: it is broken only where the terminal is too narrow for it.
        return Text(self._text).__rich_measure__(console, options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(broken(self._text, options.max_width)), overflow="fold")


def broken(text: str, width: int) -> list[str]:
    """Return a text in lines of at most so many columns, with nothing left out but blanks at their ends.

    Args:
        text: One line.
        width: Columns; a piece of a word that is longer stays in one line, which whoever prints it folds.
    """
    lines, line = [], ""
    for piece in re.findall(r"\s+|[^\s/._:-]*[/._:-]+|[^\s/._:-]+", text):
        if line and cell_len(line) + cell_len(piece.rstrip()) > width:
            # A whole word that fits goes into the next line in whole.
            head, blank, word = line.rpartition(" ")
            if blank and head.strip() and cell_len(word + piece) <= width:
                lines.append(head.rstrip())
                line = word
            else:
                lines.append(line.rstrip())
                line = ""
        line = (line + piece) if line else piece.lstrip()
    return [*lines, line.rstrip()] if line or not lines else lines


def some(names: Sequence[str], limit: int | None) -> str:
    """Return the first names and how many more there are."""
    if limit is None or len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])}, +{len(names) - limit}"
