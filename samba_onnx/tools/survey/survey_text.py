"""A survey of models for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import indent, table, titled
from samba_onnx.report.units import byte_text, percent_text, printable, second_text
from samba_onnx.tools.survey.survey_report import SurveyEntry, SurveyReport, SurveyTarget


def survey_text(report: SurveyReport, rows: int | None = 12) -> RenderableType:
    """Return what ``survey`` shows.

    Args:
        report: The survey.
        rows: Longest table; None for all rows.

    Returns:
        Something that a rich console prints; blocks without rows are left out.
    """
    parts: list[RenderableType] = [Text(printable(report.headline), style="bold")]
    parts += [block for target in report.targets for block in _models(report, target, rows)]
    several = len(report.targets) > 1
    blocks = (
        (
            "Fallbacks",
            ("operator", "reason", ">models", ">nodes"),
            [
                (row.target, (row.operator, row.code, f"{len(row.models):,}", f"{row.nodes:,}"))
                for row in report.fallbacks
            ],
        ),
        (
            "Change first",
            ("on the RDU", "reason", ">models", ">nodes", ">transfers", ">bytes", ">time"),
            _changes(report),
        ),
        (
            "Failed",
            ("model", "why"),
            [
                (entry.target, (entry.model, entry.error))
                for entry in report.entries
                if not entry.figures
            ],
        ),
    )
    for title, columns, cells in blocks:
        if cells:
            # With one target its name in every row would tell nothing.
            lines = [(target, *row) if several else row for target, row in cells]
            names = ("target", *columns) if several else columns
            parts += [Text(""), titled(title, table(names, lines, limit=rows))]
            if title == "Change first":
                parts += _advice(report, len(cells) if rows is None else rows)
    return Group(*parts)


def _models(report: SurveyReport, target: SurveyTarget, rows: int | None) -> list[RenderableType]:
    """Return the block of one target: its models, those with most left on the CPU first."""
    # Models that failed have no figures, and stand in a block of their own.
    entries = [entry for entry in report.entries if entry.target == target.target and entry.figures]
    if not entries:
        return []
    entries.sort(key=_share)
    cells = [_row(entry) for entry in entries]
    nodes = percent_text(target.rdu_nodes, target.nodes)
    flops = percent_text(target.rdu_flops, target.rdu_flops + target.cpu_flops)
    title = (
        f"{printable(target.target)}: {nodes} of nodes and {flops} of FLOPs on the RDU, "
        f"{second_text(target.modelled_seconds)} for a run of each"
    )
    columns = ("model", ">nodes", ">FLOPs", ">CPU", ">transfers", ">bytes", ">time", ">bound")
    return [Text(""), titled(title, table(columns, cells, limit=rows))]


def _share(entry: SurveyEntry) -> float:
    """Return the share of a model's nodes that run on the RDU."""
    assert entry.figures is not None
    return entry.figures.rdu_nodes / max(entry.figures.nodes, 1)


def _row(entry: SurveyEntry) -> Sequence[str]:
    figures = entry.figures
    assert figures is not None
    flops = figures.rdu_flops + figures.cpu_flops
    return (
        entry.model,
        percent_text(figures.rdu_nodes, figures.nodes),
        percent_text(figures.rdu_flops, flops) if flops else "-",
        f"{figures.cpu_nodes:,}",
        f"{figures.transfers:,}",
        byte_text(figures.bytes),
        # The time of some nodes is missing in it.
        ("> " if figures.unmodelled_cpu_nodes else "") + second_text(figures.modelled_seconds),
        "-" if figures.bound_seconds is None else second_text(figures.bound_seconds),
    )


def _changes(report: SurveyReport) -> list[tuple[str, Sequence[str]]]:
    return [
        (
            row.target,
            (
                row.operator,
                row.code,
                f"{len(row.models):,}",
                f"{row.nodes:,}",
                f"{row.transfers_saved:,}",
                byte_text(row.bytes_saved),
                second_text(row.seconds_saved),
            ),
        )
        for row in report.changes
    ]


def _advice(report: SurveyReport, rows: int) -> list[RenderableType]:
    """Return what to write instead of the operators that are shown, each sentence once."""
    # Advice for rows that are not shown would be of operators that nobody sees.
    shown = report.changes[:rows]
    advised = dict.fromkeys((change.operator, change.advice) for change in shown if change.advice)
    return [indent(Text(printable(f"{name}: {text}"))) for name, text in advised]
