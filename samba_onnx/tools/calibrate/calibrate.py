"""``samba-port calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting, write_file
from samba_onnx.cli.failures import EXIT_YES
from samba_onnx.cli.options import JsonOption, QuietOption, ThreadsOption, VerboseOption
from samba_onnx.cli.progress import Activity
from samba_onnx.compiling import host_profiles
from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from samba_onnx.tools.calibrate.calibrate_report import CalibrationReport, FigureReport
    from samba_onnx.tools.calibrate.calibration import Calibration


def calibrate(
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Profile to write; without, the one that --host measured means.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="S", min=0.01, max=600, help="Time to measure for."),
    ] = 5.0,
    threads: ThreadsOption = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Measure this machine's CPU, to model fallbacks by.

    Products of matrices by data type, elementwise and copying operators, and what a node and the start
    of a fallback take, as the emulator's engine executes them. Other programs should be quiet
    meanwhile. Convert with --host measured to plan with these figures.

    Examples:
      samba-port calibrate
      samba-port calibrate --output server.toml --seconds 20
      samba-port calibrate --threads 4 --json -
    """
    destination = str(host_profiles.measured_path()) if output is None else output
    refuse_overwriting(outputs={"--output": destination, "--json": json})

    from samba_onnx.passes.timing.hosts import host_text
    from samba_onnx.tools.calibrate.calibration import calibrate as measure

    with Activity(quiet) as activity:
        activity.step("measure")
        done = measure(seconds, threads, activity.count)
    # A folder that the user names is not made: it may be a slip of the pen.
    if output is None:
        _make_folder(Path(destination).parent)
    write_file(destination, host_text(done.host, done.note).encode())
    report = _report(done, destination)
    Display(json, quiet, verbose).show(report.headline, lambda rows: _text(report), report)
    return EXIT_YES


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder}: {error.strerror}; give --output a file of your own, and --host that file"
        ) from None


def _report(done: Calibration, destination: str) -> CalibrationReport:
    from samba_onnx.passes.timing.hosts import figures, load_host
    from samba_onnx.report.units import figure_text, printable
    from samba_onnx.tools.calibrate.calibrate_report import CalibrationReport, FigureReport

    defaults = figures(load_host())
    rows: tuple[FigureReport, ...] = tuple(
        FigureReport(name, value, unit, defaults.get(name, (None, ""))[0])
        for name, (value, unit) in figures(done.host).items()
    )
    rate = figure_text(done.host.peak_flops["float32"], "operations/s")
    return CalibrationReport(
        headline=(
            f"{printable(destination)}: {rate} in float32, "
            f"{figure_text(done.host.node_seconds, 's')} per node ({done.note})"
        ),
        output=destination,
        measured_with=done.note,
        figures=rows,
        refused=done.refused,
    )


def _text(report: CalibrationReport) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from samba_onnx.report.layout import table, titled
    from samba_onnx.report.units import figure_text

    cells = [
        (
            row.name,
            figure_text(row.value, row.unit),
            "-" if row.default is None else figure_text(row.default, row.unit),
        )
        for row in report.figures
    ]
    parts: list[RenderableType] = [
        Text(report.headline, style="bold"),
        Text(""),
        titled("Figures of this host", table(("figure", ">measured", ">default"), cells)),
    ]
    if report.refused:
        listed = ", ".join(report.refused)
        parts += [Text(""), Text(f"Not computed by the engine, counted as float32: {listed}")]
    return Group(*parts)
