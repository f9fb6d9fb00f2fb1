"""What ``samba-port reduce`` says: the part of a model that a PEF computes differently."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.report_records import SCHEMA_VERSION, record


@record
class ReductionReport:
    """The smallest part of a model that its PEF computes differently."""

    headline: str
    """The answer in one line."""
    passed: bool
    """Whether all values agree, so that there is nothing to reduce."""
    first: str
    """Name of the first value beyond the tolerance; empty if there is none."""
    location: str
    """``file.py:line`` of its node in the user's own model; empty when the model does not carry it."""
    converts_wrongly: bool
    """Whether this version of the compiler converts the part wrongly. If not, the PEF is damaged, or
    another version wrote it."""
    nodes: int
    """Nodes of the part."""
    model_nodes: int
    """Nodes of the model."""
    operators: dict[str, int]
    """Nodes of the part by operator."""
    max_relative_error: float | None
    """Largest error of the part's outputs, divided by the largest expected magnitude; null where types
    or shapes differ, where the engine refuses what was compiled, and without a part."""
    model: str
    """The file with the part; empty without a part."""
    inputs: str
    """The file with its inputs, what is expected, and what there is; empty without a part."""
    trials: int
    """Parts that were tried."""
    schema_version: int = SCHEMA_VERSION
    """Version of this document's form."""


def reduction_text(report: ReductionReport) -> RenderableType:
    """Return what ``reduce`` shows.

    Args:
        report: What was found.

    Returns:
        Something that a rich console prints.
    """
    lines: list[RenderableType] = [
        Text(report.headline, style="bold" if report.passed else "bold red")
    ]
    if report.model:
        operators = ", ".join(f"{count} {name}" for name, count in report.operators.items())
        # Whose fault it is decides what to do: report a defect, or convert again.
        cause = (
            "This version of the compiler converts it wrongly: please report it with these files."
            if report.converts_wrongly
            else "This version of the compiler converts it rightly: the PEF is of another version, or "
            "was changed. The file has what lies between the first wrong value and the nearest ones "
            "that agree."
        )
        lines += [
            Text(""),
            Text(f"Part: {operators}"),
            Text(f"Wrote {report.model} and {report.inputs} after {report.trials} trials"),
            Text(cause),
        ]
    return Group(*lines)
