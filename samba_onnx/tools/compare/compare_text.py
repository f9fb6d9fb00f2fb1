"""A comparison of all values for people."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import table, titled
from samba_onnx.report.units import count_text, printable, shape_text
from samba_onnx.tools.compare.compare_report import ValueComparisonReport, ValueErrorReport

VALUE_COLUMNS: Final = (
    *("value", "operator", ">section", "shape", ">max error", ">relative", ">mean"),
    *(">cosine", ">of allowed", "holds"),
)
"""Headings of the table of values."""


def values_text(report: ValueComparisonReport, rows: int | None = 12) -> RenderableType:
    """Return what ``compare`` shows.

    Args:
        report: The comparison.
        rows: Longest table; None for all rows, in the order of the original. Otherwise those with the
            largest errors for their tolerance.

    Returns:
        Something that a rich console prints.
    """
    parts: list[RenderableType] = [
        Text(report.headline, style="bold" if report.passed else "bold red")
    ]
    if report.first is not None:
        parts += [Text(""), titled("First value beyond the tolerance", _first(report.first))]
    # With all rows in the order of the original, in which an error spreads; with few, those that matter.
    shown = report.values if rows is None else worst_first(report.values)
    content = table(VALUE_COLUMNS, [value_cells(one) for one in shown], limit=rows)
    parts += [Text(""), titled("Values" if rows is None else "Values, the worst first", content)]
    parts += [Text(""), Text(_counts(report))]
    parts += [Text(f"Tolerance of {text}") for text in _tolerances(report.values)]
    beyond = sum(value.passed and (value.of_allowed or 0) > 1 for value in report.values)
    if beyond:
        parts += [
            Text(
                f"{count_text(beyond, 'value')} beyond 1 of allowed held: torch's own result in the same type is "
                "as far from that of float64"
            )
        ]
    if report.advice:
        parts += [Text(""), Text(report.advice)]
    return Group(*parts)


def worst_first(values: tuple[ValueErrorReport, ...]) -> list[ValueErrorReport]:
    """Return values that fail before those that hold, each by error for its tolerance.

    Args:
        values: In any order.
    """

    def badness(value: ValueErrorReport) -> tuple[bool, float]:
        # Nothing was allowed there, and there is an error: no fraction is worse.
        of_allowed = float("inf") if value.of_allowed is None else value.of_allowed
        return value.passed, -of_allowed

    return sorted(values, key=badness)


def _first(value: ValueErrorReport) -> RenderableType:
    node = f", node {printable(value.node)}" if value.node else ""
    place = f", at {printable(value.location)}" if value.location else ""
    # The node to look at is the one whose operands were right still.
    begins = (
        "what it reads is within the tolerance, as far as it was compared: the error begins here"
        if value.operands_agree
        else "what it reads is beyond the tolerance, too"
    )
    return Text(
        f"{printable(value.name)} of {value.operator}{node}{place}, in section {value.stage}: "
        f"{value.mismatched:,} of {value.elements:,} elements; {begins}"
    )


def value_cells(value: ValueErrorReport) -> tuple[str, ...]:
    """Return the row of a value.

    Args:
        value: The comparison.
    """
    return (
        value.name,
        value.operator,
        str(value.stage),
        f"{value.dtype} {shape_text(value.shape)}",
        _number(value.max_absolute_error),
        _number(value.max_relative_error),
        _number(value.mean_absolute_error),
        "-" if value.cosine is None else f"{value.cosine:.6f}",
        "-" if value.of_allowed is None else f"{value.of_allowed:.2g}",
        "yes" if value.passed else "NO",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _counts(report: ValueComparisonReport) -> str:
    """Return how many values were compared, of how many, and what became of the others."""
    same = sum(value.identical for value in report.values)
    text = (
        f"{report.compared:,} of {count_text(report.total, 'value')} of the original are in the PEF, "
        f"{same:,} of them equal to the last bit"
    )
    if report.gone:
        others = ", ".join(f"{count:,} of {operator}" for operator, count in report.gone.items())
        text += f"; {sum(report.gone.values()):,} were folded, fused or removed ({others})"
    if report.own:
        text += f"; {count_text(report.own, 'value')} only the PEF has"
    return f"{text}. Run on {report.inputs}."


def _tolerances(values: tuple[ValueErrorReport, ...]) -> list[str]:
    # Where all bits are equal, no tolerance was needed.
    return list(
        dict.fromkeys(
            f"{value.dtype}: {value.tolerance}" for value in values if not value.identical
        )
    )
