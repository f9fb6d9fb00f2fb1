"""A prepared graph in the form in which it runs: instructions that read and write numbered slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from samba_onnx.errors import ModelError
from samba_onnx.facts.domains import qualified
from samba_onnx.facts.operators import Kind, operators
from samba_onnx.importing.operators.computations import Counterpart, Node, find
from samba_onnx.passes.rewrites.evaluation import FOLDABLE
from samba_onnx.program.dataflow import each_node
from samba_onnx.safety.files import printable

__all__ = ["CONTROL", "Body", "ImportedGraph", "Instruction", "imported_graph"]

# The table of facts knows which operators have bodies; a list of its own would fall behind.
CONTROL = operators(kind=Kind.CONTROL)
"""Operators with a body."""


@dataclass(frozen=True, eq=False)
class Instruction:
    """A node with the slots that it reads and writes."""

    node: ir.Node
    call: Node
    entry: Counterpart | None
    """The operator's row of the table; None for operators with a body, and for those that can only be
    computed on what is known."""
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    bodies: Mapping[str, Body]


@dataclass(frozen=True, eq=False)
class Body:
    """The main graph, or the body of a node."""

    inputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ImportedGraph:
    """A model's graph, without its weights."""

    body: Body
    slots: Mapping[ir.Value, int]
    opset: int

    def __deepcopy__(self, memo: dict[int, Any]) -> ImportedGraph:
        """Return itself: a copied module shares the graph, which never changes."""
        return self


def imported_graph(model: ir.Model) -> ImportedGraph:
    """Return the plan of a prepared model.

    Args:
        model: Every operator is in the table or can be evaluated; nodes are in order.

    Raises:
        ModelError: An operator has no counterpart in torch.
    """
    # All missing operators at once, so that nobody exports a model again for each of them.
    missing = sorted(
        {
            f"{qualified(node.domain, node.op_type)} (node {printable(node.name)!r})"
            for node in each_node(model.graph)
            if not _is_supported(node)
        }
    )
    if missing:
        raise ModelError(
            f"no way to train through {', '.join(missing[:5])}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}: torch has no "
            "counterpart whose result has a fixed shape; leave this part out of the model"
        )
    builder = _Builder()
    body = builder.body(model.graph)
    return ImportedGraph(body, builder.slots, model.graph.opset_imports.get("", 0))


def _is_supported(node: ir.Node) -> bool:
    if find(node.domain, node.op_type) is not None:
        return True
    # Operators with a body are run by `control`, foldable ones by numpy where their operands are
    # known. Whether they are is seen only in a run, and refused there.
    return node.domain == "" and (node.op_type in CONTROL or node.op_type in FOLDABLE)


class _Builder:
    def __init__(self) -> None:
        self.slots: dict[ir.Value, int] = {}

    def slot(self, value: ir.Value) -> int:
        # Numbers instead of values: a run keeps its content in a dict by slot, and a copied module
        # shares the graph.
        return self.slots.setdefault(value, len(self.slots))

    def body(self, graph: ir.Graph) -> Body:
        inputs = tuple(self.slot(value) for value in graph.inputs)
        instructions = tuple(self.instruction(node) for node in graph)
        return Body(inputs, instructions, tuple(self.slot(value) for value in graph.outputs))

    def instruction(self, node: ir.Node) -> Instruction:
        attributes: dict[str, Any] = {}
        bodies: dict[str, Body] = {}
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.GRAPH:
                bodies[name] = self.body(attribute.as_graph())
            else:
                attributes[name] = attribute.value
        # An operator that is asked for its optional outputs takes a slower way in torch, as
        # attention that must return its scores.
        wanted = tuple(bool(value.uses()) or value.is_graph_output() for value in node.outputs)
        call = Node(
            name=node.name or node.op_type,
            operator=qualified(node.domain, node.op_type),
            attributes=attributes,
            wanted=wanted,
        )
        return Instruction(
            node=node,
            call=call,
            entry=find(node.domain, node.op_type),
            inputs=tuple(None if value is None else self.slot(value) for value in node.inputs),
            outputs=tuple(self.slot(value) for value in node.outputs),
            bodies=bodies,
        )
