"""Write nodes that the target refuses with operators that it has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import onnx_ir as ir

from samba_onnx.passes.rewrites.legalisation.forms import FormFinder, LegalForm
from samba_onnx.passes.rewrites.legalisation.rules import rule_for
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.rewrites.rewriting import WEIGHT, add_initializer, constant, replace_node
from samba_onnx.program.bounds import Bounds
from samba_onnx.program.dataflow import reads
from samba_onnx.program.legal_inputs import legal_inputs

MOST_ADDED = 1 << 14
"""Nodes that all legal forms together have at most: unrolled loops take time to compile."""


class Chooser(Protocol):
    """Decides which nodes are rewritten, by what a plan of the whole gains."""

    @property
    def finder(self) -> FormFinder:
        """Finds legal forms of nodes for the chooser's target."""

    def fallbacks(self, model: ir.Model) -> Collection[ir.Node]:
        """Return the nodes of the main graph that would run on the CPU."""

    def choose(self, model: ir.Model, forms: Mapping[ir.Node, LegalForm]) -> Collection[ir.Node]:
        """Return the nodes whose legal forms take their place."""

    def choose_webs(
        self,
        model: ir.Model,
        fallbacks: Sequence[Collection[ir.Node]],
        apply: Callable[[ir.Model, Collection[int]], None],
    ) -> Collection[int]:
        """Return the numbers of the webs of values that are narrowed.

        Args:
            model: The model that was asked about last.
            fallbacks: By web, its nodes that would run on the CPU.
            apply: Narrows the webs of some numbers in a copy of the model.
        """

    def refuse(self, node: ir.Node, rule: str, refusal: Refusal) -> None:
        """Record why a rule does not write a node."""


class LegalisePass(ReasonedPass):
    """Put legal forms in the place of nodes that would run on the CPU.

    1. A node of the main graph that the target refuses, and that a rule can write with operators of which the
       target runs every one, with the types and shapes that they have there.
    2. All legal forms together are of a size that is compiled in seconds; first come, first served.
    3. The chooser takes it: all nodes together, for two neighbours on the CPU may gain what none gains alone.
    """

    def __init__(self, chooser: Chooser | None) -> None:
        """Keep what decides; None leaves every node."""
        super().__init__()
        self.chooser = chooser

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Put legal forms in the place of the nodes that the chooser takes."""
        if self.chooser is None:
            return ir.passes.PassResult(model, modified=False)
        # Ranges hold for inputs with which the model runs at all: an index beyond its axis stops it
        # in any case.
        self.chooser.finder.bounds = Bounds(legal_inputs(model.graph), by_type=True)
        forms: dict[ir.Node, LegalForm] = {}
        room = MOST_ADDED
        for node in self.chooser.fallbacks(model):
            # Case 1.
            form = self.chooser.finder.find(node)
            rule = rule_for(node, self.chooser.finder.excluded)
            # Case 2.
            if isinstance(form, LegalForm) and len(form.graph) > room:
                form = Refusal(f"the graph would grow by more than {MOST_ADDED:,} nodes")
            if isinstance(form, Refusal):
                self.refusals.applied(node, form)
                if rule is not None:
                    self.chooser.refuse(node, rule.name, form)
            else:
                room -= len(form.graph)
                forms[node] = form
        # Case 3.
        chosen = self.chooser.choose(model, forms) if forms else ()
        for node, form in forms.items():
            if node in chosen:
                put(model, node, form)
            else:
                self.refusals.applied(node, Refusal("rewriting it would not make a run shorter"))
        return ir.passes.PassResult(model, modified=bool(chosen))


def put(model: ir.Model, node: ir.Node, form: LegalForm) -> None:
    """Put a copy of a legal form in the place of a node.

    Args:
        model: The model whose main graph has the node.
        node: The node.
        form: What was found for a node like it; it may serve for several.
    """
    copy = form.graph.clone()
    operands = reads(node)
    constants = [value for value in operands if constant(value) is not None]
    inputs = [value for value in operands if constant(value) is None]
    outputs = list(copy.outputs)
    # Values that are outputs of a graph cannot be replaced: onnx_ir refuses it.
    copy.outputs.clear()
    for old, new in zip(copy.inputs, inputs, strict=True):
        _swap(outputs, old, new)
    for name, value in list(copy.initializers.items()):
        if name in form.operands:
            _swap(outputs, value, constants[form.operands[name]])
        elif value.const_value is not None:
            weight = bool(value.meta.get(WEIGHT))
            # Names of initializers are unique in a model, while the same form may be put in several
            # times.
            free = f"{node.name or node.op_type}_{name}"
            _swap(outputs, value, add_initializer(model, free, value.const_value, weight=weight))
    nodes = list(copy)
    copy.remove(nodes)
    own = {value for inner in nodes for value in inner.outputs}
    for position, value in enumerate(outputs):
        # An operand or initializer cannot take the place of an output, and one value cannot be two:
        # a node of its own computes each.
        if value not in own or value in outputs[:position]:
            identity = ir.node("Identity", [value])
            nodes.append(identity)
            outputs[position] = identity.outputs[0]
    # The names of the copy would be in the model twice, where a form serves for several nodes.
    for inner in nodes:
        inner.name = None
        for value in inner.outputs:
            value.name = None
    remaining = iter(outputs)
    replace_node(
        node,
        nodes,
        [
            next(remaining) if value.uses() or value.is_graph_output() else None
            for value in node.outputs
        ],
    )


def _swap(outputs: list[ir.Value], old: ir.Value, new: ir.Value) -> None:
    """Let all readers and outputs that have a value of a copy have a value of the model instead."""
    old.replace_all_uses_with(new)
    outputs[:] = [new if value is old else value for value in outputs]
