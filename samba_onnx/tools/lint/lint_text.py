"""Findings in a program for people: one line each, which editors and terminals can open."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import titled
from samba_onnx.report.units import count_text, printable
from samba_onnx.tools.lint.findings import Finding, LintRule
from samba_onnx.tools.lint.lint_report import LintReport

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def lint_text(report: LintReport, rows: int | None = 12) -> RenderableType:
    """Return what ``lint`` shows.

    Args:
        report: The findings.
        rows: Most findings to show; None for all.

    Returns:
        Something that a rich console prints.
    """
    parts: list[RenderableType] = [Text(report.headline, style="bold")]
    shown = report.findings if rows is None else report.findings[:rows]
    if shown:
        parts += [Text(""), *(_finding(finding) for finding in shown)]
    left = len(report.findings) - len(shown)
    if left:
        more = f"… and {count_text(left, 'more finding')} (-v shows all)"
        parts.append(Text(more, style="dim"))
    # Why and what instead stand once for each rule, below its findings, which are a line each.
    for rule in report.rules:
        parts += [Text(""), _rule(rule)]
    return Group(*parts)


def _finding(finding: Finding) -> RenderableType:
    place = f"{printable(finding.path)}:{finding.line}:{finding.column}: "
    return Text.assemble(
        place,
        (finding.severity, _STYLES[finding.severity]),
        f": {printable(finding.message)} [{finding.rule}]",
    )


def _rule(rule: LintRule) -> RenderableType:
    return titled(
        f"{rule.id}: {rule.title}",
        Text(f"why: {rule.why}"),
        Text(f"instead: {rule.instead}"),
    )
