"""Where each node of a graph runs: on the RDU, or on the CPU with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from samba_onnx.facts.domains import ONNX_DOMAINS, qualified
from samba_onnx.passes.planning.sectioning import sram_bytes
from samba_onnx.passes.rewrites.refusals import UNEXPANDED
from samba_onnx.passes.targets import Support, Target
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from samba_onnx.passes.timing.matrix_products import units_of
from samba_onnx.program.repetition import repetition


@dataclass(frozen=True)
class Placement:
    """The home of every node of a model's main graph."""

    reasons: Mapping[ir.Node, Reason]
    """Why a node runs on the CPU; a node that is missing here runs on the RDU."""
    supports: Mapping[ir.Node, Support]
    """What the target says of every node, in the order of the graph."""

    def on_rdu(self, node: ir.Node) -> bool:
        """Return whether a node runs on the RDU."""
        return node not in self.reasons


def place(model: ir.Model, target: Target) -> Placement:
    """Give every node of the main graph a home.

    A node that carries subgraphs is placed as a whole, so nodes inside it have no entry.

    Args:
        model: A model with types and shapes inferred.
        target: The target to run on.

    Returns:
        The placement. The reason of a node behind an unknown type or rank names the node where it
        began to be unknown.
    """
    supports = {node: supported(node, target) for node in model.graph}
    # A node far behind the unknown value cannot be mended where it stands: the reason names the origin.
    supports |= _blamed(model.graph, supports)
    supports |= {
        node: replace(support, reason=_explained(support.reason, node, target))
        for node, support in supports.items()
        if support.reason is not None and UNEXPANDED in node.meta
    }
    reasons = {
        node: support.reason for node, support in supports.items() if support.reason is not None
    }
    return Placement(reasons=reasons, supports=supports)


def supported(node: ir.Node, target: Target) -> Support:
    """Return what a target says of a node, and whether a body that it repeats fits on the chip.

    Args:
        node: A node with inferred types and shapes.
        target: The target to run on.

    Returns:
        The support. A body that is larger than the chip would have to be loaded piece by piece in every step.
    """
    support = target.support(node)
    if support.reason is not None or repetition(node) is None:
        return support
    timing, capacity = target.summary.timing, target.summary.tier("sram").bytes
    units, needed = units_of(node, target.summary), sram_bytes((node,), target)
    # A section may be cut where it is too large, a body may not: each step needs all of it.
    if timing is not None and units > timing.compute_units:
        excess = f"{units:,} compute units at once, and {target.name} has {timing.compute_units:,}"
    elif needed > capacity:
        excess = f"{needed:,} bytes on the chip at once, and {target.name} has {capacity:,}"
    else:
        return support
    return Support(Reason(ReasonCode.LIMIT, f"{node.op_type}: its body needs {excess}"))


@dataclass(frozen=True)
class Supporting:
    """A target as legalisation asks it: what it supports is what is placed on the RDU."""

    target: Target

    def support(self, node: ir.Node) -> Support:
        """Decide whether a node can run on the RDU."""
        return supported(node, self.target)


def _explained(reason: Reason, node: ir.Node, target: Target) -> Reason:
    """Return the reason of a node of a foreign operator with why it is not expanded."""
    why = f"it is not expanded: {node.meta[UNEXPANDED]}"
    # A reason of another kind stays as it is, with this behind it. That of the domain would say twice that
    # nobody knows the operator.
    if reason.code is not ReasonCode.DOMAIN:
        return replace(reason, message=f"{reason.message}; {why}")
    name = qualified(node.domain, node.op_type)
    return replace(
        reason, message=f"{name} is no operator of the table of {target.name}, and {why}"
    )


_UNKNOWN = frozenset({ReasonCode.UNKNOWN_TYPE, ReasonCode.UNKNOWN_RANK})


def _blamed(graph: ir.Graph, supports: Mapping[ir.Node, Support]) -> dict[ir.Node, Support]:
    """Return the supports of nodes behind something unknown, with reasons that name its origin.

    Args:
        graph: A graph in topological order.
        supports: What the target says of its nodes.
    """
    origins: dict[ir.Value, ir.Value] = {}
    changed: dict[ir.Node, Support] = {}
    for node in graph:
        unknown = [v for v in (*node.inputs, *node.outputs) if v is not None and _is_unknown(v)]
        if not unknown:
            continue
        # An operand comes before the node's own results, which are unknown because of it.
        origin = origins.get(unknown[0], unknown[0])
        origins.update({value: origin for value in unknown if value.producer() is node})
        support = supports[node]
        if support.reason is not None and support.reason.code in _UNKNOWN:
            changed[node] = replace(support, reason=_blaming(support.reason, node, origin))
    return changed


def _is_unknown(value: ir.Value) -> bool:
    """Return whether type or rank of a tensor are not known; of one that a node leaves out they need not be."""
    # A constant knows its type, and a result without a name and readers is one that the node leaves out.
    if value.const_value is not None or not (value.name or value.uses()):
        return False
    if value.type is None or value.dtype is ir.DataType.UNDEFINED:
        return True
    return isinstance(value.type, ir.TensorType) and value.shape is None


def _blaming(reason: Reason, node: ir.Node, origin: ir.Value) -> Reason:
    """Return a reason that says where what is unknown comes from, and what to do about it."""
    producer = origin.producer()
    message = reason.message
    if producer is None:
        message += f"; input {origin.name!r} of the model states none"
    elif producer is not node:
        operator = qualified(producer.domain, producer.op_type)
        message += f"; node {producer.name!r} ({operator}) is the first without one"
    if producer is not None and producer.domain in ONNX_DOMAINS:
        return replace(reason, message=message)  # what onnx infers is forgotten where it is stated
    hint = f"state the type and shape of {origin.name!r} in the model, as in its value_info"
    return replace(reason, message=message, hint=hint)
