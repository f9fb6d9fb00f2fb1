"""From Python files to findings. Files are parsed, and nothing of them is imported or executed."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from samba_onnx.errors import UsageError
from samba_onnx.facts.defaults import DEFAULT_TARGET
from samba_onnx.facts.names import in_a_list
from samba_onnx.safety.files import printable
from samba_onnx.tools.lint.context import LintContext
from samba_onnx.tools.lint.findings import Finding, Remark
from samba_onnx.tools.lint.forward_checks import FORWARD_CHECKS
from samba_onnx.tools.lint.input_checks import INPUT_CHECKS
from samba_onnx.tools.lint.last_batches import last_batches
from samba_onnx.tools.lint.loop_checks import LOOP_CHECKS
from samba_onnx.tools.lint.model_checks import MODEL_CHECKS
from samba_onnx.tools.lint.name_checks import NAME_CHECKS
from samba_onnx.tools.lint.order_checks import ORDER_CHECKS
from samba_onnx.tools.lint.program_checks import PROGRAM_CHECKS
from samba_onnx.tools.lint.rule_table import RULES
from samba_onnx.tools.lint.source import SourceFile, read_source, too_deep

CHECKS = (
    *FORWARD_CHECKS,
    *INPUT_CHECKS,
    last_batches,
    *LOOP_CHECKS,
    *ORDER_CHECKS,
    *MODEL_CHECKS,
    *PROGRAM_CHECKS,
    *NAME_CHECKS,
)


def lint(paths: Sequence[str], target: str = DEFAULT_TARGET) -> tuple[Finding, ...]:
    """Say what in a program will hurt on an RDU.

    Args:
        paths: A Python file, or a folder whose Python files are all taken, or several. Together they
            are one program: what one file converts, another one may compile.
        target: The device: a built-in target, or a TOML file.

    Returns:
        Findings by file, in the order in which they were given, and by line.

    Raises:
        UsageError: A file cannot be read or is no Python, or a folder has no Python file.
        TargetError: The target is unknown or malformed.
    """
    return lint_files([read_source(path) for path in python_files(paths)], target)


def lint_files(files: Sequence[SourceFile], target: str = DEFAULT_TARGET) -> tuple[Finding, ...]:
    """Say what in a program that was parsed already will hurt on an RDU.

    Args:
        files: All files of the program.
        target: See ``lint``.

    Returns:
        Findings by file and line.

    Raises:
        UsageError: Expressions of a file are nested too deeply.
        TargetError: The target is unknown or malformed.
    """
    # Here and not above: the room's table of rules is read for documentation, without targets.
    from samba_onnx.passes.targets import load_target

    profile = load_target(target)
    # The target's own words say why, so that findings and reports of a compilation agree.
    reasons = {row.name: row.note for row in profile.unsupported}
    context = LintContext(files, profile.name, reasons)
    return tuple(finding for source in files for finding in _findings(source, context))


def _findings(source: SourceFile, context: LintContext) -> list[Finding]:
    try:
        return _sorted_findings(source, context)
    except RecursionError:
        # The parser accepts deeper expressions than a walk over them can follow.
        raise too_deep(source.path) from None


def _sorted_findings(source: SourceFile, context: LintContext) -> list[Finding]:
    found = {
        # By place and rule: two checks, or one that walks a loop twice, may find the same.
        (finding.line, finding.column, finding.rule): finding
        for check in CHECKS
        for remark in check(source, context)
        for finding in [_finding(source, remark)]
        # A comment is looked at where the finding is, so that it stands beside what it is about.
        if not source.ignores(finding.line, finding.rule)
    }
    return [found[place] for place in sorted(found)]


def _finding(source: SourceFile, remark: Remark) -> Finding:
    node = remark.node
    assert isinstance(node, ast.expr | ast.stmt)  # others have no place in a file
    return Finding(
        path=source.path,
        line=node.lineno,
        column=node.col_offset + 1,
        rule=remark.rule,
        severity=RULES[remark.rule].severity,
        message=remark.message,
    )


def python_files(paths: Sequence[str]) -> Iterator[str]:
    """Yield every file of a program once.

    Args:
        paths: See ``lint``.

    Yields:
        The files in the order in which they were given; those of a folder by their names.

    Raises:
        UsageError: A folder has no Python file.
    """
    seen: set[str] = set()
    for path in in_a_list(paths):
        for file in _files_below(path) if os.path.isdir(path) else [path]:
            # The real path, since a folder and a file in it may both be given, or a link to it.
            place = os.path.realpath(file)
            if place not in seen:
                seen.add(place)
                yield file


def _files_below(folder: str) -> list[str]:
    """Return the Python files below a folder; what is hidden is left out.

    Raises:
        UsageError: There is none.
    """
    files = [
        str(path)
        for path in sorted(Path(folder).rglob("*.py"))
        # Below the folder only: the folder itself may lie in a hidden one.
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise UsageError(
            f"{printable(folder)}: expected Python files in this folder, and there are none; "
            "give the program's own",
            path=folder,
        )
    return files
