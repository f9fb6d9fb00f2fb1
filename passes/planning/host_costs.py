"""What nodes cost on the host's CPU, and which of them it computes once, when weights are loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.operators import facts
from samba_onnx.facts.records import Kind, Randomness
from samba_onnx.passes.planning.costs import node_dtype, node_flops, value_bytes
from samba_onnx.passes.planning.roles import Roles
from samba_onnx.pef.host_summary import HostSummary
from samba_onnx.program.dataflow import is_weight, reads
from samba_onnx.program.repetition import Repetition, repetition

_UNKNOWN_WORK: Final = frozenset({Kind.CONTROL, Kind.CONTAINER, Kind.TEXT})
"""Kinds of operators of which shapes do not say how much they do."""
_COPIES: Final = frozenset({Kind.MOVE, Kind.OVERWRITE, Kind.CREATE})


def host_seconds(node: ir.Node, host: HostSummary) -> float | None:
    """Return the modelled time of one execution of a node on the CPU.

    Args:
        node: A node with inferred types and shapes.
        host: The CPU's figures.

    Returns:
        Seconds; None where a size is not known, or what the operator does with it. A body of a constant number
        of steps takes the time of all of them.
    """
    repeated = repetition(node)
    if repeated is not None:
        return _body_seconds(repeated, host)
    row = facts(node.op_type, node.domain)
    if row is None or row.kind in _UNKNOWN_WORK:
        return None
    moved = 0
    for value in (*reads(node), *node.outputs):
        # A result without a name is one that nobody reads: onnxruntime does not write it.
        size = value_bytes(value) if value.name else 0
        if size is None:
            return None
        moved += size
    if row.kind is Kind.VIEW:
        moved = 0  # onnxruntime leaves the elements where they are
    return host.node_time(node_flops(node), node_dtype(node), moved, copies=row.kind in _COPIES)


def _body_seconds(repeated: Repetition, host: HostSummary) -> float | None:
    times = [host_seconds(inner, host) for inner in repeated.body]
    # One unknown time makes the whole unknown: a sum of the others would look like a cheap body.
    known = [time for time in times if time is not None]
    return repeated.steps * sum(known) if len(known) == len(times) else None


def known_at_load(nodes: Iterable[ir.Node], roles: Roles) -> frozenset[ir.Node]:
    """Return the nodes whose results nothing but weights decides.

    Args:
        nodes: Nodes in topological order; what others write counts as computed in every run.
        roles: What inputs and outputs of their graph are to the device.

    Returns:
        The nodes that read only initializers, residents that no run changes, and results of each other.
        Operators that draw random numbers, carry graphs or are not known are none of them, and no node
        whose results have no known type, for it must be stated what is kept.
    """
    known: set[ir.Value] = set()
    chosen: set[ir.Node] = set()
    for node in nodes:
        if _is_fixed(node) and all(_is_known(value, known, roles) for value in reads(node)):
            chosen.add(node)
            known.update(node.outputs)
    return frozenset(chosen)


def _is_fixed(node: ir.Node) -> bool:
    """Return whether a node with the same operands always has the same results."""
    row = facts(node.op_type, node.domain)
    if row is None or any(value.name and value.type is None for value in node.outputs):
        return False
    return row.random is Randomness.NEVER and row.kind not in _UNKNOWN_WORK


def _is_known(value: ir.Value, known: Collection[ir.Value], roles: Roles) -> bool:
    return value in known or is_weight(value) or roles.known_to_host(value)
