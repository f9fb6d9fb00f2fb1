"""What rules of legalisation brought: the records of a report, and the table that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.records import PassReport, record
from samba_onnx.report.units import byte_text, printable, second_text

if TYPE_CHECKING:
    from rich.console import RenderableType


@record
class LegalisationReport:
    """What one rule of legalisation brought: nodes that the target refuses, written with others."""

    rule: str
    """Name of the rule, as ``--no-legalise`` takes it."""
    graph: str
    """Graph that the nodes belonged to."""
    nodes: tuple[str, ...]
    """Nodes of the model that it wrote with operators of the target."""
    operators: dict[str, int]
    """How many of them there were, by operator."""
    left: tuple[str, ...]
    """Nodes that it could have written, which would have made no run shorter."""
    transfers_saved: int
    """Transfers of every run that are not made: the plan without the rule, less the one with it."""
    bytes_saved: int
    """Bytes of every run that are not copied."""
    seconds_saved: float
    """Modelled; negative where a rule was applied at any price."""
    refused: dict[str, str]
    """Nodes of its operators that it cannot write, by name with the reason."""


def legalisation(manifest: Manifest) -> tuple[LegalisationReport, ...]:
    """Return what each rule brought, in the order of graphs and rules.

    Args:
        manifest: A PEF's manifest.
    """
    return tuple(
        LegalisationReport(
            rule=rule.rule,
            graph=rule.graph,
            nodes=rule.nodes,
            operators=rule.operators,
            left=rule.left,
            transfers_saved=rule.transfers,
            bytes_saved=rule.bytes,
            seconds_saved=rule.seconds,
            refused=rule.refused,
        )
        for rule in manifest.legalised
    )


def pass_reports(manifest: Manifest) -> tuple[PassReport, ...]:
    """Return what every pass did, in the order in which they ran.

    Args:
        manifest: A PEF's manifest.
    """
    return tuple(
        PassReport(done.name, done.modified, done.nodes_before, done.nodes_after)
        for done in manifest.passes
    )


def brought_table(rules: Sequence[LegalisationReport], rows: int | None) -> RenderableType | None:
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
            f"{rule.transfers_saved:,}",
            byte_text(rule.bytes_saved),
            second_text(rule.seconds_saved),
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


def left_table(rules: Sequence[LegalisationReport], rows: int | None) -> RenderableType | None:
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
