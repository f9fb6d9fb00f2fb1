"""What in a program or module will hurt on an RDU, told from its text before it runs.

Rules are rows of one table, checks find their places in the syntax tree of the standard library,
and nothing of a program is imported or executed.
"""

from __future__ import annotations

from samba_onnx.lint.linter import lint, lint_files, python_files
from samba_onnx.lint.records import Finding, LintRule, Severity
from samba_onnx.lint.rules import RULES
from samba_onnx.lint.source import SourceFile, read_source

__all__ = [
    "RULES",
    "Finding",
    "LintRule",
    "Severity",
    "SourceFile",
    "lint",
    "lint_files",
    "python_files",
    "read_source",
]
