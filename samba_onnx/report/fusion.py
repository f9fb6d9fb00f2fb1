"""What rules of fusion made of a model: the records of a report, and the table that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_onnx.pef.manifest import Manifest
from samba_onnx.report.report_records import record
from samba_onnx.report.units import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

BY_HAND = "op_fusion"
"""Source of what no file says: ``samba.directives.op_fusion`` in the user's program."""


@record
class FusionReport:
    """What one rule of fusion matched at level ``o1``."""

    rule: str
    """Name of the rule, as sections carry it."""
    source: str
    """The file that it is from, or ``op_fusion``."""
    priority: float
    """Which rule wins where several match the same operators: the one with the greatest."""
    heuristic: str
    """The way to lay sections out that it names; it changes nothing here."""
    sections: int
    """Sections that it made; 0 for a rule that never matched."""
    nodes: int
    """Nodes in them."""


def fusion(manifest: Manifest) -> tuple[FusionReport, ...]:
    """Return what each rule matched: those of ``op_fusion``, then those of files as they were tried.

    Args:
        manifest: A PEF's manifest.
    """
    sections: dict[str, int] = {}
    nodes: dict[str, int] = {}
    for section in manifest.sections:
        if section.rule:
            sections[section.rule] = sections.get(section.rule, 0) + 1
            nodes[section.rule] = nodes.get(section.rule, 0) + section.nodes
    # A section whose rule no file has was marked in the user's program.
    named = {rule.name for rule in manifest.fusion_rules}
    by_hand = [
        # Marks come before all rules, whatever their priority: a number for them would say nothing.
        FusionReport(name, BY_HAND, 0.0, "", count, nodes[name])
        for name, count in sections.items()
        if name not in named
    ]
    return (
        *by_hand,
        *(
            FusionReport(
                rule.name,
                rule.source,
                rule.priority,
                rule.heuristic,
                sections.get(rule.name, 0),
                nodes.get(rule.name, 0),
            )
            for rule in manifest.fusion_rules
        ),
    )


def fusion_table(rules: Sequence[FusionReport], rows: int | None) -> RenderableType | None:
    """Return the table of rules that made a section, over the names of those that made none.

    Args:
        rules: The records of a report.
        rows: Rows of a table at most; None for all.
    """
    from rich.text import Text

    from samba_onnx.report.layout import table, titled

    if not rules:
        return None
    cells = [
        (printable(rule.rule), printable(rule.source), f"{rule.sections:,}", f"{rule.nodes:,}")
        for rule in rules
        if rule.sections
    ]
    parts: list[RenderableType] = []
    if cells:
        parts.append(table(("rule", "from", ">sections", ">nodes"), cells, limit=rows))
    # Said, too: a rule that is out of date or names the wrong operators looks like one that is not needed.
    idle = [printable(rule.rule) for rule in rules if not rule.sections]
    if idle:
        parts.append(Text(f"never matched: {', '.join(idle)}"))
    return titled("Fused: operators that a rule made one section", *parts)
