"""How much of a conversion a user of ``convert`` and ``analyze`` accepts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from samba_onnx.cli.display import Display
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES, complain
from samba_onnx.cli.options import LIMITS, parse_bytes
from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from samba_onnx.report import Report
    from samba_onnx.report.limits import LimitReport
    from samba_onnx.report.records import Coverage

_MOST_NODES: Final = 3
"""Nodes that a complaint about a baseline names."""

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


@dataclass(frozen=True)
class Baseline:
    """A report that another one is held against."""

    name: str
    report: Report


@dataclass(frozen=True)
class AcceptedLimits:
    """How much of a conversion the user accepts; more is exit status 1."""

    fallbacks: int | None = None
    fallbacks_option: str = "--max-fallbacks"
    transfer_bytes: int | None = None
    nodes_percent: float | None = None
    flops_percent: float | None = None
    baseline: Baseline | None = None

    @property
    def stated(self) -> bool:
        """Whether there is any limit."""
        return self != AcceptedLimits()

    def refuse_other_target(self, target: str, level: str) -> None:
        """Refuse a baseline that was made for something else, before anything takes time.

        Args:
            target: Name of the target, or path of its profile.
            level: ``o0`` or ``o3``.

        Raises:
            UsageError: Target or level of the baseline is another one.
        """
        if self.baseline is None:
            return
        from samba_onnx.passes.targets import load_target

        report, name = self.baseline.report, load_target(target).name
        # Figures of another target or level differ for reasons that are no change of the model.
        if (report.target, report.level) != (name, level):
            raise UsageError(
                f"--baseline {self.baseline.name} is of target {report.target} and level "
                f"{report.level}, and this is for {name} and {level}: nothing to hold against each "
                "other; samba-port diff says what differs"
            )

    def verdicts(self, report: Report) -> tuple[LimitReport, ...]:
        """Return what became of every limit.

        Args:
            report: On the conversion.
        """
        return tuple(self._verdicts(report))

    def _verdicts(self, report: Report) -> Iterator[LimitReport]:
        from samba_onnx.report.limits import LimitReport
        from samba_onnx.report.units import count_text

        coverage = report.coverage
        if self.fallbacks is not None:
            places, allowed = coverage.cpu_places, self.fallbacks
            passed = places <= allowed
            sentence = f"{count_text(places, 'fallback')} to the CPU, {allowed} allowed"
            option = self.fallbacks_option
            yield LimitReport(
                option, "fallbacks", "places", allowed, places, passed, "" if passed else sentence
            )
        if self.transfer_bytes is not None:
            size, allowed = sum(t.bytes for t in report.transfers_per_run), self.transfer_bytes
            passed = size <= allowed
            sentence = f"{size} bytes are transferred in every run, {allowed} allowed"
            option = "--max-transfer-bytes"
            yield LimitReport(
                option, "bytes_per_run", "bytes", allowed, size, passed, "" if passed else sentence
            )
        if self.nodes_percent is not None:
            share = _percent(coverage.rdu_nodes, coverage.cpu_nodes, coverage)
            yield _share("--min-rdu-nodes", "rdu_nodes", "nodes", self.nodes_percent, share)
        if self.flops_percent is not None:
            share = _percent(coverage.rdu_flops, coverage.cpu_flops, coverage)
            what = "floating-point operations"
            yield _share("--min-rdu-flops", "rdu_flops", what, self.flops_percent, share)
        if self.baseline is not None:
            yield from _held_against(self.baseline, report)


def accepted_limits(
    fail_on_fallback: bool,
    fallbacks: int | None,
    transfer_bytes: str | None,
    nodes_percent: float | None,
    flops_percent: float | None,
    baseline: str | None,
) -> AcceptedLimits:
    """Read the limits; ``--fail-on-fallback`` is ``--max-fallbacks 0``.

    Args:
        fail_on_fallback: Whether nothing may run on the CPU.
        fallbacks: The most fallbacks; None for any number.
        transfer_bytes: The most bytes in a run, as 1.5MB; None for any number.
        nodes_percent: The least share of nodes on the RDU; None for any.
        flops_percent: The least share of floating-point operations on the RDU; None for any.
        baseline: Path of a report or a PEF than which nothing may be worse; None for no such limit.

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
        None if baseline is None else _baseline(baseline),
    )


