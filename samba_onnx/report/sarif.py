"""Findings in SARIF 2.1.0, the form in which code hosts take them (OASIS, Static Analysis Results Interchange Format)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final
from urllib.parse import quote

from samba_onnx.passes.targets.reasons import ReasonCode
from samba_onnx.report.report import Report
from samba_onnx.version import __version__

__all__ = ["SarifResult", "SarifRule", "fallback_sarif", "sarif_log"]

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True)
class SarifRule:
    """A kind of finding."""

    id: str
    """Its stable short name."""
    title: str
    """What it finds, in a few words."""
    why: str
    """Why that matters."""
    help: str
    """What to do about it."""
    level: str
    """``error``, ``warning`` or ``note``."""


@dataclass(frozen=True)
class SarifResult:
    """One finding."""

    rule: str
    """The rule's ``id``."""
    level: str
    """``error``, ``warning`` or ``note``."""
    message: str
    """What was found."""
    path: str
    """The file."""
    line: int = 0
    """Its line, from 1; 0 for the file as a whole."""
    column: int = 0
    """Its column, from 1; 0 for the line as a whole."""


def sarif_log(tool: str, rules: Sequence[SarifRule], results: Sequence[SarifResult]) -> str:
    """Return a log of one run.

    Args:
        tool: The command that found it.
        rules: The kinds of its findings.
        results: The findings.
    """
    places = {rule.id: place for place, rule in enumerate(rules)}
    driver = {"name": tool, "version": __version__, "rules": [_rule(rule) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(result, places[result.rule]) for result in results],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def fallback_sarif(report: Report, command: str) -> str:
    """Return a log of the nodes that fall back, by the lines of the user's files, or else of the model.

    Args:
        report: The report. Nodes that the target could run, and that are on the CPU to save time, are left out.
        command: Which command made it.
    """
    advice = {node: change.advice for change in report.changes for node in change.nodes}
    rules: dict[str, SarifRule] = {}
    results: dict[SarifResult, None] = {}
    for fallback in report.fallbacks:
        for node in fallback.nodes:
            if node.supported:
                continue
            code = fallback.code
            rules.setdefault(code, _fallback_rule(code, report.target))
            file, _, line = node.location.rpartition(":")
            instead = advice.get(node.name) or fallback.hint
            told = f"; instead: {instead}" if instead else ""
            message = f"{node.reason}{told}"
            # Nodes of one line that say the same are one finding: a code host shows each.
            place = (file, int(line)) if line.isdigit() else (report.model.name, 0)
            results[SarifResult(code, "warning", message, *place)] = None
    return sarif_log(f"samba-port {command}", list(rules.values()), list(results))


def _fallback_rule(code: str, target: str) -> SarifRule:
    return SarifRule(
        id=f"{ReasonCode(code).value}",
        title=f"Falls back to the CPU: {code.replace('_', ' ')}",
        why=f"{target} does not run it, so that values cross the link to the host and back in every run",
        help="samba-port analyze says what it costs, and what to change first",
        level="warning",
    )


def _rule(rule: SarifRule) -> dict[str, object]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.help},
        "defaultConfiguration": {"level": rule.level},
    }


def _result(result: SarifResult, rule: int) -> dict[str, object]:
    # Relative, and with slashes: a code host finds the file in its checkout.
    place: dict[str, object] = {
        "artifactLocation": {"uri": quote(PurePath(result.path).as_posix())}
    }
    if result.line:
        column = {"startColumn": result.column} if result.column else {}
        place["region"] = {"startLine": result.line, **column}
    return {
        "ruleId": result.rule,
        "ruleIndex": rule,
        "level": result.level,
        "message": {"text": result.message},
        "locations": [{"physicalLocation": place}],
    }
