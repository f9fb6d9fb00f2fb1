"""``samba-port lint``."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from samba_onnx.cli.display import Display, refuse_overwriting, write_file
from samba_onnx.cli.failures import EXIT_NO, EXIT_YES
from samba_onnx.cli.options import OUTPUT, JsonOption, QuietOption, TargetOption, VerboseOption
from samba_onnx.facts.defaults import DEFAULT_TARGET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samba_onnx.tools.lint.findings import Finding
    from samba_onnx.tools.lint.lint_report import LintReport


class FailOn(enum.Enum):
    """The least severity of a finding that makes the answer no."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"


def lint(
    programs: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM...",
            help="Python files of one program, or folders with all of theirs; nothing is executed.",
        ),
    ],
    target: TargetOption = DEFAULT_TARGET,
    fail_on: Annotated[
        FailOn,
        typer.Option("--fail-on", help="Exit status 1 if anything as bad as this is found."),
    ] = FailOn.ERROR,
    sarif: Annotated[
        str | None,
        typer.Option(
            "--sarif",
            metavar="FILE",
            help="Write the findings in SARIF 2.1.0, too, for code hosts.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: JsonOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> int:
    """Say what in a program will hurt on an RDU.

    Examples:
      samba-port lint train.py
      samba-port lint train.py models/ --target sn30 --fail-on warning
      samba-port lint train.py --json - | jq .findings
      samba-port lint train.py models/ --sarif lint.sarif
    """
    from samba_onnx.tools.lint.lint_text import lint_text
    from samba_onnx.tools.lint.linter import lint_files, python_files
    from samba_onnx.tools.lint.sarif import sarif_text
    from samba_onnx.tools.lint.source import read_source

    paths = list(python_files(programs))
    refuse_overwriting(*paths, outputs={"--json": json, "--sarif": sarif})
    findings = lint_files([read_source(path) for path in paths], target)
    report = lint_report(findings, len(paths), target)
    if sarif is not None:
        write_file(sarif, sarif_text(report).encode())
    Display(json, quiet, verbose).show(
        report.headline, lambda rows: lint_text(report, rows), report
    )
    return EXIT_NO if _fails(findings, fail_on) else EXIT_YES


def lint_report(findings: Sequence[Finding], files: int, target: str) -> LintReport:
    """Return findings as a document.

    Args:
        findings: By file and line.
        files: How many files were read.
        target: The device.
    """
    from samba_onnx.report.units import count_text
    from samba_onnx.tools.lint.findings import Severity
    from samba_onnx.tools.lint.lint_report import LintReport
    from samba_onnx.tools.lint.rule_table import RULES

    counts = {
        severity: sum(finding.severity is severity for finding in findings) for severity in Severity
    }
    words = [count_text(count, severity.value) for severity, count in counts.items() if count]
    found = {finding.rule for finding in findings}
    rules = sorted(
        (rule for rule in RULES.values() if rule.id in found), key=lambda rule: rule.severity.rank
    )
    return LintReport(
        headline=f"{', '.join(words) or 'nothing found'} in {count_text(files, 'file')}",
        target=target,
        files=files,
        errors=counts[Severity.ERROR],
        warnings=counts[Severity.WARNING],
        notes=counts[Severity.NOTE],
        findings=tuple(findings),
        rules=tuple(rules),
    )


def _fails(findings: Sequence[Finding], fail_on: FailOn) -> bool:
    """Whether any finding is as bad as the user said."""
    from samba_onnx.tools.lint.findings import Severity

    if fail_on is FailOn.NEVER:
        return False
    worst = Severity(fail_on.value).rank
    return any(finding.severity.rank <= worst for finding in findings)
