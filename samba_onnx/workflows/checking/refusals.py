"""Which operator it is that an engine refuses, and which line of the user's model it comes from."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import TypeAlias

import onnx_ir as ir

from samba_onnx.errors import EngineRefusalError
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part
from samba_onnx.program.source_location import source_location
from samba_onnx.safety.files import printable

Complaint: TypeAlias = Callable[[ir.Model], str]
"""Lets an engine prepare a model, and maybe run it; returns what it complains of, or nothing."""


def refuse_if_refused(part: Part, complaint: Complaint) -> None:
    """Raise an error that names the operator if an engine complains of a part of a program.

    Args:
        part: Its model stays as it is.
        complaint: Asks the engine.

    Raises:
        EngineRefusalError: The engine complains.
    """
    reason = complaint(part.model)
    if reason:
        raise refusal(part.model, part.type, reason, complaint)


def refusal(
    model: ir.Model, section_type: SectionType, reason: str, complaint: Complaint
) -> EngineRefusalError:
    """Return the error for a model that an engine refused.

    Args:
        model: All of it is refused.
        section_type: Of the sections that it would become.
        reason: The engine's own words on the whole model.
        complaint: Asks the engine again, on the first nodes of the model.
    """
    node, reason = _culprit(model, reason, complaint)
    if node is None:
        operator, location, where = "", "", "no single operator of it"
    else:
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        location = source_location(node)
        where = f"operator {printable(operator)}"
        where += f" at {location}" if location else f", node {printable(node.name or '')!r}"
    return EngineRefusalError(
        f"the {section_type.value} part of what was exported cannot be run: the engine refuses "
        f"{where}; please report this, and write that operator in another way. The engine's own "
        f"words: {reason}",
        operator=operator,
        location=location,
        section_type=section_type.value,
        reason=reason,
    )


def _culprit(model: ir.Model, reason: str, complaint: Complaint) -> tuple[ir.Node | None, str]:
    """Return the first node with which the engine refuses the model, and what it says then.

    Bisection asks nothing of an engine's messages: those of onnxruntime name a node in some cases
    only, and one that its optimizer made in others.
    """
    nodes = list(model.graph)
    length = bisect.bisect_left(
        range(len(nodes) + 1),
        True,
        lo=1,
        key=lambda count: bool(complaint(_beginning(model, count))),
    )
    if length > len(nodes):  # it may be the outputs that the engine does not like
        return None, reason
    return nodes[length - 1], complaint(_beginning(model, length))


def _beginning(model: ir.Model, count: int) -> ir.Model:
    """Return a copy of a model's first nodes, with all that they do not read themselves as outputs.

    The types of inner values are declared on them, as every exporter of ours does.
    """
    nodes = list(model.graph)[:count]
    kept = set(nodes)
    outputs = [
        value
        for node in nodes
        for value in node.outputs
        if value.name and not any(use.node in kept for use in value.uses())
    ]
    graph = ir.convenience.extract(model.graph, inputs=model.graph.inputs, outputs=outputs)
    return ir.Model(graph, ir_version=model.ir_version, functions=list(model.functions.values()))
