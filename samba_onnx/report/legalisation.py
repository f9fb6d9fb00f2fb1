"""What rules of legalisation brought, in the tables that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_onnx.pef.rewrite_records import LegalisedRule
from samba_onnx.report.units import byte_text, printable, second_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def brought_table(rules: Sequence[LegalisedRule], rows: int | None) -> RenderableType | None:
    """Return the table of rules that rewrote a node.

    Args:
        rules: The records of a report.
        rows: Rows of a table at most; None for all.
    """
    from samba_onnx.report.layout import table, titled

    cells = [
        (
            rule.rule,
            ", ".join(f"{count:,} {name}" for name, count in rule.operators.items()),
            f"{rule.transfers:,}",
            byte_text(rule.bytes),
            second_text(rule.seconds),
        )
        for rule in rules
        # A rule that only left nodes stands in the other table, with the reasons.
        if rule.nodes
    ]
    if not cells:
        return None
    columns = ("rule", "nodes written otherwise", ">transfers", ">bytes", ">time")
    return titled(
        "Legalised: what a run saves by each rule, all others applied",
        table(columns, cells, limit=rows),
    )


def left_table(rules: Sequence[LegalisedRule], rows: int | None) -> RenderableType | None:
    """Return the table of nodes that rules left, by reason.

    Args:
        rules: The records of a report.
        rows: Rows of a table at most; None for all.
    """
    from samba_onnx.report.layout import some, table, titled

    reasons: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        if rule.left:
            # Several graphs may have left nodes of one rule.
            why = "writing it otherwise would make no run shorter"
            reasons.setdefault((rule.rule, why), []).extend(rule.left)
        # By reason, since a rule refuses all nodes of a kind with one sentence.
        for node, reason in rule.refused.items():
            reasons.setdefault((rule.rule, reason), []).append(node)
    if not reasons:
        return None
    # Names of nodes are long, and many have one reason: three show where to look.
    shown = None if rows is None else 3
    cells = [
        (rule, f"{len(nodes):,}", printable(reason), some(nodes, shown))
        for (rule, reason), nodes in reasons.items()
    ]
    return titled("Not legalised", table(("rule", ">nodes", "why", "where"), cells, limit=rows))