def give_report(
    report: Report,
    display: Display,
    limits: AcceptedLimits,
    command: str,
    written: str | None = None,
) -> int:
    """Show a report with what became of the limits, and complain of those that are exceeded.

    Args:
        report: On the conversion.
        display: Where the answer goes.
        limits: What the user accepts.
        command: The command's name.
        written: Path of the PEF; None where none was written.

    Returns:
        The exit status.
    """
    from rich.console import Group
    from rich.text import Text

    from samba_onnx.report.terminal import summary
    from samba_onnx.report.units import byte_text, printable

    report = dataclasses.replace(report, limits=limits.verdicts(report))

    def content(rows: int | None) -> RenderableType:
        if written is None:
            return summary(report, rows)
        size = byte_text(Path(written).stat().st_size)
        return Group(summary(report, rows), Text(f"\nWrote {printable(written)} ({size})"))

    # The report comes first: who exceeds a limit wants to see why.
    display.show(report.headline, content, report)
    complaints = _complaints(limits, report)
    for complaint in complaints:
        complain(f"samba-port {command}", complaint)
    return EXIT_NO if complaints else EXIT_YES


def _complaints(limits: AcceptedLimits, report: Report) -> list[str]:
    """Return a line for every limit that is exceeded; one for all figures of a baseline."""
    exceeded = [limit for limit in report.limits if not limit.passed]
    # All figures that rose above a baseline share one line, with the reasons behind it.
    lines = [limit.sentence for limit in exceeded if limit.option != "--baseline"]
    risen = [limit.sentence for limit in exceeded if limit.option == "--baseline"]
    if risen and limits.baseline is not None:
        reasons = _reasons(limits.baseline, report)
        lines.append(f"worse than {limits.baseline.name}: {', '.join(risen)}{reasons}")
    return lines


def _percent(rdu: int, cpu: int, coverage: Coverage) -> float:
    """Return the share on the RDU; where nothing is counted, all or none of it."""
    if rdu + cpu:
        return 100 * rdu / (rdu + cpu)
    # No operations at all: with nodes on the CPU nothing is on the RDU, else all that there is.
    return 0.0 if coverage.cpu_nodes else 100.0


def _share(option: str, figure: str, what: str, allowed: float, share: float) -> LimitReport:
    from samba_onnx.report.limits import LimitReport

    passed = share >= allowed
    # Rounded down: 99.96 % is not enough where 100 % is asked for, and does not read as if it were.
    shown = int(share * 10) / 10
    sentence = f"{shown:.1f} % of the {what} are on the RDU, {allowed:g} % demanded"
    return LimitReport(
        option, figure, "percent", allowed, share, passed, "" if passed else sentence
    )


def _baseline(path: str) -> Baseline:
    # Imported here, as all that reads reports: most commands have no baseline.
    from samba_onnx.cli.stored_reports import stored_report

    report = stored_report(path)
    if report is None:
        raise UsageError(
            f"--baseline {path}: expected a report that convert or analyze wrote with --json, or a PEF"
        )
    return Baseline(Path(path).name, report)


def _held_against(baseline: Baseline, report: Report) -> Iterator[LimitReport]:
    """Yield a verdict for every figure of which more is worse."""
    from samba_onnx.report.comparing import change_text, difference
    from samba_onnx.report.limits import LimitReport

    for change in difference(baseline.report, report, (baseline.name, "this")).figures:
        if change.watched:
            sentence = change_text(change) if change.worse else ""
            yield LimitReport(
                "--baseline",
                change.name,
                change.unit,
                change.before,
                change.after,
                not change.worse,
                sentence,
            )


def _reasons(baseline: Baseline, report: Report) -> str:
    """Return which nodes are on the CPU now, and in what else the two conversions differ."""
    from samba_onnx.report.comparing import difference

    changes = difference(baseline.report, report, (baseline.name, "this"))
    nodes = [f"{c.operator} ({c.name})" for c in changes.fallbacks if c.change == "new"]
    text = ""
    if nodes:
        more = f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""
        text += f"; new on the CPU: {', '.join(nodes[:_MOST_NODES])}{more}"
    if changes.circumstances:
        text += f"; what differs otherwise: {', '.join(changes.circumstances)}"
    return text
