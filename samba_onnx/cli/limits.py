"""How much of a conversion a user of ``convert`` and ``analyze`` accepts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES, complain
from samba_onnx.cli.options import LIMITS, parse_bytes
from samba_onnx.report.accepted_limits import AcceptedLimits, complaints, read_baseline

if TYPE_CHECKING:
    from rich.console import RenderableType

    from samba_onnx.report import Report

FailOption = Annotated[
    bool,
    typer.Option("--fail-on-fallback", help="No node may run on the CPU.", rich_help_panel=LIMITS),
]
FallbacksOption = Annotated[
    int | None,
    typer.Option(
        "--max-fallbacks",
        metavar="N",
        min=0,
        help="At most N fallbacks: groups of CPU nodes in the schedule.",
        rich_help_panel=LIMITS,
    ),
]
TransferOption = Annotated[
    str | None,
    typer.Option(
        "--max-transfer-bytes",
        metavar="N",
        help="At most N bytes between host and RDU in every run; 1.5MB and 10KiB are understood.",
        rich_help_panel=LIMITS,
    ),
]
NodesShareOption = Annotated[
    float | None,
    typer.Option(
        "--min-rdu-nodes",
        metavar="PERCENT",
        min=0.0,
        max=100.0,
        help="At least so many of the nodes run on the RDU.",
        rich_help_panel=LIMITS,
    ),
]
FlopsShareOption = Annotated[
    float | None,
    typer.Option(
        "--min-rdu-flops",
        metavar="PERCENT",
        min=0.0,
        max=100.0,
        help="At least so many of the floating-point operations run on the RDU.",
        rich_help_panel=LIMITS,
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="FILE",
        help="Nothing may be worse than in this report, which --json wrote, or in this PEF.",
        rich_help_panel=LIMITS,
    ),
]
AllowDifferentOption = Annotated[
    bool,
    typer.Option(
        "--allow-different",
        help="Hold reports against each other that are of other sizes, precision, target, level or version.",
        rich_help_panel=LIMITS,
    ),
]


def accepted_limits(
    fail_on_fallback: bool,
    fallbacks: int | None,
    transfer_bytes: str | None,
    nodes_percent: float | None,
    flops_percent: float | None,
    *,
    baseline: str | None,
    allow_different: bool,
) -> AcceptedLimits:
    """Read the limits; ``--fail-on-fallback`` is ``--max-fallbacks 0``.

    Args:
        fail_on_fallback: Whether nothing may run on the CPU.
        fallbacks: The most fallbacks; None for any number.
        transfer_bytes: The most bytes in a run, as 1.5MB; None for any number.
        nodes_percent: The least share of nodes on the RDU; None for any.
        flops_percent: The least share of floating-point operations on the RDU; None for any.
        baseline: Path of a report or a PEF than which nothing may be worse; None for no such limit.
        allow_different: Whether the baseline may be of other sizes, or made under other conditions.

    Raises:
        UsageError: The bytes are malformed, or the baseline is no report.
        PefError: The baseline is a damaged PEF.
    """
    # --fail-on-fallback is the limit 0, and complaints name the option that was given.
    size = parse_bytes("--max-transfer-bytes", transfer_bytes)
    return AcceptedLimits(
        0 if fail_on_fallback else fallbacks,
        "--fail-on-fallback" if fail_on_fallback else "--max-fallbacks",
        size,
        nodes_percent,
        flops_percent,
        None if baseline is None else read_baseline(baseline, allows_different=allow_different),
    )


def give_report(
    report: Report,
    display: Display,
    limits: AcceptedLimits,
    command: str,
    *,
    written: str | None = None,
    github: bool = False,
) -> int:
    """Show a report with what became of the limits, and complain of those that are exceeded.

    Args:
        report: On the conversion.
        display: Where the answer goes.
        limits: What the user accepts.
        command: The command's name.
        written: Path of the PEF; None where none was written.
        github: Whether a job of GitHub gets a summary and annotations.

    Returns:
        The exit status.

    Raises:
        UsageError: The baseline is not comparable with it.
    """
    from rich.console import Group
    from rich.text import Text

    from samba_onnx.report.github import tell_github
    from samba_onnx.report.page.page import report_page
    from samba_onnx.report.terminal import summary
    from samba_onnx.report.units import byte_text, printable

    report = limits.judged(report)

    def content(rows: int | None) -> RenderableType:
        if written is None:
            return summary(report, rows)
        size = byte_text(Path(written).stat().st_size)
        return Group(summary(report, rows), Text(f"\nWrote {printable(written)} ({size})"))

    # The report comes first: who exceeds a limit wants to see why.
    display.show(report.headline, content, report, lambda: report_page(report, command))
    if github:
        tell_github(report, command)
    exceeded = complaints(limits, report)
    for complaint in exceeded:
        complain(f"samba-port {command}", complaint)
    return EXIT_NO if exceeded else EXIT_YES
