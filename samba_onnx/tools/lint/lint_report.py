"""What ``samba-port lint`` says."""

from __future__ import annotations

from samba_onnx.report.report_records import SCHEMA_VERSION, record
from samba_onnx.tools.lint.findings import Finding, LintRule


@record
class LintReport:
    """What in a program will hurt on an RDU."""

    headline: str
    """The answer in one sentence."""
    target: str
    """Name of the target."""
    files: int
    """Files that were read."""
    errors: int
    """Findings of severity ``error``."""
    warnings: int
    """Findings of severity ``warning``."""
    notes: int
    """Findings of severity ``note``."""
    findings: tuple[Finding, ...]
    """By file and line."""
    rules: tuple[LintRule, ...]
    """The rules of the findings, the worst first."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document."""
