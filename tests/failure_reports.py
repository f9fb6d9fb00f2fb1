"""What is shown of a failed test: of long outputs the end, which says what went wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest
from _pytest._code.code import ExceptionChainRepr

__all__ = ["shorten", "shortened"]

FIRST, LAST = 20, 80
"""Lines that are shown of a longer text."""


def shortened(lines: Sequence[str]) -> list[str]:
    """Return the first and the last lines of a text, and in between how many were left out."""
    left_out = len(lines) - FIRST - LAST
    if left_out <= 1:
        return list(lines)
    return [*lines[:FIRST], f"... {left_out} lines are left out ...", *lines[-LAST:]]


def shorten(report: pytest.TestReport, error: BaseException | None) -> None:
    """Shorten what a report shows, and add what a process said whose status an exception states.

    Args:
        report: Of a test that failed; it is changed.
        error: What it raised.
    """
    if isinstance(report.longrepr, ExceptionChainRepr):
        for traceback, _, _ in report.longrepr.chain:
            for entry in traceback.reprentries:
                entry.lines[:] = shortened(entry.lines)
    if isinstance(error, subprocess.CalledProcessError | subprocess.TimeoutExpired):
        for stream, content in (("output", error.stdout), ("error", error.stderr)):
            text = content.decode(errors="replace") if isinstance(content, bytes) else content
            if text:
                report.sections.append((f"Standard {stream} of the process", text))
    report.sections[:] = [
        (title, "\n".join(shortened(text.splitlines()))) for title, text in report.sections
    ]
