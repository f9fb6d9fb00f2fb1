"""What to change first: what a run would save by reason, and the table that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_onnx.pef.changes import Bound
from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.report_records import record
from samba_onnx.report.units import byte_text, count_text, printable, second_text

if TYPE_CHECKING:
    from rich.console import RenderableType


@record
class ChangeReport:
    """What a run would save if the target ran the nodes that it refuses for one reason.

    Found by planning again, all other nodes as they are: of two changes that are of use together only,
    neither saves anything alone.
    """

    graph: str
    """Graph that the nodes belong to."""
    code: str
    """Short name of the reason, as the fallbacks have it."""
    operator: str
    """``Op``, or ``domain::Op`` outside the default domain; several, joined by commas, where one data type is their
    reason."""
    nodes: tuple[str, ...]
    """Names of the nodes after conversion."""
    locations: tuple[str, ...]
    """``file.py:line`` of the user's own model, each once; empty where the model does not carry it."""
    transfers_saved: int
    """Transfers of a run that would not be made."""
    bytes_saved: int
    """Bytes that would not be copied."""
    seconds_saved: float
    """Modelled seconds by which a run would be shorter."""
    advice: str
    """What to write instead."""
    dtype: str = ""
    """The data type that is refused, as ``float64``; empty where the reason is another."""

    @property
    def subject(self) -> str:
        """What would have to run: the operator, or nodes of a data type whatever they compute."""
        kinds = self.operator.split(", ")
        return f"nodes in {self.dtype}" if self.dtype and len(kinds) > 1 else self.operator


def change_reports(manifest: Manifest) -> tuple[ChangeReport, ...]:
    """Return the changes of all graphs, the one that saves most first.

    Args:
        manifest: A PEF's manifest.
    """
    # Changes are planned with names of nodes; the user's lines stand with the fallbacks.
    locations = {
        node.name: node.location for fallback in manifest.fallbacks for node in fallback.reasons
    }
    changes = [
        ChangeReport(
            graph=change.graph,
            code=change.code,
            operator=change.operator,
            nodes=change.nodes,
            locations=tuple(
                dict.fromkeys(place for node in change.nodes if (place := locations.get(node)))
            ),
            transfers_saved=change.transfers,
            bytes_saved=change.bytes,
            seconds_saved=change.seconds,
            advice=change.advice,
            dtype=change.dtype,
        )
        for change in manifest.changes
    ]
    # Sorted again: a manifest has the changes of one graph behind those of another.
    return tuple(sorted(changes, key=lambda change: -change.seconds_saved))


def change_first(
    changes: Sequence[ChangeReport], bounds: Sequence[Bound], rows: int | None
) -> RenderableType | None:
    """Return the block that says what to change first.

    Args:
        changes: The records of a report.
        bounds: What runs would cost without fallbacks.
        rows: Rows of a long table; None for all.
    """
    from rich.console import Group
    from rich.text import Text

    from samba_onnx.report.layout import indent, some, table, titled

    # What saves nothing by itself is no change to begin with; the document has it all the same.
    changes = [change for change in changes if change.seconds_saved > 0]
    if not changes and not bounds:
        return None
    # Fewer rows than other tables have: below them stands a sentence of advice for each.
    shown = changes if rows is None else changes[: max(rows // 3, 1)]
    cells = [
        (
            printable(f"{len(change.nodes):,} {change.subject} ({change.code})"),
            f"{change.transfers_saved:,}",
            byte_text(change.bytes_saved),
            second_text(change.seconds_saved),
            # Where the model does not carry the user's lines, names of nodes are what there is to look for.
            some(change.locations or change.nodes, None if rows is None else 2),
        )
        for change in shown
    ]
    columns = ("on the RDU, it would save", ">transfers", ">bytes", ">time", "at")
    lines: list[RenderableType] = [table(columns, cells)] if cells else []
    # Once: an operator that is refused for two reasons has the same advice for both.
    advised = dict.fromkeys((change.subject, change.advice) for change in shown if change.advice)
    lines += [indent(Text(printable(f"{operator}: {text}"))) for operator, text in advised]
    left = len(changes) - len(shown)
    if left:
        lines.append(Text(f"… and {count_text(left, 'more change')} (-v shows all)", style="dim"))
    lines += [
        Text(
            f"If every node ran on the RDU: {second_text(bound.seconds)} per run, "
            f"{count_text(bound.transfers, 'transfer')}, {byte_text(bound.bytes)}"
            + (f" ({printable(bound.graph)})" if len(bounds) > 1 else "")
        )
        for bound in bounds
    ]
    return titled("Change first", Group(*lines))
