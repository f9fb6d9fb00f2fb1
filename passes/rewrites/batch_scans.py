"""Compute a Scan that carries nothing from step to step for all steps at once."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from samba_onnx.facts.operators import Kind, operators
from samba_onnx.passes.rewrites.loop_bodies import each_integer, source
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import (
    add_integers,
    each_graph,
    inherit,
    integer_attribute,
    integers,
    is_operator,
    substitute,
)

_ELEMENTWISE: Final = operators(kind=Kind.ELEMENTWISE)
_REDUCING: Final = frozenset(
    name for name in operators(kind=Kind.REDUCE) if name.startswith("Reduce")
)
"""Reductions with axes; pools and losses reduce by rules of their own."""


class BatchScansPass(ReasonedPass):
    """Write a Scan whose steps are independent as operators with one more dimension in front.

    skl2onnx computes the distances of all pairs of points by such a Scan.

    1. Every state leaves a step as it enters it.
    2. The body has elementwise operators, reductions over constant axes and Identity, on values of
       known ranks.
    3. Inputs and outputs are read and written forwards along their first axis; each output depends on an
       input that is read step by step.
    4. Where a value of a step has fewer dimensions than another operand, an Unsqueeze puts those that it lacks
       behind the new one.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Batch every Scan that can be."""
        modified = False
        for graph in list(each_graph(model)):
            for node in list(graph):
                if is_operator(node, "Scan"):
                    modified |= self.refusals.applied(node, _batch(model, node))
        return ir.passes.PassResult(model, modified=modified)


def _batch(model: ir.Model, node: ir.Node) -> Refusal | None:
    body, count = node.attributes["body"].as_graph(), integer_attribute(node, "num_scan_inputs", 0)
    states = len(node.inputs) - count
    # Before version 9 a Scan has batches of its own, and its first operand is their lengths.
    if len(node.inputs) != len(body.inputs) or body.initializers:
        return Refusal("it is one of operator set 8, or its body has initializers")
    # Case 1.
    for entering, leaving in zip(body.inputs[:states], body.outputs[:states], strict=True):
        # A body may hand a state through Identity nodes.
        if source(leaving) is not entering:
            return Refusal("a step computes what the next one reads")
    # Case 3.
    written = len(node.outputs) - states
    names = {"scan_input_axes": count, "scan_input_directions": count}
    names |= {"scan_output_axes": written, "scan_output_directions": written}
    # All of these are 0 where they are left out or the first axis is read and written forwards.
    if any(any(each_integer(node, name, number)) for name, number in names.items()):
        return Refusal("it reads or writes backwards, or along another axis than the first")
    batch = _Batch(model, node, body, states)
    refusal = batch.compute()
    if refusal is None:
        batch.replace()
    return refusal


class _Batch:
    """The values of all steps of a Scan while they are written."""

    def __init__(self, model: ir.Model, node: ir.Node, body: ir.Graph, states: int) -> None:
        self._model = model
        self._node = node
        self._body = body
        self._states = states
        self._nodes: list[ir.Node] = []
        self._values: dict[ir.Value, ir.Value | None] = dict(
            zip(body.inputs, node.inputs, strict=True)
        )
        self._ranks: dict[ir.Value, int] = {}
        """How many dimensions a value of the body has in a step."""
        self._stacked: set[ir.Value] = set()
        """Values of the body that differ from step to step."""
        for inside, outside in zip(body.inputs[states:], node.inputs[states:], strict=True):
            if outside is not None and outside.shape is not None:
                self._stacked.add(inside)
                self._ranks[inside] = len(outside.shape) - 1

    def compute(self) -> Refusal | None:
        """Write the body for all steps; say why that cannot be."""
        # A value without a known rank may need an Unsqueeze of unknown axes (case 4).
        if len(self._stacked) < len(self._body.inputs) - self._states:
            return Refusal("the rank of what it reads is not known")
        for node in self._body:
            refusal = self._write(node)
            if refusal is not None:
                return refusal
        # An output that no step changes would need copies of it, one for each step, which nobody
        # writes here.
        if any(source(value) not in self._stacked for value in self._body.outputs[self._states :]):
            return Refusal("what it writes is the same in every step")
        return None

    def replace(self) -> None:
        """Put what was written in the place of the Scan."""
        graph = self._node.graph
        assert graph is not None, "the pass walks the nodes of graphs"
        inherit(self._nodes, self._node)
        graph.insert_before(self._node, self._nodes)
        # States come out as they went in: no step changes them (case 1).
        results = [
            *self._node.inputs[: self._states],
            *(self._values[value] for value in self._body.outputs[self._states :]),
        ]
        for output, value in zip(list(self._node.outputs), results, strict=True):
            if value is not None:
                substitute(self._node, output, value)
        graph.remove(self._node, safe=True)

    def _write(self, node: ir.Node) -> Refusal | None:
        # Case 2.
        if is_operator(node, "Identity"):
            return self._identity(node)
        if is_operator(node, *_REDUCING):
            return self._reduce(node)
        if node.domain == "" and node.op_type in _ELEMENTWISE and len(node.outputs) == 1:
            return self._elementwise(node)
        return Refusal(f"{node.op_type} of its body is not computed for all steps at once")

    def _identity(self, node: ir.Node) -> Refusal | None:
        rank = self._rank(node.inputs[0])
        self._values[node.outputs[0]] = self._value(node.inputs[0])
        if node.inputs[0] in self._stacked:
            self._stacked.add(node.outputs[0])
        if rank is not None:
            self._ranks[node.outputs[0]] = rank
        return None

    def _elementwise(self, node: ir.Node) -> Refusal | None:
        ranks = [self._rank(value) for value in node.inputs if value is not None]
        if None in ranks:
            return Refusal("the rank of a value of its body is not known")
        rank = max((number for number in ranks if number is not None), default=0)
        operands = [self._aligned(value, rank) for value in node.inputs]
        if any(value in self._stacked for value in node.inputs):
            self._stacked.add(node.outputs[0])
        self._ranks[node.outputs[0]] = rank
        self._copy(node, operands, list(node.attributes.values()))
        return None

    def _reduce(self, node: ir.Node) -> Refusal | None:
        number, rank = node.inputs[0], self._rank(node.inputs[0])
        axes = integers(node.inputs[1]) if len(node.inputs) > 1 else None
        if number is None or rank is None or not axes:
            return Refusal("a reduction of its body has no constant axes")
        keeps = integer_attribute(node, "keepdims", 1)
        operands = [self._value(value) for value in node.inputs]
        # An axis that is stated twice, from either end, is one.
        places = {axis % rank for axis in axes} if rank else set()
        self._ranks[node.outputs[0]] = rank if keeps else rank - len(places)
        if number in self._stacked:
            self._stacked.add(node.outputs[0])
            # The steps are the first axis now, so that axes from the front move by one, and those
            # from the end do not.
            behind = [axis + 1 if axis >= 0 else axis for axis in axes]
            operands[1] = add_integers(self._model, f"{node.outputs[0].name}_axes", behind)
        self._copy(node, operands, list(node.attributes.values()))
        return None

    def _rank(self, value: ir.Value | None) -> int | None:
        if value is None:
            return None
        if value in self._ranks:
            return self._ranks[value]
        outside = self._value(value)
        return None if outside is None or outside.shape is None else len(outside.shape)

    def _value(self, value: ir.Value | None) -> ir.Value | None:
        return None if value is None else self._values.get(value, value)

    def _aligned(self, value: ir.Value | None, rank: int) -> ir.Value | None:
        """Return an operand of all steps that broadcasts to others of this rank (case 4)."""
        # A value with the most dimensions is aligned as it is; one that is the same in all steps
        # broadcasts over them.
        operand = self._value(value)
        if value is None or value not in self._stacked or self._ranks[value] == rank:
            return operand
        missing = rank - self._ranks[value]
        name = f"{value.name}_axes"
        axes = add_integers(self._model, name, list(range(1, missing + 1)))
        return self._append(ir.node("Unsqueeze", [operand, axes]), value)

    def _copy(
        self, node: ir.Node, operands: list[ir.Value | None], attributes: list[ir.Attr]
    ) -> None:
        copy = ir.Node(node.domain, node.op_type, operands, attributes, version=node.version)
        copy.metadata_props.update(node.metadata_props)
        self._values[node.outputs[0]] = self._append(copy, node.outputs[0])

    def _append(self, node: ir.Node, origin: ir.Value) -> ir.Value:
        self._nodes.append(node)
        output = node.outputs[0]
        output.name, output.type = f"{origin.name}_{len(self._nodes)}", origin.type
        return output
