"""A report as Markdown, for pull requests and the summaries of pipelines, and as the annotations of GitHub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from samba_onnx.report.brief import fact_lines
from samba_onnx.report.layout import some
from samba_onnx.report.report import Report
from samba_onnx.report.units import byte_text, count_text, flop_text, printable, second_text

__all__ = ["github_annotations", "markdown_text"]

_ROWS: Final = 10
"""Rows of a table, and annotations; GitHub shows no more of a step."""
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>#|~&])")
"""What means something in Markdown or HTML within a line."""
_OTHERS: Final = re.compile(r"[^\w.]+")
"""What is no part of a name in a comment of HTML, whose end it might be."""


def markdown_text(report: Report) -> str:
    """Return the report as Markdown of GitHub.

    Args:
        report: The report.

    Returns:
        A comment by which a pipeline finds what it wrote before, the headline, the facts, why nodes fall back, what to
        change, and the sections that take most time. Names are escaped: they come from files that others made.
    """
    names = [_OTHERS.sub("-", name) for name in (report.model.name, report.target)]
    blocks = [
        f"<!-- samba-port {' '.join(names)} -->",
        f"**{_plain(report.headline)}**",
        *_limits(report),
        _list(report.notes),
        _table(("", ""), fact_lines(report)),
        *_changes(report),
        *_fallbacks(report),
        *_sections(report),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def github_annotations(report: Report, command: str) -> list[str]:
    """Return the commands by which GitHub marks lines of the user's own files.

    Args:
        report: The report.
        command: Which command made it.

    Returns:
        At most ten: an error for each limit that is exceeded, and a warning for each line with nodes that fall back.
    """
    lines = [
        f"::error title=samba-port {command}::{_message(limit.sentence)}"
        for limit in report.limits
        if not limit.passed
    ]
    places: dict[str, list[str]] = {}
    for reason in report.fallbacks:
        for node in reason.nodes:
            # What the target could run is no fault of the line.
            if node.location and not node.supported:
                places.setdefault(node.location, []).append(node.reason)
    for location, reasons in places.items():
        file, _, line = location.rpartition(":")
        what = f"file={_property(file)},line={_property(line)},title=falls back to the CPU"
        lines.append(f"::warning {what}::{_message('; '.join(dict.fromkeys(reasons)))}")
    return lines[:_ROWS]


def _limits(report: Report) -> Iterable[str]:
    exceeded = [limit for limit in report.limits if not limit.passed]
    if exceeded:
        yield _list([f"{limit.option}: {limit.sentence}" for limit in exceeded], mark="❌ ")


def _changes(report: Report) -> Iterable[str]:
    changes = [change for change in report.changes if change.seconds_saved > 0]
    cells = [
        (
            f"{len(change.nodes):,} {change.subject} ({change.code})",
            second_text(change.seconds_saved),
            byte_text(change.bytes_saved),
            change.advice,
            some(change.locations or change.nodes, 2),
        )
        for change in changes[:_ROWS]
    ]
    if cells:
        yield "### Change first"
        yield _table(("on the RDU, it would save", "time", "bytes", "instead", "at"), cells)


def _fallbacks(report: Report) -> Iterable[str]:
    cells = [
        (
            ", ".join(f"{nodes} {operator}" for operator, nodes in reason.operators.items()),
            reason.reasons[0],
            reason.hint,
            some([node.location or node.name for node in reason.nodes], 3),
        )
        for reason in report.fallbacks[:_ROWS]
    ]
    if cells:
        yield "### Why nodes fall back to the CPU"
        yield _table(("nodes", "why", "hint", "at"), cells)


def _sections(report: Report) -> Iterable[str]:
    longest = sorted(report.sections, key=lambda section: -section.modelled_seconds)[:_ROWS]
    cells = [
        (
            section.name,
            f"{section.nodes:,}",
            flop_text(section.flops),
            second_text(section.modelled_seconds),
            section.dominant,
        )
        for section in longest
    ]
    if cells:
        yield f"### {count_text(len(report.sections), 'section')} on the RDU at {report.level}"
        yield _table(("section", "nodes", "work", "time", "most of it"), cells)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [columns, ["---"] * len(columns), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list(texts: Iterable[str], *, mark: str = "") -> str:
    return "\n".join(f"- {mark}{_plain(text)}" for text in texts)


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    # A backslash before @ would still call whoever has that name.
    return _MARKUP.sub(r"\\\1", printable(text)).replace("@", "&#64;")


def _message(text: str) -> str:
    """Return the message of a command of GitHub, whose escapes are those of a URL."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return the value of a property of such a command."""
    return _message(text).replace(":", "%3A").replace(",", "%2C")
