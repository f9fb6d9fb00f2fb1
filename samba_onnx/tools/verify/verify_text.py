"""What ``samba-port verify`` shows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import table
from samba_onnx.report.units import count_text, number_text, shape_text
from samba_onnx.tools.verify.verify_report import VerificationReport


def verification_text(report: VerificationReport, rows: int | None = 12) -> RenderableType:
    """Return what ``verify`` shows.

    Args:
        report: The comparison.
        rows: Longest table; None for all rows.

    Returns:
        Something that a rich console prints.
    """
    cells = [
        (
            output.name,
            output.dtype,
            shape_text(output.shape),
            number_text(output.max_absolute_error),
            number_text(output.max_relative_error),
            "-" if output.steps is None else f"{output.steps:.3g}",
            "-" if output.of_allowed is None else f"{output.of_allowed:.2g}",
            f"{output.mismatched:,} of {output.elements:,}",
            "yes" if output.passed else "NO",
        )
        # What does not hold comes first: a long table ends before its last rows.
        for output in sorted(report.outputs, key=lambda output: output.passed)
    ]
    columns = ("output", "dtype", "shape", ">max error", ">relative", ">steps", ">of allowed")
    # Most outputs share one, which is said once.
    tolerances = dict.fromkeys(f"{output.dtype}: {output.tolerance}" for output in report.outputs)
    return Group(
        Text(report.headline, style="bold" if report.passed else "bold red"),
        Text(""),
        table((*columns, ">beyond", "holds"), cells, limit=rows),
        Text(""),
        *(Text(f"Tolerance of {tolerance}") for tolerance in tolerances),
        Text(f"Compared in {count_text(len(report.runs), 'run')}: {'; '.join(report.runs)}"),
        *(
            part
            for text in (report.departure, report.other_version, report.advice)
            if text
            for part in (Text(""), Text(text))
        ),
    )
