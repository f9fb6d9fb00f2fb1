"""How much of a model runs where, and why nodes run on the CPU, counted from its manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from samba_onnx.passes.targets.reasons import ReasonCode
from samba_onnx.pef.manifest import Fallback, FallbackNode, Manifest, Section
from samba_onnx.report.report_records import (
    Coverage,
    FallbackNodeReport,
    FallbackReport,
    OperatorCoverage,
)

_SHAPE_CODES: Final = frozenset({"dynamic_shape", "unknown_rank", "unknown_type"})
"""Codes of what is wrong with shapes, whatever the operator."""


def coverage_of(manifest: Manifest) -> Coverage:
    """Count nodes and operations on either side.

    Args:
        manifest: The manifest of any PEF.

    Returns:
        The counts; of graphs for several sizes those of the one with the most nodes on the CPU, for a run executes
        one of them.
    """
    sections, fallbacks = counted_stages(manifest)
    rdu_nodes, cpu_nodes = _by_operator(sections), _by_operator(fallbacks)
    rdu_flops, cpu_flops = _operator_flops(sections), _operator_flops(fallbacks)
    operators = [
        OperatorCoverage(name, rdu_nodes[name], cpu_nodes[name], rdu_flops[name], cpu_flops[name])
        for name in rdu_nodes | cpu_nodes
    ]
    # What is left on the CPU first, then what does most of the work: rows that a table cuts off matter
    # least.
    operators.sort(
        key=lambda row: (
            -row.cpu_nodes,
            -(row.rdu_flops + row.cpu_flops),
            -row.rdu_nodes,
            row.operator,
        )
    )
    on_cpu = [node for fallback in fallbacks for node in fallback.reasons]
    return Coverage(
        rdu_nodes=rdu_nodes.total(),
        cpu_nodes=cpu_nodes.total(),
        rdu_flops=sum(section.flops for section in sections),
        cpu_flops=cpu_flops.total(),
        cpu_places=len(fallbacks),
        cpu_supported_nodes=sum(node.supported for node in on_cpu),
        cpu_load_nodes=sum(node.at_load for node in on_cpu),
        operators=tuple(operators),
    )


def counted_stages(manifest: Manifest) -> tuple[list[Section], list[Fallback]]:
    """Return the sections and fallbacks that are counted: all, or those of one of several sizes.

    Args:
        manifest: The manifest of any PEF.
    """
    if not any(graph.model_names for graph in manifest.graphs):
        return list(manifest.sections), list(manifest.fallbacks)
    stages = {
        graph.name: (
            [section for section in manifest.sections if section.graph == graph.name],
            [fallback for fallback in manifest.fallbacks if fallback.graph == graph.name],
        )
        for graph in manifest.graphs
    }
    moved = {
        graph.name: sum(copy.bytes for copy in graph.run_transfers) for graph in manifest.graphs
    }

    def rank(name: str) -> tuple[int, int]:
        # What no size may exceed is what the worst of them has; of equals, that of the headline's time.
        return sum(len(fallback.reasons) for fallback in stages[name][1]), moved[name]

    return stages[max(stages, key=rank)]


def _by_operator(stages: Iterable[Section | Fallback]) -> Counter[str]:
    """Return the number of nodes of each operator."""
    nodes: Counter[str] = Counter()
    for stage in stages:
        nodes.update(stage.operators)
    return nodes


def _operator_flops(stages: Iterable[Section | Fallback]) -> Counter[str]:
    """Return the floating-point operations of each operator."""
    flops: Counter[str] = Counter()
    for stage in stages:
        flops.update(stage.operator_flops)
    return flops


def fallback_reports(manifest: Manifest) -> tuple[FallbackReport, ...]:
    """Group CPU nodes by reason.

    Args:
        manifest: The manifest of any PEF.

    Returns:
        The reason with most nodes first; behind all others those nodes that the target could run. A node that several
        sizes have on the CPU for one reason is there once.
    """
    groups: dict[tuple[str, ...], list[FallbackNodeReport]] = {}
    several = any(graph.model_names for graph in manifest.graphs)
    seen: set[tuple[str, str]] = set()
    for fallback in manifest.fallbacks:
        for node in fallback.reasons:
            if several and (node.name, node.reason) in seen:
                continue
            seen.add((node.name, node.reason))
            operator = _operator(node)
            line = FallbackNodeReport(
                name=node.name,
                operator=operator,
                reason=node.reason,
                stage=fallback.id,
                location=node.location,
                supported=node.supported,
                at_load=node.at_load,
                modelled_seconds=node.seconds,
            )
            groups.setdefault(_kind(node, operator), []).append(line)
    reports = [
        FallbackReport(
            code=code,
            reasons=tuple(dict.fromkeys(node.reason for node in nodes)),
            hint=hint,
            operators=dict(Counter(node.operator for node in nodes).most_common()),
            nodes=tuple(nodes),
        )
        for (code, hint, _), nodes in groups.items()
    ]
    return tuple(
        sorted(
            reports,
            key=lambda report: (report.code == ReasonCode.CHEAPER, -len(report.nodes)),
        )
    )


def _kind(node: FallbackNode, operator: str) -> tuple[str, str, str]:
    """Return what nodes of one paragraph have in common: code, hint, and the operator where that matters."""
    if node.code == ReasonCode.CHEAPER:
        # One decision about neighbours: the hint is that of the node that they stand beside.
        return node.code, "", node.reason.removeprefix(operator)
    # What is wrong with a model's shapes, or with a type that has a near one, is wrong with many operators at once.
    shared = node.code in _SHAPE_CODES or (node.code == ReasonCode.DTYPE and node.hint)
    return node.code, node.hint, "" if shared else operator


def _operator(node: FallbackNode) -> str:
    """Return the operator with its domain, as in ``Stage.operators``."""
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type
