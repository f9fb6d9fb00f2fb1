"""Why nodes run on the CPU, in the paragraphs that people read."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from samba_onnx.report.layout import indent, titled
from samba_onnx.report.report_records import FallbackReport
from samba_onnx.report.units import count_text, printable


def fallback_paragraphs(
    reasons: Sequence[FallbackReport], rows: int | None
) -> RenderableType | None:
    """Return the block that says why nodes fall back, one paragraph per reason.

    Args:
        reasons: The records of a report.
        rows: Paragraphs at most, and a measure of how long each is; None for all.
    """
    if not reasons:
        return None
    shown = reasons if rows is None else reasons[:rows]
    contents: list[RenderableType] = []
    for reason in shown:
        contents += _reason(reason, rows)
    left = len(reasons) - len(shown)
    if left:
        contents.append(
            Text(f"… and {count_text(left, 'more reason')} (-v shows all)", style="dim")
        )
    return titled("Why nodes fall back to the CPU", *contents)


def _reason(reason: FallbackReport, rows: int | None) -> list[RenderableType]:
    """Return the paragraph of one reason."""
    operators = ", ".join(f"{nodes} {operator}" for operator, nodes in reason.operators.items())
    # A reason that names each node's own sizes has as many sentences as nodes: a few show what it is about.
    shown = len(reason.reasons) if rows is None else max(rows // 4, 1)
    lines = [Text(printable(text)) for text in reason.reasons[:shown]]
    if len(reason.reasons) > shown:
        left = count_text(len(reason.reasons) - shown, "more sentence")
        lines.append(Text(f"… and {left} like this (-v shows all)", style="dim"))
    if reason.hint:
        lines.append(Text(f"hint: {printable(reason.hint)}"))
    places = [
        f"{node.location} ({node.name})" if node.location else node.name for node in reason.nodes
    ]
    # Places stand behind each other in one paragraph, and take fewer lines than rows of a table.
    shown = len(places) if rows is None else max(rows // 2, 2)
    rest = f", and {len(places) - shown:,} more" if len(places) > shown else ""
    lines.append(Text(printable(f"at {', '.join(places[:shown])}{rest}"), style="dim"))
    title = Text(printable(f"{operators}  ({reason.code})"))
    return [title, *(indent(line) for line in lines)]
