"""``samba-port run --trace``: the run as it is modelled, beside what the emulator took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import write_file
from samba_onnx.cli.options import OUTPUT

if TYPE_CHECKING:
    from samba_onnx.pef.manifest import Manifest
    from samba_onnx.tools.run.run_report import RunReport

TraceOption = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Write the run for Perfetto, modelled and as it was measured here; by call with --time-sections.",
        rich_help_panel=OUTPUT,
    ),
]


def write_trace(run: RunReport, manifest: Manifest, place: str) -> None:
    """Write the trace of a run.

    Args:
        run: What happened.
        manifest: The manifest of the PEF, which is open.
        place: The file; one that ends in ``.json`` gets Chrome's format.

    Raises:
        MissingLibraryError: The extra ``trace`` is not installed.
        UsageError: The PEF is mapped spatially.
        OutputError: The file cannot be written.
    """
    from samba_onnx.report import Report
    from samba_onnx.report.viewers.trace import MEASURED, TraceSlice, modelled_events, trace_bytes

    def measured() -> Iterator[TraceSlice]:
        # Each call was timed by itself: they are shown one after the other, as the emulator runs them.
        begin = 0
        for name, home, seconds in _measured(run):
            end = begin + round(seconds * 1e9)
            yield TraceSlice(MEASURED, home, name, begin, end)
            begin = end

    # Modelled first: Perfetto shows processes in the order in which they come.
    events = [*modelled_events(Report.from_manifest(manifest)), *measured()]
    write_file(place, trace_bytes(events, place))


def _measured(run: RunReport) -> Iterator[tuple[str, str, float]]:
    """Yield name, track and seconds of each call; of a run whose calls were not timed, of the whole."""
    if not run.calls:
        yield run.graph, "emulator", run.mean_seconds
    for call in run.calls:
        side = "emulated RDU" if call.home == "rdu" else "CPU"
        yield call.name, side, call.measured_on_this_cpu_median_seconds
