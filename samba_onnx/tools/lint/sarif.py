"""Findings in SARIF 2.1.0, the form in which code hosts take them (OASIS, Static Analysis Results Interchange Format)."""

from __future__ import annotations

import json
from pathlib import PurePath

from samba_onnx.tools.lint.findings import Finding, LintRule
from samba_onnx.tools.lint.lint_report import LintReport
from samba_onnx.version import __version__

__all__ = ["sarif_text"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_text(report: LintReport) -> str:
    """Return a log of one run, with the rules of its findings.

    Args:
        report: What was found. The severities are SARIF's levels: ``error``, ``warning`` and ``note``.
    """
    places = {rule.id: place for place, rule in enumerate(report.rules)}
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "samba-port lint",
                        "version": __version__,
                        "rules": [_rule(rule) for rule in report.rules],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, places[finding.rule]) for finding in report.findings],
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _rule(rule: LintRule) -> dict[str, object]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}\nInstead: {rule.instead}\nSource: {rule.source}"},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _result(finding: Finding, rule: int) -> dict[str, object]:
    region = {"startLine": finding.line, "startColumn": finding.column}
    # Relative, and with slashes: a code host finds the file in its checkout.
    place = {"uri": PurePath(finding.path).as_posix()}
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": finding.severity.value,
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": {"artifactLocation": place, "region": region}}],
    }
