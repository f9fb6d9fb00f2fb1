"""The page of a survey: a table to sort, with a page of each model behind its name."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from samba_onnx.cli.display import write_file
from samba_onnx.report.page.answer import Block, answer_page
from samba_onnx.report.page.page import report_page
from samba_onnx.report.reading import read_report
from samba_onnx.report.units import byte_text, percent_text, second_text
from samba_onnx.tools.survey.survey_report import SurveyEntry, SurveyReport

_COLUMNS = (
    "model",
    "target",
    ">nodes on the RDU",
    ">work on the RDU",
    ">on the CPU",
    ">bytes",
    ">time",
    ">bound",
)


def survey_page(survey: SurveyReport, place: str) -> str:
    """Write the pages of all models beside their reports, and return the one that leads to them.

    Args:
        survey: The survey.
        place: Where the page will be, from which links lead.

    Raises:
        MissingLibraryError: The extra ``html`` is not installed.
        OutputError: A page cannot be written.
    """
    done = [entry for entry in survey.entries if entry.figures is not None]
    # Pages of all models: a link that leads nowhere would be worse than none.
    links = {number: _link(entry, place) for number, entry in enumerate(done)}
    tiles = [
        (
            target.target,
            percent_text(target.rdu_nodes, target.nodes) if target.nodes else "-",
            f"of nodes on the RDU; {target.whole:,} of {target.analyzed:,} models run whole",
        )
        for target in survey.targets
    ]
    blocks = [
        # Those that failed have no page that a link could lead to.
        Block("Models", _COLUMNS, [_cells(entry) for entry in done], sortable=True, links=links),
        *_reasons(survey),
    ]
    title = f"{len({entry.model for entry in survey.entries}):,} models"
    return answer_page("survey", title, survey.headline, tiles, blocks)


def _reasons(survey: SurveyReport) -> list[Block]:
    """Return what to change, why nodes fall back, and which models failed."""
    failed = [
        (entry.model, entry.target, entry.error)
        for entry in survey.entries
        if entry.figures is None
    ]
    fallbacks = [
        (row.operator, row.target, row.reason, f"{len(row.models):,}", f"{row.nodes:,}")
        for row in survey.fallbacks
    ]
    changes = [
        (
            row.operator,
            row.target,
            f"{len(row.models):,}",
            f"{row.nodes:,}",
            byte_text(row.bytes_saved),
            second_text(row.seconds_saved),
            row.advice,
        )
        for row in survey.changes
        # As in a report: what saves no time is no change to make first.
        if row.seconds_saved > 0
    ]
    change_columns = (
        "on the RDU",
        "target",
        ">models",
        ">nodes",
        ">bytes saved",
        ">time saved",
        "instead",
    )
    return [
        Block("Change first", change_columns, changes, sortable=True),
        Block(
            "Fallbacks",
            ("operator", "target", "why", ">models", ">nodes"),
            fallbacks,
            sortable=True,
        ),
        Block("Failed", ("model", "target", "why"), failed),
    ]


def _link(entry: SurveyEntry, place: str) -> str:
    """Write the page of a model, and return how the other one leads to it."""
    file = Path(entry.file)
    page = file.with_suffix(".html")
    write_file(
        str(page), report_page(read_report(file.read_bytes(), entry.model), "analyze").encode()
    )
    # Both may be moved together: the way from one to the other stays.
    return quote(os.path.relpath(page, Path(place).resolve().parent))


def _cells(entry: SurveyEntry) -> tuple[str, ...]:
    figures = entry.figures
    assert figures is not None
    flops = figures.rdu_flops + figures.cpu_flops
    bound = "-" if figures.bound_seconds is None else second_text(figures.bound_seconds)
    return (
        entry.model,
        entry.target,
        percent_text(figures.rdu_nodes, figures.nodes) if figures.nodes else "-",
        percent_text(figures.rdu_flops, flops) if flops else "-",
        f"{figures.cpu_nodes:,}",
        byte_text(figures.bytes),
        second_text(figures.modelled_seconds),
        bound,
    )
