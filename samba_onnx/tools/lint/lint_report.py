"""What ``samba-port lint`` says."""

from __future__ import annotations

from samba_onnx.report.records import SCHEMA_VERSION, record


@record
class FindingReport:
    """A place of a program that will hurt on an RDU."""

    path: str
    """The file, as it was given."""
    line: int
    """Number of the line, from 1."""
    column: int
    """Number of the column, from 1."""
    rule: str
    """Id of the rule, stable for machines."""
    severity: str
    """``error``, ``warning`` or ``note``."""
    message: str
    """What stands there, in one sentence."""


@record
class RuleReport:
    """A rule that something was found by."""

    rule: str
    """Id of the rule."""
    severity: str
    """``error``, ``warning`` or ``note``."""
    title: str
    """What the rule finds, in a few words."""
    why: str
    """What happens on an RDU."""
    instead: str
    """What to write."""
    source: str
    """Where it is documented or was observed."""


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
    findings: tuple[FindingReport, ...]
    """By file and line."""
    rules: tuple[RuleReport, ...]
    """The rules of the findings, the worst first."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document."""
