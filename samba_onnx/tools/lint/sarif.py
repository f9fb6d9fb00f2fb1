"""What the linter found, for code hosts."""

from __future__ import annotations

from samba_onnx.report.sarif import SarifResult, SarifRule, sarif_log
from samba_onnx.tools.lint.lint_report import LintReport

__all__ = ["sarif_text"]


def sarif_text(report: LintReport) -> str:
    """Return a log of one run, with the rules of its findings.

    Args:
        report: What was found. The severities are SARIF's levels: ``error``, ``warning`` and ``note``.
    """
    rules = [
        SarifRule(
            id=rule.id,
            title=rule.title,
            why=rule.why,
            help=f"{rule.why}\nInstead: {rule.instead}\nSource: {rule.source}",
            level=rule.severity.value,
        )
        for rule in report.rules
    ]
    results = [
        SarifResult(
            rule=finding.rule,
            level=finding.severity.value,
            message=finding.message,
            path=finding.path,
            line=finding.line,
            column=finding.column,
        )
        for finding in report.findings
    ]
    return sarif_log("samba-port lint", rules, results)
