"""What ``samba-port run`` shows."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import table, titled
from samba_onnx.report.terminal import total_cells
from samba_onnx.report.times import modelled_time_lines
from samba_onnx.report.units import number_text, second_text, shape_text
from samba_onnx.tools.run.run_report import RunReport

OUTPUT_COLUMNS: Final = ("name", "dtype", "shape", ">min", ">mean", ">max")
"""Headings of the table of outputs."""
CALL_COLUMNS: Final = (
    *(">call", "home", "section or fallback"),
    *(">this CPU, min", ">this CPU, median", ">RDU, modelled", ">with launch"),
)
"""Headings of the table of calls."""


def run_text(report: RunReport, rows: int | None = 12) -> RenderableType:
    """Return what ``run`` shows.

    Args:
        report: The run.
        rows: Longest table; None for all rows.

    Returns:
        Something that a rich console prints.
    """
    parts: list[RenderableType] = [Text(report.headline, style="bold")]
    parts += [Text(""), titled("Outputs", table(OUTPUT_COLUMNS, output_cells(report), limit=rows))]
    # Said apart: smallest, mean and largest are of finite elements, and look as if all were well.
    odd = [output for output in report.outputs if output.not_finite]
    if odd:
        text = ", ".join(f"{output.name} ({output.not_finite:,})" for output in odd)
        parts.append(Text(f"  NaN or infinite elements: {text}"))
    transfers = [
        *total_cells("every run", report.transfers_per_run),
        *total_cells("at load", report.transfers_at_load),
    ]
    if transfers:
        columns = ("when", "cause", "way", ">transfers", ">bytes", ">time")
        parts += [Text(""), titled("Transfers in the ledger", table(columns, transfers))]
    times = (
        f"load {second_text(report.load_seconds)}, fastest run "
        f"{second_text(report.fastest_seconds)}, mean {second_text(report.mean_seconds)}"
    )
    parts += [Text(""), titled("Measured on this machine", Text(times))]
    if report.calls:
        parts += [Text(""), _calls(report, rows)]
    return Group(*parts)


def output_cells(report: RunReport) -> list[tuple[str, ...]]:
    """Return a row for each output.

    Args:
        report: The run.
    """
    return [
        (
            output.name,
            output.dtype,
            shape_text(output.shape),
            number_text(output.minimum),
            number_text(output.mean),
            number_text(output.maximum),
        )
        for output in report.outputs
    ]


def call_cells(report: RunReport) -> list[tuple[str, ...]]:
    """Return a row for each call whose time was taken.

    Args:
        report: The run.
    """
    return [
        (
            str(call.call),
            call.home.upper(),
            call.name,
            second_text(call.measured_on_this_cpu_minimum_seconds),
            second_text(call.measured_on_this_cpu_median_seconds),
            _modelled(call.modelled_on_rdu_seconds),
            _launch(call.modelled_on_rdu_launch_seconds),
        )
        for call in report.calls
    ]


def _calls(report: RunReport, rows: int | None) -> RenderableType:
    title = "Time by call: the emulator, measured on this CPU, and the RDU, modelled; not to be compared"
    # A run of some sections only has no modelled time as a whole.
    lines = [] if report.modelled_time is None else modelled_time_lines(report.modelled_time)
    return Group(
        titled(title, table(CALL_COLUMNS, call_cells(report), limit=rows)),
        *([Text(""), titled("A run, modelled, not measured", *lines)] if lines else ()),
    )


def _modelled(seconds: float | None) -> str:
    return "-" if seconds is None else second_text(seconds)


def _launch(seconds: float | None) -> str:
    """Say what of a call is its launch, which a loop on the device makes once for several calls."""
    return "none" if seconds == 0 else _modelled(seconds)
