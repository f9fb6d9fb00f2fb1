"""Builds the program of a report from the nodes of its stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from samba_onnx.compiling.option import option_of
from samba_onnx.compiling.options import option_fields
from samba_onnx.facts.domains import qualified
from samba_onnx.passes.timing.node_work import node_flops, value_bytes
from samba_onnx.passes.timing.overlap import timeline
from samba_onnx.passes.timing.schedule_time import places
from samba_onnx.pef.exchanges import rdu_calls
from samba_onnx.pef.manifest import Manifest, Section
from samba_onnx.pef.stage_records import Fallback, Term
from samba_onnx.program.dataflow import dimensions, is_weight, name_of, reads
from samba_onnx.program.scopes import scope
from samba_onnx.program.source_location import source_location
from samba_onnx.program.value_types import type_text
from samba_onnx.report.program.program_records import (
    DeviceReport,
    EdgeReport,
    NodeReport,
    ProducerReport,
    ProgramReport,
    StageEdgeReport,
    TaskReport,
)

__all__ = ["device_report", "producer_report", "program_report"]


def producer_report(manifest: Manifest) -> ProducerReport:
    """Say what converted a model, and with which options.

    Args:
        manifest: A PEF's manifest.
    """
    known = option_fields()
    words = ["samba-port", "convert", manifest.source.name]
    for name, text in manifest.options.items():
        flags = option_of(known[name]).flags if name in known else ()
        # An option of Python alone has no flag, and one that is repeated has a word for each time.
        for flag in flags[:1]:
            values = text.split() if flag.is_repeatable else [text]
            for value in [""] if flag.kind is bool else values:
                words += [flag.spelled, value] if value else [flag.spelled]
    return ProducerReport(
        manifest.producer.name,
        manifest.producer.version,
        command=" ".join(words),
        digests={file.name: file.sha256 for file in manifest.source.files},
    )


def device_report(manifest: Manifest) -> DeviceReport:
    """Return the figures of the target.

    Args:
        manifest: A PEF's manifest.
    """
    target = manifest.target
    return DeviceReport(dict(target.peak_flops), target.link_bytes_per_second, target.tiers)


def program_report(manifest: Manifest) -> ProgramReport | None:
    """Return nodes and edges.

    Args:
        manifest: A PEF's manifest.

    Returns:
        The program; None where the nodes are not at hand, as of a manifest whose PEF is closed.

    Raises:
        PefError: A stage's file is damaged.
    """
    if manifest.stage_graphs is None:
        return None
    drafts = _Drafts()
    stages = manifest.stages()
    # Each stage once, though a schedule may call it several times.
    order = dict.fromkeys(call.stage for graph in manifest.graphs for call in graph.calls)
    for stage in (stages[number] for number in order):
        nodes = manifest.stage_graphs.nodes(stage.id)
        for node, report in zip(nodes, _nodes(nodes, stage, len(drafts.nodes)), strict=True):
            drafts.add(node, report, stage.graph)
    outputs = {(graph.name, name) for graph in manifest.graphs for name in graph.outputs}
    return replace(drafts.finished(outputs), tasks=tuple(_tasks(manifest)))


def _tasks(manifest: Manifest) -> Iterator[TaskReport]:
    """Yield the calls and copies of a run of each graph, in the order in which they are issued."""
    stages, regions = manifest.stages(), places(manifest.symbols)
    for graph in manifest.graphs:
        # In spatial mapping all sections work at once, on different mini-batches.
        if graph.spatial_batches:
            continue
        busy = rdu_calls(graph, stages, manifest.target)
        seconds = {call: each.seconds for call, each in busy.items()}
        called = {call.id: call.stage for call in graph.calls}
        for task in timeline(graph, stages, manifest.target, regions, seconds).tasks:
            yield TaskReport(
                graph=graph.name,
                resource=task.resource.value,
                call=task.call,
                stage=called.get(task.call, -1),
                symbol=task.symbol,
                begin_seconds=task.begin,
                end_seconds=task.end,
            )


def _nodes(nodes: Sequence[ir.Node], stage: Section | Fallback, first: int) -> Iterator[NodeReport]:
    """Yield the records of a stage's nodes."""
    section = stage if isinstance(stage, Section) else None
    seconds = [] if section is None else _shares(nodes, section)
    # In the order of the nodes. A file that somebody else wrote may say less.
    reasons = stage.reasons if isinstance(stage, Fallback) else ()
    for number, (node, why) in enumerate(itertools.zip_longest(nodes, reasons[: len(nodes)])):
        yield NodeReport(
            id=first + number,
            name=name_of(node),
            operator=qualified(node.domain, node.op_type),
            stage=stage.id,
            home="cpu" if section is None else "rdu",
            reason=why.reason if why else "",
            location=why.location if why else source_location(node),
            module=".".join(scope(node) or ()),
            flops=node_flops(node),
            weight_bytes=sum(value_bytes(each) or 0 for each in reads(node) if is_weight(each)),
            modelled_seconds=why.seconds if why else seconds[number] if seconds else 0.0,
        )


