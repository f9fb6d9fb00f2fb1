"""What a job of GitHub is told: a summary of the step, and lines of the user's files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from samba_onnx.errors import OutputError, UsageError

if TYPE_CHECKING:
    from samba_onnx.report import Report

__all__ = ["refuse_elsewhere", "tell_github"]

_SUMMARY: Final = "GITHUB_STEP_SUMMARY"
"""The variable in which a job names the file for the summary of a step."""


def refuse_elsewhere(asked: bool) -> None:
    """Refuse ``--github`` outside of a job, before anything takes time.

    Args:
        asked: Whether it was given.

    Raises:
        UsageError: No job of GitHub runs this.
    """
    if asked and not os.environ.get(_SUMMARY):
        raise UsageError(
            f"--github is for a job of GitHub, which sets {_SUMMARY}: --markdown FILE writes the same report here"
        )


def tell_github(report: Report, command: str) -> None:
    """Add a report to the summary of the step, and annotate the lines that fall back, on standard error.

    Args:
        report: The report.
        command: Which command made it.

    Raises:
        OutputError: The summary cannot be written.
    """
    from samba_onnx.report.markdown import github_annotations, markdown_text

    path = Path(os.environ[_SUMMARY])
    try:
        # Behind what other steps wrote.
        with path.open("a", encoding="utf-8") as file:
            file.write(markdown_text(report))
    except OSError as error:
        raise OutputError(f"{path}: cannot write the summary of the step: {error}") from None
    # Both streams of a step are read for commands; standard output is the answer's.
    for line in github_annotations(report, command):
        sys.stderr.write(f"{line}\n")
