"""Cuts the values of one model, node by node, and inserts what RDUs must exchange.

Every value has a sharding. A rule per operator says which shardings a node can compute with, and what
they make of its results; operands that lie otherwise are exchanged. Inputs and initializers have none
until the first node asks: each RDU is then given just the part that it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ALL_GATHER, ALL_REDUCE, SAMBA_DOMAIN
from samba_onnx.facts.names import GRADIENT
from samba_onnx.facts.operator_facts import Kind
from samba_onnx.facts.operators import facts
from samba_onnx.passes.rewrites.rewriting import inherit
from samba_onnx.passes.sharding.collectives import CONTENT, RDUS
from samba_onnx.passes.sharding.cut_values import CutValues, is_float
from samba_onnx.passes.sharding.cuts import Cut
from samba_onnx.passes.sharding.layouts import (
    WHOLE,
    Shape,
    Sharding,
    even,
    indices,
)
from samba_onnx.pef.sharding import AxisSplit
from samba_onnx.program.dataflow import each_node, implicit_inputs, name_of, subgraphs
from samba_onnx.program.kinds import SymbolKind

__all__ = ["Rule", "Sharder"]

_PENDING: Final = frozenset({"Cast", "Identity", "Transpose"})
"""Operators behind a weight that do not decide how it is cut: what reads their result does."""


class Sharder(CutValues):
    """The values of one model while it is cut."""

    def __init__(
        self, model: ir.Model, cut: Cut, weights: Mapping[str, str], region: Callable[[str], str]
    ) -> None:
        """Take a model.

        Args:
            model: It is changed in place.
            cut: What is known of other models of the program; added to.
            weights: Inputs that are weights, by name.
            region: Returns the region of an input or output by its name.
        """
        super().__init__(model.graph, cut)
        self.rdus = cut.rdus
        self._weights = weights
        self._region = region
        self._pending: dict[ir.Value, tuple[ir.Node, int]] = {}
        """Forms of inputs and weights that lie nowhere yet, with the node and its operand that is one."""
        self._conversions: dict[tuple[ir.Value, Sharding], ir.Value] = {}
        self._place: ir.Node | None = None
        self._last: ir.Node | None = None
        for value in self.graph.inputs:
            # A region lies in one way for all graphs: an earlier one has decided.
            known = cut.regions.get(region(name_of(value)))
            if known is not None:
                self._decide(value, known)

    def is_open(self, value: ir.Value) -> bool:
        """Return whether nothing has decided how an input, initializer or weight lies."""
        if value in self._pending:
            return True
        return value.producer() is None and value not in self._shardings

    def is_open_weight(self, value: ir.Value) -> bool:
        """Return whether a rule may decide how a value is cut: a weight that lies nowhere yet."""
        while value in self._pending:
            node, place = self._pending[value]
            operand = node.inputs[place]
            assert operand is not None
            value = operand
        if self.cut.mode == "batch" or not self.is_open(value) or not is_float(value):
            return False
        return value.is_initializer() or name_of(value) in self._weights

    def visit(self, node: ir.Node, rule: Rule) -> None:
        """Cut one node."""
        self._place = node
        operands = [value for value in node.inputs if value is not None]
        for value in (*operands, *node.outputs):
            # Shapes of the whole are kept now: results get those of shards below.
            self.shape(value)
        place = self._form(node)
        if place is None:
            rule(self, node)
        else:
            self._pending[node.outputs[0]] = node, place

    def _form(self, node: ir.Node) -> int | None:
        """Return the place of an operand to which a node only gives another form, to lie as its readers need it.

        So are weights given another order or type, and states of optimizers multiplied by a number.
        """
        first = node.inputs[0] if node.inputs else None
        if node.domain or len(node.outputs) != 1 or first is None:
            return None
        if node.op_type in _PENDING:
            return 0 if self.is_open_weight(first) else None
        row = facts(node.op_type)
        if self.cut.mode == "batch" or row is None or row.kind is not Kind.ELEMENTWISE:
            return None
        sizes = [self.shape(value) for value in node.inputs if value is not None]
        large = [n for n, shape in enumerate(sizes) if shape is None or math.prod(shape) != 1]
        if len(large) != 1 or sizes[large[0]] != self.shape(node.outputs[0]):
            return None
        value = node.inputs[large[0]]
        is_input = value is not None and (value.is_graph_input() or value in self._pending)
        return large[0] if value is not None and is_input and self.is_open(value) else None

    def whole(self, node: ir.Node, reason: str = "") -> None:
        """Let every RDU compute all of a node.

        Args:
            node: The node.
            reason: Why, for people; empty where nothing would be cut anyway.
        """
        operands = [value for value in node.inputs if value is not None]
        if reason and any(self.sharding(value).axes for value in operands):
            self.note(reason)
        for place, value in enumerate(node.inputs):
            if value is not None:
                node.replace_input_with(place, self.need(value, WHOLE))
        for value in implicit_inputs(node):
            self._replace_inside(node, value, self.need(value, WHOLE))
        self.results(node, WHOLE)

    def note(self, reason: str) -> None:
        """Count a reason why something is not cut."""
        self.cut.reasons[reason] = self.cut.reasons.get(reason, 0) + 1

    def operand(self, node: ir.Node, place: int, sharding: Sharding) -> None:
        """Let a node read an operand that lies in a certain way; nothing where it has none."""
        value = node.inputs[place] if place < len(node.inputs) else None
        if value is not None:
            node.replace_input_with(place, self.need(value, sharding))

    def results(self, node: ir.Node, sharding: Sharding) -> None:
        """State how all results of a node lie."""
        for value in node.outputs:
            self.result(value, sharding)

    def result(self, value: ir.Value, sharding: Sharding) -> None:
        """State how a result lies, and give it the shape of a shard."""
        self._decide(value, sharding)

    def need(self, value: ir.Value, sharding: Sharding) -> ir.Value:
        """Return a value that lies in a certain way: itself, or what an exchange makes of it."""
        if value in self._pending:
            self._settle(value, sharding)
        elif sharding.axes and value.is_initializer() and not value.is_graph_input():
            # One that is read in two ways, as a tied weight, is an input for each.
            return self._variant(value, sharding)
        elif value.producer() is None and value not in self._shardings:
            self._decide(value, sharding)
        if self.sharding(value) == sharding:
            return value
        known = self._conversions.get((value, sharding))
        if known is None:
            known = self._converted(value, sharding)
            self._conversions[value, sharding] = known
        return known

    def add(
        self,
        op_type: str,
        operands: Sequence[ir.Value | None],
        shape: Shape,
        sharding: Sharding,
        *,
        domain: str = "",
        dtype: ir.DataType | None = None,
        attributes: Mapping[str, int] | None = None,
    ) -> ir.Value:
        """Insert a node before the one that is visited.

        Args:
            op_type: Its operator.
            operands: What it reads, as it lies.
            shape: Shape of its whole result.
            sharding: How the result lies.
            domain: Domain of the operator.
            dtype: Type of the result; that of the first operand where None.
            attributes: Integers by name.
        """
        first = operands[0]
        assert first is not None
        marks = [ir.AttrInt64(name, number) for name, number in (attributes or {}).items()]
        node = ir.Node(domain, op_type, operands, marks)
        if domain:
            self.graph.opset_imports.setdefault(domain, 1)
        result = node.outputs[0]
        result.name = self._free(f"{name_of(first)}_{op_type.lower()}")
        kind = first.dtype if dtype is None else dtype
        assert kind is not None
        result.dtype = kind
        self._shapes[result] = shape
        self._decide(result, sharding)
        if self._place is None:
            self.graph.append(node)
        elif self._last is not None:
            inherit([node], self._place)
            self.graph.insert_after(self._last, node)
            self._last = node
        else:
            inherit([node], self._place)
            self.graph.insert_before(self._place, node)
        return result

    @contextmanager
    def behind(self, value: ir.Value) -> Iterator[list[ir.Value]]:
        """Insert nodes behind the one that is visited, inside of this context.

        Args:
            value: A result of that node.

        Yields:
            A list for the value that those who read the result read instead.
        """
        replacement: list[ir.Value] = []
        readers = list(value.uses())
        self._last = self._place
        yield replacement
        self._last = None
        (new,) = replacement
        for node, place in readers:
            node.replace_input_with(place, new)
        for place, output in enumerate(self.graph.outputs):
            if output is value:
                new.name, value.name = value.name, self._free(f"{value.name}_before")
                self.graph.outputs[place] = new

    def of_each(self, name: str, numbers: np.ndarray) -> ir.Value:
        """Return a vector that is another one on each RDU.

        Args:
            name: Leads its name.
            numbers: One row per RDU.
        """
        flat = np.ascontiguousarray(numbers).reshape(-1)
        split = Sharding((even(0, len(flat), self.rdus, self.rdus),))
        return self._variant(self._initializer(name, ir.Tensor(flat)), split)

    def finish(self, kept: Callable[[str], bool]) -> None:
        """Decide what is still open, and let outputs lie as their regions do.

        Args:
            kept: Returns whether the value of a name stays on the device.
        """
        self._place = None
        for value in list(self._pending):
            self._settle(value, WHOLE)
        written = {self._region(name_of(value)): value for value in self.graph.outputs}
        for value in self.graph.inputs:
            if value not in self._shardings:
                # Nothing reads it: a cache that a prompt fills lies as what is written there.
                after = written.get(self._region(name_of(value))) if kept(name_of(value)) else None
                known = WHOLE if after is None else self._shardings.get(after, WHOLE)
                self._decide(value, WHOLE if known.partial else known)
            if kept(name_of(value)):
                self.cut.regions[self._region(name_of(value))] = self.sharding(value)
        for place, value in enumerate(self.graph.outputs):
            wanted = self._wanted(value)
            given = self.need(value, WHOLE if wanted.partial else wanted)
            if given is not value:
                given.name, value.name = value.name, self._free(f"{value.name}_before")
                self.graph.outputs[place] = given
            self.cut.regions[self._region(name_of(given))] = self.sharding(given)
        self._drop_unused()
        for name, value in list(self.graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                del self.graph.initializers[name]

    def _wanted(self, value: ir.Value) -> Sharding:
        """Return how an output lies: as its region does, a gradient as what it is a gradient of, or as it is."""
        name = name_of(value)
        for other in (name, name.removesuffix(GRADIENT)):
            known = self.cut.regions.get(self._region(other))
            if known is not None:
                return known
        return self.sharding(value)

    def _drop_unused(self) -> None:
        """Drop nodes whose results nobody reads any more, and inputs that were added for nothing."""
        # From the last one: a node may be unused once its readers are gone.
        for node in reversed(list(self.graph)):
            if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                self.graph.remove(node, safe=True)
        for value in list(self.graph.inputs):
            if CONTENT in value.meta and not value.uses() and not value.is_graph_output():
                self.graph.inputs.remove(value)
                del self.cut.contents[name_of(value)], self.cut.kinds[name_of(value)]

    def _settle(self, value: ir.Value, sharding: Sharding) -> None:
        """Decide how a weight is cut, and the node that gives it another form, by what a reader of that needs."""
        node, operand = self._pending.pop(value)
        source = node.inputs[operand]
        assert source is not None
        before = sharding
        if node.op_type == "Transpose" and sharding.axes:
            rank = len(self.shape(value) or ())
            order = node.attributes["perm"].as_ints() if "perm" in node.attributes else ()
            order = order or tuple(reversed(range(rank)))
            moved = [type(s)(order[s.axis], s.ranges) for s in sharding.axes]
            before = Sharding(tuple(sorted(moved, key=lambda split: split.axis)))
        place, self._place = self._place, node
        if sharding.partial or not (self.is_open(source) or self.sharding(source) == before):
            before = sharding = WHOLE
        node.replace_input_with(operand, self.need(source, before))
        for other, number in enumerate(node.inputs):
            if other != operand and number is not None:
                node.replace_input_with(other, self.need(number, WHOLE))
        self._place = place
        self._decide(value, sharding)

    def _variant(self, value: ir.Value, sharding: Sharding) -> ir.Value:
        """Return the input in which each RDU has its shard of an initializer."""
        known = self._conversions.get((value, sharding))
        if known is not None:
            return known
        tensor, shape = value.const_value, self.shape(value)
        assert tensor is not None
        assert shape is not None
        result = ir.Value(
            name=self._free(f"{name_of(value)}_shard"),
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(list(shape)),
        )
        self._shapes[result] = shape
        self._decide(result, sharding)
        self.graph.inputs.append(result)
        result.meta[CONTENT] = True
        name = name_of(result)
        self.cut.contents[name] = tensor
        is_weight = tensor.dtype.is_floating_point()
        self.cut.kinds[name] = SymbolKind.WEIGHT if is_weight else SymbolKind.BUFFER
        self._conversions[value, sharding] = result
        return result

    def _converted(self, value: ir.Value, sharding: Sharding) -> ir.Value:
        """Insert the exchange, or the choice of a part, that makes a value lie otherwise."""
        shape, current = self.shape(value), self.sharding(value)
        assert shape is not None
        if current.partial:
            # Exchanges make values whole; a shard is then taken without another one.
            value = self._exchange(ALL_REDUCE, value, shape)
            return self.need(value, sharding)
        if current.axes:
            value = self._exchange(ALL_GATHER, value, shape)
            return self.need(value, sharding)
        assert not sharding.partial
        taken: list[int] = list(shape)
        done: tuple[AxisSplit, ...] = ()
        for split in sharding.axes:
            rows = np.stack([indices(split, rdu) for rdu in range(self.rdus)])
            places = self.of_each("places", rows)
            done = (*done, split)
            value = self.add(
                "Gather",
                [value, places],
                tuple(taken),
                Sharding(done),
                attributes={"axis": split.axis},
            )
        return value

    def _exchange(self, op_type: str, value: ir.Value, shape: Shape) -> ir.Value:
        """Insert a collective that makes a value whole."""
        marks = {RDUS: self.rdus}
        return self.add(op_type, [value], shape, WHOLE, domain=SAMBA_DOMAIN, attributes=marks)

    @staticmethod
    def _replace_inside(node: ir.Node, old: ir.Value, new: ir.Value) -> None:
        if old is new:
            return
        for body in subgraphs(node):
            for inner in each_node(body):
                for place, value in enumerate(inner.inputs):
                    if value is old:
                        inner.replace_input_with(place, new)


Rule: TypeAlias = Callable[[Sharder, ir.Node], None]
"""Cuts a node: chooses how its operands lie, and states how its results do."""
