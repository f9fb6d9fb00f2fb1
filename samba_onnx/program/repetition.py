"""Bodies that a section executes again and again: what a Scan of static length is on a device that loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.program.dataflow import dimensions

__all__ = ["Repetition", "repetition", "step_nodes", "steps_of"]


@dataclass(frozen=True)
class Repetition:
    """A body with the number of times that one execution of its node repeats it."""

    body: ir.Graph
    """Its inputs are states, then a slice of each value that is read step by step; its outputs are the next
    states, then what each step adds to a value of all steps."""
    steps: int
    """Every step waits for the states of the one before."""
    states: int
    """Values that a step hands to the next one."""


def repetition(node: ir.Node) -> Repetition | None:
    """Return what a node repeats.

    Args:
        node: Any node, with inferred shapes.

    Returns:
        The body of a Scan that reads values of one static length; None for another node, for a Scan of operator
        set 8, which has batches of its own, and where the length is not known or is 0.
    """
    if node.op_type != "Scan" or node.domain:
        return None
    count, body = _integer(node, "num_scan_inputs"), node.attributes.get("body")
    if body is None or body.type is not ir.AttributeType.GRAPH or not 0 < count <= len(node.inputs):
        return None
    graph, states = body.as_graph(), len(node.inputs) - count
    if len(graph.inputs) != len(node.inputs) or len(graph.outputs) != len(node.outputs):
        return None
    stated = node.attributes.get("scan_input_axes")
    axes = [0] * count if stated is None else list(stated.as_ints())
    lengths = {_length(value, axis) for value, axis in zip(node.inputs[states:], axes, strict=True)}
    steps = lengths.pop()
    # Values of different lengths contradict each other, and shape inference did not see it.
    return Repetition(graph, steps, states) if steps and not lengths else None


def steps_of(node: ir.Node) -> int:
    """Return how often one execution of a node executes its body; 1 for a node that repeats nothing."""
    repeated = repetition(node)
    return 1 if repeated is None else repeated.steps


def step_nodes(nodes: Iterable[ir.Node]) -> list[ir.Node]:
    """Return nodes with the body, once, in the place of each node that repeats one."""
    flat: list[ir.Node] = []
    for node in nodes:
        repeated = repetition(node)
        flat.extend([node] if repeated is None else step_nodes(repeated.body))
    return flat


def _integer(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return 0 if attribute is None or attribute.is_ref() else attribute.as_int()


def _length(value: ir.Value | None, axis: int) -> int | None:
    """Return the size of an axis; None where it is not known."""
    shape = None if value is None else dimensions(value)
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    size = shape[axis]
    return size if isinstance(size, int) else None
