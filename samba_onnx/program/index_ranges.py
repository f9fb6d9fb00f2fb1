"""Which integers a graph can be given: the range of every input that serves as an index.

An input that is looked up in a table of 1,000 rows takes 0 to 999. Constraints begin where an operator
uses integers as places, classes, lengths or divisors, and are followed backwards, through conversions,
views and arithmetic, to the inputs of the graph. Where arithmetic cannot be undone exactly, the range is
narrower than what is legal, never wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.program.bounds import Bounds
from samba_onnx.program.constraints import LEGAL
from samba_onnx.program.dataflow import name_of, subgraphs
from samba_onnx.program.intervals import Interval
from samba_onnx.program.inversions import INVERSIONS
from samba_onnx.program.program import Program

__all__ = ["IndexRange", "graph_ranges", "index_ranges"]

_UNBOUNDED = 1 << 7
"""How many integers are drawn from where one side of a range has no end, as for a divisor."""


@dataclass(frozen=True)
class IndexRange:
    """The integers that an input of a graph can hold, both ends included."""

    lowest: int
    """Negative where indices may count from the end."""
    highest: int

    def draw(self, shape: Sequence[int], generator: np.random.Generator) -> NDArray[np.int64]:
        """Draw integers from the whole range, with the ends, 0 and -1 among them where they are legal.

        Args:
            shape: Sizes of the array.
            generator: Where random numbers come from; arrays too small for all special values have
                a random choice of them.

        Returns:
            int64 of the given shape.
        """
        lowest, highest = self._drawn
        array = np.asarray(generator.integers(lowest, highest, shape, np.int64, endpoint=True))
        # Errors of off-by-one show at these places, which random numbers of a large range hardly
        # ever meet.
        inside = [edge for edge in (lowest, -1, 0, highest) if lowest <= edge <= highest]
        edges = generator.permutation(list(dict.fromkeys(inside)))[: array.size]
        array.flat[generator.permutation(array.size)[: len(edges)]] = edges
        return array

    @property
    def _drawn(self) -> tuple[int, int]:
        """The ends of what is drawn from: near the end that the range has, if it has only one."""
        # A range as wide as this has no end that anybody meant.
        if self.highest - self.lowest < 1 << 31:
            return self.lowest, self.highest
        if abs(self.lowest) <= abs(self.highest):
            return self.lowest, self.lowest + _UNBOUNDED
        return self.highest - _UNBOUNDED, self.highest


def index_ranges(program: Program, *, from_end: bool = True) -> dict[str, IndexRange]:
    """Return the ranges of the integer inputs of a program.

    Args:
        program: Its graphs are looked at, not changed.
        from_end: Whether indices may be negative where ONNX lets them count from the end; torch's
            embeddings, gathers and losses do not.

    Returns:
        By name of the input; those that no operator uses as an index are missing.
    """
    wanted: dict[str, Interval] = {}
    ranges: dict[str, IndexRange] = {}
    # From the last part to the first: what a backward pass wants of an activation is wanted of the
    # forward pass that makes it.
    for part in reversed(program.parts):
        graph = part.model.graph
        walk = _Walk(from_end)
        for value in graph.outputs:
            walk.demand(value, wanted.get(name_of(value), Interval()))
        walk.graph(graph)
        for value in graph.inputs:
            if value in walk.demands:
                name = name_of(value)
                wanted[name] = wanted.get(name, Interval()).within(walk.demands[value])
    inputs = {name_of(v): v for part in program.parts for v in part.model.graph.inputs}
    for name in program.inputs:
        if name in inputs:
            ranges |= _named(inputs[name], wanted.get(name, Interval()))
    return ranges


def graph_ranges(graph: ir.Graph, *, from_end: bool = True) -> dict[str, IndexRange]:
    """Return the ranges of the integer inputs of a graph.

    Args:
        graph: With shapes; it is looked at, not changed.
        from_end: Whether indices may be negative where ONNX lets them count from the end.

    Returns:
        By name of the input; those that no operator uses as an index are missing.
    """
    walk = _Walk(from_end)
    walk.graph(graph)
    ranges: dict[str, IndexRange] = {}
    for value in graph.inputs:
        ranges |= _named(value, walk.demands.get(value, Interval()))
    return ranges


def _named(value: ir.Value, interval: Interval) -> dict[str, IndexRange]:
    """Return the range of an input of integers by its name, cut to what its type can hold."""
    if (
        interval == Interval()
        or value.dtype is None
        or not value.dtype.is_integer()
        or value.dtype.bitwidth < 8
    ):
        return {}
    limits = np.iinfo(value.dtype.numpy())
    # Ends beyond 2^62 mean none; int() of infinity would fail.
    lowest = max(int(limits.min), math.ceil(max(interval.low, -(1 << 62))))
    highest = min(int(limits.max), math.floor(min(interval.high, 1 << 62)))
    return {name_of(value): IndexRange(lowest, highest)} if lowest <= highest else {}


class _Walk:
    """Follows constraints through a graph, from the last node to the first."""

    def __init__(self, from_end: bool) -> None:
        self.demands: dict[ir.Value, Interval] = {}
        # torch's operators refuse negative places that ONNX counts from the end.
        self._legal = Interval() if from_end else Interval(0)
        self._bounds = Bounds()

    def demand(self, value: ir.Value | None, interval: Interval) -> None:
        """Want a value to lie in an interval; what cannot be had together with others is left out."""
        # What holds anyway narrows nothing.
        if value is None or interval.is_empty or self._bounds.of(value).is_inside(interval):
            return
        both = self.demands.get(value, Interval()).within(interval)
        # Of demands that exclude each other the first stays; an input can be drawn all the same.
        if not both.is_empty:
            self.demands[value] = both

    def graph(self, graph: ir.Graph) -> None:
        """Visit all nodes, the last first."""
        for node in reversed(graph):
            # Bodies first: they want things of outer values that nodes before this one make.
            for body in subgraphs(node):
                self._body(node, body)
            for value in node.outputs:
                if value in self.demands and node.op_type in INVERSIONS:
                    inverse = INVERSIONS[node.op_type]
                    for operand, interval in inverse(node, self.demands[value], self._bounds):
                        self.demand(operand, interval)
            if node.op_type in LEGAL:
                for operand, interval in LEGAL[node.op_type](node):
                    if interval != Interval():
                        self.demand(operand, interval.within(self._legal))

    def _body(self, node: ir.Node, body: ir.Graph) -> None:
        """Visit the body of an If, a Loop or a Scan."""
        # Only an If returns the values of its bodies as they are.
        if node.op_type == "If":
            for value, inner in zip(node.outputs, body.outputs, strict=False):
                self.demand(inner, self.demands.get(value, Interval()))
        self.graph(body)
        # Loop and Scan hand their operands to the inputs of the body, in the same order.
        for operand, inner in zip(node.inputs, body.inputs, strict=False):
            self.demand(operand, self.demands.get(inner, Interval()))
