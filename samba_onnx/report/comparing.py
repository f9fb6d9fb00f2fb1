"""Holds two reports side by side: figures, nodes on the CPU, boundaries, operators, sections, passes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, Literal

from samba_onnx.pef.manifest import Cause, Direction
from samba_onnx.report.comparability import different
from samba_onnx.report.difference import (
    BoundaryChange,
    DifferenceReport,
    FallbackChange,
    FigureChange,
    OperatorChange,
    PassChange,
    SectionChange,
)
from samba_onnx.report.report import Report
from samba_onnx.report.report_records import FallbackNodeReport, SectionReport
from samba_onnx.report.units import byte_text, count_text, flop_text, printable, second_text

_NOISE: Final = 1e-12
"""A rise by a smaller share than this is the order in which numbers were added."""


def difference(
    before: Report, after: Report, names: tuple[str, str], *, allowed_percent: float = 0.0
) -> DifferenceReport:
    """Say what changed from one report to another.

    Args:
        before: The first report.
        after: The second report, which is better or worse than the first.
        names: What to call the two.
        allowed_percent: By how much a watched figure may rise before the second report is worse.

    Returns:
        All differences; nodes are told apart by name and operator, boundaries by the values that cross,
        sections by graph and name.
    """
    figures = _figures(before, after, allowed_percent)
    return DifferenceReport(
        headline=_headline(names, figures),
        worse=any(figure.worse for figure in figures),
        before=names[0],
        after=names[1],
        allowed_percent=allowed_percent,
        circumstances=_circumstances(before, after),
        figures=figures,
        fallbacks=_fallbacks(before, after),
        boundaries=_boundaries(before, after),
        operators=_operators(before, after),
        sections=_sections(before, after),
        passes=_passes(before, after),
    )


def amount_text(value: float, unit: str) -> str:
    """Return a figure of a comparison for people, as ``1.2 MB`` or ``3 nodes``.

    Args:
        value: The figure.
        unit: Its unit, as in the report: ``bytes``, ``s``, ``FLOP``, or what is counted.
    """
    if unit == "bytes":
        return byte_text(int(value))
    if unit == "FLOP":
        return flop_text(int(value))
    return second_text(value) if unit == "s" else count_text(int(value), _ONE[unit], unit)


def share_text(figure: FigureChange) -> str:
    """Return by how much a figure rose or fell, as ``+1.2 %``; ``new`` where it was nothing."""
    if not figure.before:
        return "new" if figure.after else "+0.0 %"
    return f"{(figure.after - figure.before) / figure.before * 100:+.1f} %"


def change_text(figure: FigureChange) -> str:
    """Return what became of a figure, as ``cpu nodes 3 nodes → 5 nodes (+66.7 %)``."""
    return (
        f"{figure.name.replace('_', ' ')} {amount_text(figure.before, figure.unit)} → "
        f"{amount_text(figure.after, figure.unit)} ({share_text(figure)})"
    )


_ONE: Final = {
    "nodes": "node",
    "places": "place",
    "boundaries": "boundary",
    "transfers": "transfer",
    "sections": "section",
    "regions": "region",
}
"""What one of the things is called that figures count."""

_WATCHED: Final = {
    "cpu_nodes": "nodes",
    "fallbacks": "places",
    "boundaries": "boundaries",
    "transfers_per_run": "transfers",
    "bytes_per_run": "bytes",
    "modelled_seconds": "s",
}
"""Figures of which more is worse, with their units."""

_OTHERS: Final = {
    "rdu_nodes": "nodes",
    "sections": "sections",
    "fallback_bytes_per_run": "bytes",
    "sections_seconds": "s",
    "transfers_seconds": "s",
    "rdu_flops": "FLOP",
    "cpu_flops": "FLOP",
    "bytes_at_load": "bytes",
    "load_seconds": "s",
    "regions": "regions",
}
"""Figures that explain those, with their units."""


def _values(report: Report) -> dict[str, float]:
    """Return the figures of a report by name."""
    coverage, time = report.coverage, report.modelled_time
    moved = report.transfers_per_run
    return {
        "cpu_nodes": coverage.cpu_nodes,
        "fallbacks": coverage.cpu_places,
        "boundaries": len(report.boundaries),
        "transfers_per_run": sum(total.transfers for total in moved),
        "bytes_per_run": sum(total.bytes for total in moved),
        "modelled_seconds": time.total_seconds,
        "rdu_nodes": coverage.rdu_nodes,
        "sections": len(report.sections),
        "fallback_bytes_per_run": sum(t.bytes for t in moved if t.cause == Cause.FALLBACK),
        "sections_seconds": time.sections_seconds,
        "transfers_seconds": time.transfers_seconds,
        "rdu_flops": coverage.rdu_flops,
        "cpu_flops": coverage.cpu_flops,
        "bytes_at_load": sum(total.bytes for total in report.transfers_at_load),
        "load_seconds": time.load_seconds,
        "regions": len(report.regions),
    }


def _figures(before: Report, after: Report, allowed: float) -> tuple[FigureChange, ...]:
    left, right = _values(before), _values(after)
    limit = 1 + allowed / 100 + _NOISE
    return tuple(
        FigureChange(
            name,
            unit,
            left[name],
            right[name],
            watched=name in _WATCHED,
            worse=name in _WATCHED and right[name] > left[name] * limit,
        )
        for name, unit in (_WATCHED | _OTHERS).items()
    )


def _headline(names: tuple[str, str], figures: tuple[FigureChange, ...]) -> str:
    """Return ``a.pef → b.pef: worse: ...``, with the watched figures that changed."""
    start = f"{printable(names[0])} → {printable(names[1])}: "
    changed = [figure for figure in figures if figure.watched and figure.before != figure.after]
    if not changed:
        return f"{start}no figure that counts differs"
    worse = [figure for figure in changed if figure.worse]
    better = all(figure.after < figure.before for figure in changed)
    verdict = "worse" if worse else "better" if better else "not worse"
    return f"{start}{verdict}: {', '.join(map(change_text, worse or changed))}"


def _circumstances(before: Report, after: Report) -> tuple[str, ...]:
    """Return in what the two conversions differ, as far as reports say it."""
    pairs = {
        "model": (before.model.name, after.model.name),
        "written by": (before.model.producer, after.model.producer),
        "operator set": (before.model.opset, after.model.opset),
        "nodes of the model": (before.model.nodes, after.model.nodes),
        **different(before, after),
    }
    # Without sections nothing says how their times would be modelled.
    if before.sections and after.sections:
        pairs["modelled times"] = (_timing(before), _timing(after))
    return tuple(
        f"{name}: {left or 'none'} → {right or 'none'}"
        for name, (left, right) in pairs.items()
        if left != right
    )


def _timing(report: Report) -> str:
    """Return how times of sections are modelled: reports of older versions do not know their parts."""
    has_parts = any(section.time_parts for section in report.sections)
    return "with launches and efficiencies" if has_parts else "at peak rates"


def _fallbacks(before: Report, after: Report) -> tuple[FallbackChange, ...]:
    left, right = _cpu_nodes(before), _cpu_nodes(after)
    changes = [
        _changed("reason", node, left[key], right[key])
        for key, node in right.items()
        if key in left
        # A sentence that only names another target is no other reason.
        and left[key].reason.replace(before.target, "") != node.reason.replace(after.target, "")
    ]
    gone = [node for key, node in left.items() if key not in right]
    new = [node for key, node in right.items() if key not in left]
    # One operator on the CPU for one reason in both: the node is there under another name.
    gone, new = _without_renamed(gone, new)
    # Rewriting gives nodes other names: counts of their operators tell where they went.
    risen = _risen(before, after), _risen(after, before)
    changes = [
        *(
            _changed("new", node, None, node, _where(node.operator, risen[1], "not there"))
            for node in new
        ),
        *changes,
        *(
            _changed("gone", node, node, None, _where(node.operator, risen[0], "rewritten"))
            for node in gone
        ),
    ]
    return tuple(changes)


def _cpu_nodes(report: Report) -> dict[tuple[str, str, int], FallbackNodeReport]:
    """Return the nodes on the CPU by name, operator, and place among those that share both."""
    seen: Counter[tuple[str, str]] = Counter()
    nodes = {}
    for node in (node for kind in report.fallbacks for node in kind.nodes):
        key = (node.name, node.operator)
        nodes[(*key, seen[key])] = node
        seen[key] += 1
    return nodes


def _without_renamed(
    gone: list[FallbackNodeReport], new: list[FallbackNodeReport]
) -> tuple[list[FallbackNodeReport], list[FallbackNodeReport]]:
    """Drop pairs of a node that is gone and a new one of its operator, reason and line."""
    pairs = Counter(map(_kind, gone)) & Counter(map(_kind, new))
    # A copy for each, which uses its pairs up.
    return _after_first(gone, Counter(pairs)), _after_first(new, Counter(pairs))


def _kind(node: FallbackNodeReport) -> tuple[str, str, str]:
    return node.operator, node.reason, node.location


def _after_first(
    nodes: Iterable[FallbackNodeReport], pairs: Counter[tuple[str, str, str]]
) -> list[FallbackNodeReport]:
    """Return nodes without the first ones of each kind, as many as there are pairs."""
    rest = []
    for node in nodes:
        if pairs[_kind(node)]:
            pairs[_kind(node)] -= 1
        else:
            rest.append(node)
    return rest


def _risen(before: Report, after: Report) -> Counter[str]:
    """Return how many more nodes of each operator run on the RDU afterwards."""
    left = {row.operator: row.rdu_nodes for row in before.coverage.operators}
    return Counter(
        {
            row.operator: row.rdu_nodes - left.get(row.operator, 0)
            for row in after.coverage.operators
        }
    )


def _where(operator: str, risen: Counter[str], otherwise: str) -> str:
    """Return where a node of an operator is in the other report, and count it there."""
    if risen[operator] <= 0:
        return otherwise
    risen[operator] -= 1
    return "on the RDU"


def _changed(
    change: Literal["new", "gone", "reason"],
    node: FallbackNodeReport,
    before: FallbackNodeReport | None,
    after: FallbackNodeReport | None,
    instead: str = "",
) -> FallbackChange:
    return FallbackChange(
        change=change,
        name=node.name,
        operator=node.operator,
        reason_before=before.reason if before else "",
        reason_after=after.reason if after else "",
        instead=instead,
        location=node.location,
    )


def _boundaries(before: Report, after: Report) -> tuple[BoundaryChange, ...]:
    left, right = _by_symbols(before), _by_symbols(after)
    changes = [
        BoundaryChange(
            graph=key[0],
            direction=Direction(key[1]),
            symbols=key[2],
            boundaries_before=len(left[key]),
            boundaries_after=len(right[key]),
            bytes_before=sum(left[key]),
            bytes_after=sum(right[key]),
        )
        for key in [*right, *(key for key in left if key not in right)]
        if left[key] != right[key]
    ]
    return tuple(sorted(changes, key=lambda change: change.bytes_before - change.bytes_after))


def _by_symbols(report: Report) -> defaultdict[tuple[str, str, tuple[str, ...]], list[int]]:
    """Return the bytes of boundaries by graph, direction and the values that cross."""
    sizes: defaultdict[tuple[str, str, tuple[str, ...]], list[int]] = defaultdict(list)
    for boundary in report.boundaries:
        sizes[boundary.graph, boundary.direction, tuple(boundary.symbols)].append(boundary.bytes)
    return sizes


def _operators(before: Report, after: Report) -> tuple[OperatorChange, ...]:
    left = {row.operator: (row.rdu_nodes, row.cpu_nodes) for row in before.coverage.operators}
    right = {row.operator: (row.rdu_nodes, row.cpu_nodes) for row in after.coverage.operators}
    changes = []
    for operator in sorted(left.keys() | right.keys()):
        (rdu, cpu), (later_rdu, later_cpu) = left.get(operator, (0, 0)), right.get(operator, (0, 0))
        if (rdu, cpu) != (later_rdu, later_cpu):
            changes.append(OperatorChange(operator, rdu, later_rdu, cpu, later_cpu))
    return tuple(
        sorted(changes, key=lambda change: change.cpu_nodes_before - change.cpu_nodes_after)
    )


def _sections(before: Report, after: Report) -> tuple[SectionChange, ...]:
    left = {(section.graph, section.name): section for section in before.sections}
    right = {(section.graph, section.name): section for section in after.sections}
    return tuple(
        _section_change(left.get(key), right.get(key))
        for key in dict.fromkeys([*left, *right])
        if _content(left.get(key)) != _content(right.get(key))
    )


def _content(section: SectionReport | None) -> tuple[object, ...] | None:
    """Return what of a section may change, ids left out."""
    if section is None:
        return None
    return section.operators, section.modelled_seconds, section.off_chip_bytes


def _section_change(left: SectionReport | None, right: SectionReport | None) -> SectionChange:
    either = left or right
    assert either is not None
    return SectionChange(
        either.name,
        either.graph,
        left.nodes if left else None,
        right.nodes if right else None,
        left.modelled_seconds if left else None,
        right.modelled_seconds if right else None,
    )


def _passes(before: Report, after: Report) -> tuple[PassChange, ...]:
    left, right = _added(before), _added(after)
    return tuple(
        PassChange(name, left[name], right[name])
        for name in dict.fromkeys([*left, *right])
        if left[name] != right[name]
    )


def _added(report: Report) -> Counter[str]:
    """Return the nodes that each pass added, over all times that it ran."""
    added: Counter[str] = Counter()
    for one in report.passes:
        added[one.name] += one.nodes_after - one.nodes_before
    return added
