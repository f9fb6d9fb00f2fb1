"""Where answers go: text or JSON on standard output, JSON in a file, progress on the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samba_onnx.cli.failures import OutputClosedError
from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

ROWS = 12
"""Rows of a table before ``-v``."""
STDOUT = "-"

_PLAIN = str.maketrans({"→": "->", "µ": "u", "…": "..."})


@dataclass(frozen=True)
class Display:
    """What the user wants to see of an answer."""

    json: str | None = None
    """File for the JSON document; ``-`` for standard output."""
    quiet: bool = False
    verbose: int = 0
    markdown: str | None = None
    """File for the report as Markdown; ``-`` for standard output."""

    html: str | None = None
    """File for the page; ``-`` for standard output."""

    def __post_init__(self) -> None:
        """Refuse a page that could not be written, before its report takes time."""
        if self.html is not None:
            from samba_onnx.report.page.page import require_jinja

            require_jinja()

    @property
    def rows(self) -> int | None:
        """Longest table; None for no limit."""
        return None if self.verbose else ROWS

    @property
    def shows_program(self) -> bool:
        """Whether a document has nodes and edges."""
        return self.json is not None or self.html is not None

    def show(
        self,
        headline: str,
        content: Callable[[int | None], RenderableType],
        document: Any,
        page: Callable[[], str] = str,
    ) -> None:
        """Give the answer.

        Args:
            headline: The answer in one line.
            content: Returns the text for tables of at most so many rows, headline included.
            document: A record for the JSON document.
            page: Returns the page, for a command that has one.

        Raises:
            OutputError: A file cannot be written.
            OSError: Standard output cannot be written.
        """
        # Before the text: a pipe that was closed must not cost the file.
        for place, text in self._documents(document, page):
            write_text(text) if place == STDOUT else write_file(place, text.encode())
        if STDOUT in (self.json, self.markdown, self.html):
            return
        write_text(headline + "\n" if self.quiet else _rendered(content(self.rows)))

    def _documents(self, document: Any, page: Callable[[], str]) -> Iterator[tuple[str, str]]:
        """Yield file and text of each document that is asked for."""
        from samba_onnx.report.documents import to_json

        if self.json is not None:
            yield self.json, to_json(document)
        if self.markdown is not None:
            from samba_onnx.report.markdown import markdown_text

            yield self.markdown, markdown_text(document)
        if self.html is not None:
            yield self.html, page()


def write_text(text: str) -> None:
    """Write on standard output, in whatever encoding it has.

    Raises:
        OutputClosedError: Nobody reads it any more.
        OSError: It cannot be written.
    """
    stream = sys.stdout
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        # What has a readable form in ASCII gets that; all else is escaped, and no error.
        text = text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    try:
        stream.write(text)
        # Now: a pipe that was closed is noticed here, and not when the interpreter ends.
        stream.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


def write_file(path: str, content: bytes) -> None:
    """Write a file in whole or not at all.

    Raises:
        OutputError: It cannot be written.
    """
    from samba_onnx.safety.files import atomic_output

    with atomic_output(path) as file:
        file.write(content)


def refuse_overwriting(
    *sources: str | os.PathLike[str] | None, outputs: dict[str, str | None]
) -> None:
    """Refuse an output that is an input, or that is given twice.

    Args:
        sources: Files that the command reads; None for one that nobody gave.
        outputs: Files that it would write, by option.

    Raises:
        UsageError: Two of them are the same file.
    """
    taken = {
        os.path.realpath(source): f"the input {os.fspath(source)}" for source in sources if source
    }
    if list(outputs.values()).count(STDOUT) > 1:
        raise UsageError("one answer goes to standard output: name a file in place of the other -")
    for option, output in outputs.items():
        if output is None or output == STDOUT:
            continue
        # Where links lead: a file would be overwritten by any of its names.
        place = os.path.realpath(output)
        if place in taken:
            raise UsageError(f"{option} {output} would overwrite {taken[place]}")
        taken[place] = f"{option} {output}"


def _rendered(content: RenderableType) -> str:
    """Return text as wide as the terminal, or as wide as it needs for a pipe or a file."""
    from samba_onnx.report.layout import render

    if sys.stdout is None or not sys.stdout.isatty():
        # A pipe gets lines as long as they need, for `grep` and `cut`, and no colour.
        return render(content)
    # The customs of terminals: https://no-color.org, and terminals without escapes.
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return render(content, width=shutil.get_terminal_size().columns, color=not plain)
