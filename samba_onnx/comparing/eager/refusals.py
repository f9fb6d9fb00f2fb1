"""Which operator it is that an engine refuses, and which line of the user's model it comes from."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import TypeAlias

import onnx_ir as ir

from samba_onnx.errors import EngineRefusalError, ExecutionError
from samba_onnx.facts.domains import qualified
from samba_onnx.program.kinds import SectionType
from samba_onnx.program.program import Part
from samba_onnx.program.source_location import source_location
from samba_onnx.runtime.engine.evaluation import refuse_unless_runnable
from samba_onnx.safety.files import printable

Trial: TypeAlias = Callable[[ir.Model], None]
"""Lets an engine prepare a model, and maybe run it; raises ``ExecutionError`` if it cannot."""


def refuse_unless_prepared(part: Part) -> None:
    """Let the engine that stands for the device prepare a part of a program; nothing is computed.

    Args:
        part: Its model stays as it is.

    Raises:
        EngineRefusalError: The engine refuses an operator; the error names it.
    """
    try:
        prepare(part.model)
    except ExecutionError as error:
        raise refusal(part, error, prepare) from error


def prepare(model: ir.Model) -> None:
    """Let the engine that stands for the device prepare a model; nothing is computed.

    Args:
        model: Stays as it is.

    Raises:
        ExecutionError: The engine refuses an operator.
    """
    refuse_unless_runnable(ir.to_proto(model))


def refusal(part: Part, error: ExecutionError, trial: Trial) -> EngineRefusalError:
    """Return the error for a part of a program that an engine refused as a whole.

    Args:
        part: The part.
        error: What the engine raised.
        trial: What raised it, to be tried again on the first nodes of the part.
    """
    node, error = _culprit(part.model, error, trial)
    what = f"the {part.type.value} part of what was exported"
    return refusal_of(node, error, what, part.type)


def refusal_of(
    node: ir.Node | None, error: ExecutionError, what: str, section_type: SectionType
) -> EngineRefusalError:
    """Return the error about a node that an engine refuses.

    Args:
        node: The node; None where it cannot be told.
        error: What the engine raised.
        what: What cannot be run because of it, as the sentence begins.
        section_type: What the node is a part of.
    """
    reason = error.reason or str(error)
    operator = location = None
    where = "no single operator of it"
    if node is not None:
        operator = qualified(node.domain, node.op_type)
        location = source_location(node) or None
        where = f"operator {printable(operator)}"
        where += f" at {location}" if location else f", node {printable(node.name or '')!r}"
    return EngineRefusalError(
        f"{what} cannot be run: the engine refuses {where}; write that operator in another way. The "
        f"engine's own words: {reason}",
        node=None if node is None else node.name,
        operator=operator,
        location=location,
        section_type=section_type.value,
        reason=reason,
    )


def _culprit(
    model: ir.Model, error: ExecutionError, trial: Trial
) -> tuple[ir.Node | None, ExecutionError]:
    """Return the first node with which the engine refuses the model, and what it says then.

    Bisection asks nothing of an engine's messages: those of onnxruntime name a node in some cases
    only, and one that its optimizer made in others.
    """
    nodes = list(model.graph)
    complaints: dict[int, ExecutionError] = {}

    def refused(count: int) -> bool:
        try:
            trial(_beginning(model, count))
        except ExecutionError as complaint:
            complaints[count] = complaint
        return count in complaints

    length = bisect.bisect_left(range(len(nodes) + 1), True, lo=1, key=refused)
    if length > len(nodes):  # it may be the outputs that the engine does not like
        return None, error
    return nodes[length - 1], complaints[length]


def _beginning(model: ir.Model, count: int) -> ir.Model:
    """Return a copy of a model's first nodes, with all that they do not read themselves as outputs.

    The types of inner values are declared on them, as every exporter of ours does.
    """
    nodes = list(model.graph)[:count]
    members = set(nodes)
    outputs = [
        value
        for node in nodes
        for value in node.outputs
        if value.name and not any(use.node in members for use in value.uses())
    ]
    graph = ir.convenience.extract(model.graph, inputs=model.graph.inputs, outputs=outputs)
    return ir.Model(graph, ir_version=model.ir_version, functions=list(model.functions.values()))
