"""The page of an answer that is no report: tiles, tables, and the graph where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from samba_onnx.report.difference import DifferenceReport
from samba_onnx.report.difference_text import difference_blocks
from samba_onnx.report.headline import PART_WORDS
from samba_onnx.report.page.charts import Bar, time_bars, time_parts
from samba_onnx.report.page.graph_data import graph_json
from samba_onnx.report.page.page import page_html
from samba_onnx.report.report import Report
from samba_onnx.report.units import second_text
from samba_onnx.version import __version__

__all__ = ["Block", "Tile", "answer_page", "difference_page"]

Tile = tuple[str, str, str]
"""What a figure is, the figure, and a word more."""
_LEAST: Final = 1e-12
"""Seconds of a part that count as a change."""


@dataclass(frozen=True)
class Block:
    """A table with its title."""

    title: str
    columns: Sequence[str]
    """Headings; one that begins with ``>`` is for numbers, as in tables of a terminal."""
    rows: Sequence[Sequence[str]]
    note: str = ""
    sortable: bool = False
    """Whether a click on a heading sorts it."""
    bars: Sequence[Bar] = ()
    """A bar above it."""
    links: Mapping[int, str] = field(default_factory=dict)
    """Where the first cell of a row leads, by index of the row."""


def answer_page(
    command: str,
    title: str,
    headline: str,
    tiles: Sequence[Tile],
    blocks: Sequence[Block],
    *,
    report: Report | None = None,
    errors: Mapping[str, float] | None = None,
) -> str:
    """Return a page.

    Args:
        command: The command that answers.
        title: What it is about.
        headline: The answer in a line.
        tiles: The figures to see first.
        blocks: Tables; those without rows are left out.
        report: Whose graph is shown; None for none.
        errors: Errors of values by name, as shares of what is allowed.

    Raises:
        MissingLibraryError: The extra ``html`` is not installed.
    """
    return _page(command, title, headline, tiles, blocks, report=report, errors=errors)


def _page(
    command: str,
    title: str,
    headline: str,
    tiles: Sequence[Tile],
    blocks: Sequence[Block],
    *,
    report: Report | None = None,
    errors: Mapping[str, float] | None = None,
    steps: Sequence[Bar] = (),
    both: Sequence[tuple[str, Sequence[Bar]]] = (),
) -> str:
    return page_html(
        "answer.html",
        title=title,
        data="null" if report is None else graph_json(report, errors),
        sortable=any(block.sortable for block in blocks),
        kicker=f"samba-port {command}",
        headline=headline,
        tiles=tiles,
        blocks=blocks,
        errors=errors is not None,
        steps=steps,
        both=both,
        producer=f"samba-onnx {__version__}",
    )


def difference_page(answer: DifferenceReport, before: Report, after: Report, command: str) -> str:
    """Return the page of what differs between two reports, with the graph of the second.

    Args:
        answer: The differences.
        before: The first report.
        after: The second one.
        command: The command that compares.

    Raises:
        MissingLibraryError: The extra ``html`` is not installed.
    """
    # Both in one unit of the page: what is compared stands side by side.
    times = [second_text(side.modelled_time.total_seconds) for side in (before, after)]
    tiles = [
        (f"before: {answer.before}", times[0], "per run, modelled"),
        (f"after: {answer.after}", times[1], "per run, modelled"),
        ("on the CPU before", str(before.coverage.cpu_nodes), "nodes"),
        ("on the CPU after", str(after.coverage.cpu_nodes), "nodes"),
    ]
    return _page(
        command,
        f"{answer.before} → {answer.after}",
        answer.headline,
        tiles,
        [Block(title, columns, rows) for title, rows, columns in difference_blocks(answer)],
        report=after,
        steps=waterfall(before, after),
        both=[("before", time_bars(before)), ("after", time_bars(after))],
    )


def waterfall(before: Report, after: Report) -> list[Bar]:
    """Return how the time of a run becomes another one, part by part.

    Args:
        before: The first report.
        after: The second one.

    Returns:
        The whole of the first, what each part adds or takes away, and the whole of the second.
    """
    left, right = time_parts(before), time_parts(after)
    at = sum(left.values())
    most = max(at, sum(right.values()), _LEAST)
    # The highest that the steps reach between the two, so that all are within the frame.
    bars = [_step("before", 0.0, at, "whole", second_text(at))]
    for name, words in PART_WORDS.items():
        change = right.get(name, 0.0) - left.get(name, 0.0)
        if abs(change) < _LEAST:
            continue
        sign = "+" if change > 0 else "-"
        kind = "more" if change > 0 else "less"
        bars.append(_step(words, at, at + change, kind, f"{sign}{second_text(abs(change))}"))
        at += change
        most = max(most, at)
    bars.append(_step("after", 0.0, at, "whole", second_text(at)))
    return [_scaled(bar, most) for bar in bars]


def _step(label: str, begin: float, end: float, kind: str, value: str) -> Bar:
    return Bar(label, value, "", left=min(begin, end), width=abs(end - begin), kind=kind)


def _scaled(bar: Bar, most: float) -> Bar:
    left, width = round(100 * bar.left / most, 3), round(100 * bar.width / most, 3)
    return Bar(bar.label, bar.value, bar.share, left=left, width=width, kind=bar.kind)