def _shares(nodes: Sequence[ir.Node], section: Section) -> list[float]:
    """Share the time of a section out among its nodes, in proportion to what takes it."""
    computes = section.time is None or section.time.bound is Term.COMPUTE
    parts = [node_flops(node) for node in nodes] if computes else []
    if not any(parts):
        parts = [_operand_bytes(node) for node in nodes]
    # Of nodes without any size, all are the same.
    total = sum(parts)
    return [section.seconds * (part / total if total else 1 / len(nodes)) for part in parts]


def _operand_bytes(node: ir.Node) -> int:
    # Weights, too: a product of one row waits for nothing else.
    values = [*node.inputs, *node.outputs]
    return sum(value_bytes(value) or 0 for value in values if value is not None)


@dataclass
class _Edge:
    """A value of which not all readers are known yet."""

    value: ir.Value
    source: int | None
    targets: list[int] = field(default_factory=list)


@dataclass
class _Drafts:
    """Nodes and values as they come."""

    nodes: list[NodeReport] = field(default_factory=list)
    edges: dict[tuple[str, str], _Edge] = field(default_factory=dict)
    """By graph and name: graphs have names of their own."""

    def add(self, node: ir.Node, report: NodeReport, graph: str) -> None:
        """Take a node behind those that it reads from."""
        self.nodes.append(report)
        for value in reads(node):
            if not is_weight(value):
                # Whatever nobody wrote before is an input.
                edge = self.edges.setdefault((graph, name_of(value)), _Edge(value, None))
                edge.targets.append(report.id)
        for value in node.outputs:
            if value.name:
                self.edges[graph, value.name] = _Edge(value, report.id)

    def finished(self, outputs: set[tuple[str, str]]) -> ProgramReport:
        """Return the records.

        Args:
            outputs: Graph and name of what the caller reads.
        """
        edges = []
        between: dict[tuple[int | None, int | None], list[int]] = {}
        for (graph, name), each in self.edges.items():
            source = None if each.source is None else self.nodes[each.source]
            readers = [self.nodes[target] for target in each.targets]
            size = value_bytes(each.value)
            ends: set[int | None] = {reader.stage for reader in readers}
            ends |= {None} if (graph, name) in outputs else set()
            origin = None if source is None else source.stage
            for end in sorted(ends - {origin}, key=lambda stage: -1 if stage is None else stage):
                between.setdefault((origin, end), []).append(size or 0)
            edges.append(
                EdgeReport(
                    value=name,
                    graph=graph,
                    type=type_text(each.value),
                    shape=dimensions(each.value),
                    bytes=size,
                    source=each.source,
                    targets=tuple(each.targets),
                    crosses=source is not None and any(r.home != source.home for r in readers),
                )
            )
        homes: dict[int | None, str] = {node.stage: node.home for node in self.nodes}
        return ProgramReport(
            nodes=tuple(self.nodes),
            edges=tuple(edges),
            stage_edges=tuple(
                StageEdgeReport(
                    source=origin,
                    target=end,
                    values=len(sizes),
                    bytes=sum(sizes),
                    crosses=None not in (origin, end) and homes[origin] != homes[end],
                )
                for (origin, end), sizes in between.items()
            ),
        )
