"""Whether what is traced is what a PEF was compiled from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from samba_onnx.compiling.torch.built_in import built_in, changed
from samba_onnx.compiling.torch.session_records import GraphRecord, stored_fingerprint
from samba_onnx.errors import GraphMismatchError
from samba_onnx.pef import Pef
from samba_onnx.program.fingerprint import difference
from samba_onnx.sessions.traced import TracedGraph
from samba_onnx.version import __version__


def changed_settings(record: GraphRecord, module: Any, inputs: Any) -> str:
    """Say what of a module's settings is not as it was compiled; empty for an ONNX model.

    Args:
        record: What the PEF says of the module.
        module: The module, or the ONNX model.
        inputs: What it is traced with.
    """
    if not isinstance(module, nn.Module):
        return ""
    return changed(record.built_in, built_in(module, inputs))


def check_same(
    record: GraphRecord, traced: TracedGraph, source: str, pef: Pef, settings: str
) -> None:
    """Refuse a PEF that was compiled from another model.

    Args:
        record: What the PEF says of the model that it was compiled from.
        traced: What was traced now.
        source: What messages call the model.
        pef: The PEF.
        settings: What of the model's settings is not as it was compiled; empty if nothing is.

    Raises:
        GraphMismatchError: It was.
    """
    clause = difference(stored_fingerprint(record), traced.fingerprint)
    if clause and settings:
        raise GraphMismatchError(
            f"{pef.path} was compiled from another {source}: {settings}. The first difference: {clause}"
        )
    if clause:
        made_by = pef.manifest.producer.version
        other = "" if made_by == __version__ else f" (samba-onnx {made_by} wrote it)"
        raise GraphMismatchError(
            f"{pef.path}{other} was compiled from another model than this {source}: {clause}. "
            "Give the PEF of this model, or compile it again"
        )


def trace_of(
    name: str, record: GraphRecord, traces: Sequence[TracedGraph], path: str
) -> TracedGraph:
    """Return the trace that a graph of a PEF was compiled from.

    Args:
        name: Name of the graph.
        record: What the PEF says of what it was compiled from.
        traces: All traces but those of other graphs of the PEF.
        path: Path of the PEF.

    Raises:
        GraphMismatchError: It is none of them.
    """
    compiled = stored_fingerprint(record)
    clauses = []
    for traced in traces:
        clause = difference(compiled, traced.fingerprint)
        if not clause:
            return traced
        clauses.append(clause)
    why = f": {clauses[0]}" if clauses else ""
    raise GraphMismatchError(
        f"graph {name!r} of {path} is none of those that were traced{why}. Trace all graphs with "
        "samba.utils.trace_multigraph, as when they were compiled"
    )
