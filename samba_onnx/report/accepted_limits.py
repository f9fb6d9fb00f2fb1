"""How much of a conversion its user accepts, and whether it keeps to that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from samba_onnx.errors import UsageError

if TYPE_CHECKING:
    from samba_onnx.report import Report
    from samba_onnx.report.limit_report import LimitReport
    from samba_onnx.report.report_records import Coverage

_MOST_NODES: Final = 3
"""Nodes that a complaint about a baseline names."""


@dataclass(frozen=True)
class Baseline:
    """A report that another one is held against."""

    name: str
    report: Report
    allows_different: bool = False
    """Whether it is held against conversions under other conditions, too."""

    def refuse_different(self, report: Report) -> None:
        """Refuse to hold it against a conversion of other sizes, or under other conditions.

        Args:
            report: On the conversion.

        Raises:
            UsageError: They are not comparable, and ``--allow-different`` was not given.
        """
        from samba_onnx.report.comparability import different, different_text

        pairs = {} if self.allows_different else different(self.report, report)
        # A larger batch moves more bytes, and is no worse for it.
        if pairs:
            raise UsageError(
                f"--baseline {self.name} is not comparable with this: {different_text(pairs)}; write it anew with "
                "--json, or compare all the same with --allow-different"
            )


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
        if self.baseline is None or self.baseline.allows_different:
            return
        from samba_onnx.passes.targets import load_target

        report, name = self.baseline.report, load_target(target).name
        # Figures of another target or level differ for reasons that are no change of the model.
        if (report.target, report.level) != (name, level):
            raise UsageError(
                f"--baseline {self.baseline.name} is of target {report.target} and level "
                f"{report.level}, and this is for {name} and {level}: nothing to hold against each "
                "other; samba-port diff says what differs, and --allow-different holds it against it all the same"
            )

    def judged(self, report: Report) -> Report:
        """Return a report with what became of every limit.

        Args:
            report: On the conversion.

        Raises:
            UsageError: The baseline is not comparable with it.
        """
        if self.baseline is not None:
            self.baseline.refuse_different(report)
        return replace(report, limits=self.verdicts(report))

    def verdicts(self, report: Report) -> tuple[LimitReport, ...]:
        """Return what became of every limit.

        Args:
            report: On the conversion.
        """
        return tuple(self._verdicts(report))

    def _verdicts(self, report: Report) -> Iterator[LimitReport]:
        from samba_onnx.report.limit_report import LimitReport
        from samba_onnx.report.units import count_text

        coverage = report.coverage
        if self.fallbacks is not None:
            places, allowed = coverage.cpu_places, self.fallbacks
            passed = places <= allowed
            sentence = f"{count_text(places, 'fallback')} to the CPU, {allowed} allowed"
            option = self.fallbacks_option
            yield LimitReport(
                option=option,
                figure="fallbacks",
                unit="places",
                allowed=allowed,
                value=places,
                passed=passed,
                sentence="" if passed else sentence,
            )
        if self.transfer_bytes is not None:
            size, allowed = sum(t.bytes for t in report.transfers_per_run), self.transfer_bytes
            passed = size <= allowed
            sentence = f"{size} bytes are transferred in every run, {allowed} allowed"
            option = "--max-transfer-bytes"
            yield LimitReport(
                option=option,
                figure="bytes_per_run",
                unit="bytes",
                allowed=allowed,
                value=size,
                passed=passed,
                sentence="" if passed else sentence,
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


def read_baseline(path: str, *, allows_different: bool = False) -> Baseline:
    """Return the report of a file, which another one is held against.

    Args:
        path: A report that ``--json`` wrote, or a PEF.
        allows_different: Whether it is held against conversions under other conditions, too.

    Raises:
        UsageError: It is neither, or cannot be opened.
        PefError: It is a damaged PEF.
    """
    # Imported here, as all that reads reports: most commands have no baseline.
    from samba_onnx.report.stored_reports import stored_report

    report = stored_report(path)
    if report is None:
        raise UsageError(
            f"--baseline {path}: expected a report that convert or analyze wrote with --json, or a PEF"
        )
    return Baseline(Path(path).name, report, allows_different)


def complaints(limits: AcceptedLimits, report: Report) -> list[str]:
    """Return a line for every limit that is exceeded; one for all figures of a baseline.

    Args:
        limits: What the user accepts.
        report: On the conversion, with what became of the limits.
    """
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
    from samba_onnx.report.limit_report import LimitReport

    passed = share >= allowed
    # Rounded down: 99.96 % is not enough where 100 % is asked for, and does not read as if it were.
    shown = int(share * 10) / 10
    sentence = f"{shown:.1f} % of the {what} are on the RDU, {allowed:g} % demanded"
    return LimitReport(
        option=option,
        figure=figure,
        unit="percent",
        allowed=allowed,
        value=share,
        passed=passed,
        sentence="" if passed else sentence,
    )


def _held_against(baseline: Baseline, report: Report) -> Iterator[LimitReport]:
    """Yield a verdict for every figure of which more is worse."""
    from samba_onnx.report.comparing import change_text, difference
    from samba_onnx.report.limit_report import LimitReport

    for change in difference(baseline.report, report, (baseline.name, "this")).figures:
        if change.watched:
            sentence = change_text(change) if change.worse else ""
            yield LimitReport(
                option="--baseline",
                figure=change.name,
                unit=change.unit,
                allowed=change.before,
                value=change.after,
                passed=not change.worse,
                sentence=sentence,
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
