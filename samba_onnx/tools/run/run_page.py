"""The page of a run: outputs, copies, what was measured and what is modelled, and the graph."""

from __future__ import annotations

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.page.answer import Block, Tile, answer_page
from samba_onnx.report.page.charts import time_bars
from samba_onnx.report.report import Report
from samba_onnx.report.terminal import total_cells
from samba_onnx.report.units import byte_text, second_text
from samba_onnx.tools.run.run_report import RunReport
from samba_onnx.tools.run.run_text import CALL_COLUMNS, OUTPUT_COLUMNS, call_cells, output_cells


def run_page(run: RunReport, manifest: Manifest) -> str:
    """Return the page.

    Args:
        run: What happened.
        manifest: The manifest of the PEF, which is open.

    Raises:
        MissingLibraryError: The extra ``html`` is not installed.
    """
    report = Report.from_manifest(manifest)
    # Of some sections only there is no modelled time as a whole, and the parts would be those of all.
    modelled = run.modelled_time
    tiles: list[Tile] = [
        (
            "per run, modelled",
            "-" if modelled is None else second_text(modelled.total_seconds),
            report.target,
        ),
        ("per run, measured", second_text(run.fastest_seconds), "the emulator on this CPU"),
        (
            "copied",
            byte_text(sum(total.bytes for total in run.transfers_per_run)),
            "in the last run",
        ),
        ("runs", f"{run.iterations:,}", f"loaded in {second_text(run.load_seconds)}"),
    ]
    transfers = [
        *total_cells("every run", run.transfers_per_run),
        *total_cells("at load", run.transfers_at_load),
    ]
    blocks = [
        Block("A run, modelled", (), (), bars=() if modelled is None else time_bars(report)),
        Block("Outputs", OUTPUT_COLUMNS, output_cells(run)),
        Block(
            "Copies in the ledger",
            ("when", "cause", "way", ">transfers", ">bytes", ">time"),
            transfers,
        ),
        Block(
            "Time by call",
            CALL_COLUMNS,
            call_cells(run),
            note="Measured on this CPU, which emulates, and modelled for the RDU: two machines, not to be compared.",
        ),
    ]
    return answer_page("run", run.pef, run.headline, tiles, blocks, report=report)
