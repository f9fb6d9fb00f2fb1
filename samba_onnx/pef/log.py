"""The text beside a PEF: what was compiled, for people and for ``diff``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from samba_onnx.pef.manifest import Fallback, Graph, Manifest, Section
from samba_onnx.safety.files import atomic_output, printable

__all__ = ["render_log", "write_log"]


def render_log(manifest: Manifest) -> str:
    """Return sections, fallbacks and schedule as text; the same manifest gives the same text."""
    return "\n".join(_lines(manifest)) + "\n"


def write_log(pef: str | os.PathLike[str], manifest: Manifest) -> Path:
    """Write ``NAME.pef.log`` beside a PEF.

    Args:
        pef: Path of the PEF.
        manifest: What it holds.

    Returns:
        Path of the text.

    Raises:
        OutputError: It cannot be written.
    """
    path = Path(f"{os.fspath(pef)}.log")
    # Atomic like the PEF itself: whoever watches the folder never sees half a text.
    with atomic_output(path) as file:
        file.write(render_log(manifest).encode())
    return path


def _lines(manifest: Manifest) -> Iterator[str]:
    source, producer = manifest.source, manifest.producer
    yield f"model     {printable(source.name)}, {source.nodes} nodes, opset {source.opset}"
    yield f"target    {printable(manifest.target.name)}, level {printable(manifest.level)}"
    yield f"producer  {printable(producer.name)} {printable(producer.version)}"
    stages = manifest.stages()
    for graph in manifest.graphs:
        own = {number: stage for number, stage in stages.items() if stage.graph == graph.name}
        yield ""
        batches = f"  spatial, {graph.spatial_batches} mini-batches per run"
        yield f"graph {printable(graph.name)}{batches if graph.spatial_batches else ''}"
        for _, stage in sorted(own.items()):
            yield from _stage_lines(stage)
        yield "  schedule"
        yield from _call_lines(graph, own)
        yield f"  transfers per run   {_transfers(graph)}"


def _stage_lines(stage: Section | Fallback) -> Iterator[str]:
    what = "fallback" if isinstance(stage, Fallback) else "section"
    name = printable(stage.name)
    yield f"  {what} {stage.id}  type {stage.type.value}  name {name}  {stage.nodes} nodes"
    # Sorted, so that the text depends on the manifest alone, and two of them can be compared by
    # lines.
    operators = (f"{count} {printable(op)}" for op, count in sorted(stage.operators.items()))
    yield "    operators  " + ", ".join(operators)
    if isinstance(stage, Section):
        yield f"    planned    {stage.flops} flops, {stage.bytes} bytes, {stage.seconds:.3e} s"
        if stage.rule:
            yield f"    rule       {printable(stage.rule)}"
        for body in stage.repeated:
            inner = (f"{count} {printable(op)}" for op, count in sorted(body.operators.items()))
            yield f"    repeated   {printable(body.node)}, {body.steps} steps: {', '.join(inner)}"
        return
    for node in stage.reasons:
        place = f"  [{printable(node.location)}]" if node.location else ""
        yield f"    node {printable(node.name)}: {printable(node.reason, 300)}{place}"


def _call_lines(graph: Graph, stages: dict[int, Section | Fallback]) -> Iterator[str]:
    for call in graph.calls:
        stage = stages[call.stage]
        home = "CPU" if isinstance(stage, Fallback) else "RDU"
        yield f"    call {call.id}  {home}  stage {stage.id}  {printable(stage.name)}"


def _transfers(graph: Graph) -> str:
    moved = sum(transfer.bytes for transfer in graph.run_transfers)
    return f"{len(graph.run_transfers)}, {moved} bytes; {len(graph.boundaries)} boundaries"
