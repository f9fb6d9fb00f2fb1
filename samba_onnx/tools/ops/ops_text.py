"""Operator tables for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from samba_onnx.report.layout import table, titled
from samba_onnx.tools.ops.ops_report import (
    OperandReport,
    OperatorReport,
    OperatorTableReport,
)


def operators_text(report: OperatorTableReport) -> RenderableType:
    """Return what ``ops`` shows.

    Args:
        report: The table.

    Returns:
        Something that a rich console prints.
    """
    cells = [
        (row.operator, _versions(row), row.evidence, _types(row.types), "; ".join(_limits(row)))
        for row in report.operators
    ]
    parts: list[RenderableType] = [Text(report.headline, style="bold")]
    if cells:
        columns = ("operator", "version", "evidence", "types", "limits")
        parts += [Text(""), table(columns, cells)]
        parts.append(Text("types: * experimental, ° observed, ? assumed", style="dim"))
    refused = [(row.operator, row.code, row.reason) for row in report.unsupported]
    if refused:
        grid = table(("operator", "reason", "why"), refused)
        parts += [Text(""), titled("Known not to run on the RDU", grid)]
    return Group(*parts)


# A row has many types: a sign behind one takes no room, and what is documented in full needs none.
_MARKS = {"full": "", "experimental": "*", "observed": "°", "assumed": "?"}


def _types(types: dict[str, str]) -> str:
    return " ".join(f"{name}{_MARKS.get(status, '')}" for name, status in types.items())


def _versions(row: OperatorReport) -> str:
    return f"{row.since}+" if row.until is None else f"{row.since}-{row.until}"


def _limits(row: OperatorReport) -> list[str]:
    limits = [text for operand in row.operands if (text := _operand(operand, row))]
    limits += [f"{name}: {values}" for name, values in row.attributes.items()]
    return [*limits, *row.limits]


def _operand(operand: OperandReport, row: OperatorReport) -> str:
    if operand.absent:
        return f"no {operand.name}"
    words = ["constant"] if operand.static else []
    if operand.ranks is not None:
        low, high = operand.ranks
        words.append(f"rank {low}" if low == high else f"rank {low} to {high}")
    # The types of the row stand in a column of their own.
    if operand.types != row.types:
        words.append(_types(operand.types) or "no type")
    return f"{operand.name}: {', '.join(words)}"
