"""``samba-port analyze``: files for viewers and hosts that others make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import write_file
from samba_onnx.cli.options import OUTPUT

if TYPE_CHECKING:
    from samba_onnx.report import Report

ModelExplorerOption = Annotated[
    str | None,
    typer.Option(
        "--model-explorer",
        metavar="FILE.json",
        help="Write the graph for Model Explorer, too, and the times of its nodes beside it, as FILE.times.json.",
        rich_help_panel=OUTPUT,
    ),
]
TraceOption = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Write the modelled run for Perfetto, too: as its protobuf, or as JSON if FILE ends in .json.",
        rich_help_panel=OUTPUT,
    ),
]
SarifOption = Annotated[
    str | None,
    typer.Option(
        "--sarif",
        metavar="FILE",
        help="Write the nodes that fall back as SARIF 2.1.0, too, by the lines of your files, for code hosts.",
        rich_help_panel=OUTPUT,
    ),
]


def times_file(graph: str | None) -> str | None:
    """Return where the times of nodes go.

    Args:
        graph: File of the graph; None where nobody asked for one.
    """
    return None if graph is None else str(Path(graph).with_suffix(".times.json"))


def write_for_viewers(
    report: Report, model_explorer: str | None, trace: str | None, sarif: str | None
) -> None:
    """Write what was asked for.

    Args:
        report: The report, with its program.
        model_explorer: File of the graph for Model Explorer.
        trace: File for Perfetto.
        sarif: File for code hosts.

    Raises:
        MissingLibraryError: The extra ``trace`` is not installed.
        OutputError: A file cannot be written.
    """
    # Beside the graph: Model Explorer takes node data as a file of its own.
    times = times_file(model_explorer)
    if model_explorer is not None and times is not None:
        from samba_onnx.report.viewers.model_explorer import (
            model_explorer_data,
            model_explorer_graph,
        )

        write_file(model_explorer, model_explorer_graph(report).encode())
        write_file(times, model_explorer_data(report).encode())
    if trace is not None:
        # Imported only here: the package of Perfetto takes a while.
        from samba_onnx.report.viewers.trace import modelled_events, trace_bytes

        write_file(trace, trace_bytes(modelled_events(report), trace))
    if sarif is not None:
        from samba_onnx.report.sarif import fallback_sarif

        write_file(sarif, fallback_sarif(report, "analyze").encode())
