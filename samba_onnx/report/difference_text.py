"""The differences of two reports for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.comparing import amount_text, share_text
from samba_onnx.report.difference import DifferenceReport, FallbackChange, FigureChange
from samba_onnx.report.layout import ARROWS, some, table, titled
from samba_onnx.report.units import byte_text, second_text


def difference_text(report: DifferenceReport, rows: int | None = 12) -> RenderableType:
    """Return what ``diff`` shows.

    Args:
        report: The differences.
        rows: Longest table; None for all rows.

    Returns:
        Something that a rich console prints; blocks without differences are left out.
    """
    parts: list[RenderableType] = [
        Text(report.headline, style="bold red" if report.worse else "bold")
    ]
    for title, cells, columns in difference_blocks(report):
        if cells:
            parts += [Text(""), titled(title, table(columns, cells, limit=rows))]
    return Group(*parts)


def difference_blocks(
    report: DifferenceReport,
) -> list[tuple[str, Sequence[Sequence[str]], Sequence[str]]]:
    """Return title, rows and headings of each table; one without rows has nothing that differs.

    Args:
        report: The differences.
    """
    return [
        ("What differs between the two", [(text,) for text in report.circumstances], ("",)),
        ("Figures", _figures(report), ("figure", ">before", ">after", ">change", "verdict")),
        (
            "Nodes that moved between CPU and RDU",
            [_fallback(change) for change in report.fallbacks],
            ("node", "operator", "change", "why", "where"),
        ),
        (
            "Boundaries between RDU and CPU",
            _boundaries(report),
            ("way", "values", ">before", ">after", ">bytes before", ">bytes after"),
        ),
        (
            "Operators",
            _operators(report),
            ("operator", ">RDU before", ">RDU after", ">CPU before", ">CPU after"),
        ),
        (
            "Sections",
            _sections(report),
            ("section", ">nodes before", ">nodes after", ">time before", ">time after"),
        ),
        ("Passes", _passes(report), ("pass", ">nodes added before", ">nodes added after")),
    ]


def _figures(report: DifferenceReport) -> list[Sequence[str]]:
    return [
        (
            figure.name.replace("_", " "),
            amount_text(figure.before, figure.unit),
            amount_text(figure.after, figure.unit),
            share_text(figure),
            _verdict(figure),
        )
        for figure in report.figures
        # The JSON document has the figures that did not change, too.
        if figure.before != figure.after
    ]


def _verdict(figure: FigureChange) -> str:
    if not figure.watched:
        return "-"
    # One that rose and is not worse did so within what the user allows.
    return "worse" if figure.worse else "better" if figure.after < figure.before else "allowed"


def _fallback(change: FallbackChange) -> Sequence[str]:
    texts = {
        "new": ("now on the CPU", f"{change.reason_after} (before: {change.instead})"),
        "gone": (f"now {change.instead}", f"before: {change.reason_before}"),
        "reason": ("other reason", f"{change.reason_after} (before: {change.reason_before})"),
    }
    return change.name, change.operator, *texts[change.change], change.location or "-"


def _boundaries(report: DifferenceReport) -> list[Sequence[str]]:
    return [
        (
            ARROWS[change.direction],
            some(change.symbols, 3),
            f"{change.boundaries_before:,}",
            f"{change.boundaries_after:,}",
            byte_text(change.bytes_before),
            byte_text(change.bytes_after),
        )
        for change in report.boundaries
    ]


def _operators(report: DifferenceReport) -> list[Sequence[str]]:
    return [
        (
            change.operator,
            f"{change.rdu_nodes_before:,}",
            f"{change.rdu_nodes_after:,}",
            f"{change.cpu_nodes_before:,}",
            f"{change.cpu_nodes_after:,}",
        )
        for change in report.operators
    ]


def _sections(report: DifferenceReport) -> list[Sequence[str]]:
    return [
        (
            change.name,
            "-" if change.nodes_before is None else f"{change.nodes_before:,}",
            "-" if change.nodes_after is None else f"{change.nodes_after:,}",
            "-" if change.seconds_before is None else second_text(change.seconds_before),
            "-" if change.seconds_after is None else second_text(change.seconds_after),
        )
        for change in report.sections
    ]


def _passes(report: DifferenceReport) -> list[Sequence[str]]:
    return [
        (change.name, f"{change.nodes_before:+,}", f"{change.nodes_after:+,}")
        for change in report.passes
    ]
