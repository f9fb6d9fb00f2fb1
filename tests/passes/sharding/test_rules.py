"""Operators beside what is cut, one at a time: which axes stay cut, what is exchanged, and why not.

Each graph is one operator behind a linear layer whose columns are cut, behind two whose sum is open, or
behind a batch that is cut. What the RDUs compute together is held against onnxruntime on the whole graph,
in float64, where sums in another order differ by less than 1e-12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
import pytest

from samba_onnx.facts.domains import SAMBA_DOMAIN
from tests.passes.sharding.executed import cut_model
from tests.passes.sharding.models import Writer

BATCH, ROWS, WIDTH = 4, 6, 8
SHAPE = (BATCH, ROWS, WIDTH)


class Graph(Writer):
    """Writes one graph of the table."""

    def __init__(self) -> None:
        super().__init__(5, np.float64)

    def columns(self, value: str = "x") -> str:
        """A value whose last axis is cut."""
        return self.linear(value, WIDTH, WIDTH, bias=False)

    def middle(self) -> str:
        """A value whose axis 1 is cut, of shape (4, 8, 6)."""
        return self.node("Transpose", self.columns(), perm=[0, 2, 1])

    def front(self) -> str:
        """A value whose axis 0 is cut, of shape (8, 4, 6)."""
        return self.node("Transpose", self.columns(), perm=[2, 0, 1])

    def summand(self) -> str:
        """A value of which each RDU has a summand."""
        return self.columns(self.columns())

    def gemm(self, *operands: str, **attributes: object) -> str:
        """Rows of two axes, times a matrix."""
        flat = self.node("Reshape", "x", self.integers(BATCH * ROWS, WIDTH))
        return self.node("Gemm", flat, *operands, **attributes)


@dataclass(frozen=True)
class Case:
    """One graph, and what must become of it."""

    name: str
    write: Callable[[Graph], str]
    axes: tuple[int, ...] = ()
    """Axes of the result that are cut."""
    exchanges: str = ""
    """``G`` for each value that is gathered, ``R`` for each that is summed, in order."""
    reason: str = ""
    """Why something is computed whole, where an operator would have computed shards."""
    mode: str = "weight"


def _op(
    op_type: str, *more: Callable[[Graph], str], at: str = "columns", **attributes: object
) -> Callable[[Graph], str]:
    """An operator of a value that is cut in one of the ways that a graph has methods for."""

    def write(graph: Graph) -> str:
        value = getattr(graph, at)() if at != "x" else "x"
        return graph.node(op_type, value, *(each(graph) for each in more), **attributes)

    return write


def ints(*numbers: int) -> Callable[[Graph], str]:
    return lambda graph: graph.integers(*numbers)


def weight(*shape: int) -> Callable[[Graph], str]:
    return lambda graph: graph.weight(*shape)


def constant(array: object) -> Callable[[Graph], str]:
    return lambda graph: graph.constant(np.asarray(array))


def indices(graph: Graph) -> str:
    """Places from 0 to 4 that are cut as a layer's columns are."""
    bounds = graph.constant(np.float64(0)), graph.constant(np.float64(4))
    return graph.node("Cast", graph.node("Clip", graph.node("Abs", graph.columns()), *bounds), to=7)


def whole_numbers(graph: Graph) -> str:
    """Integers that are cut as a layer's columns are, of both signs."""
    return graph.node(
        "Cast", graph.node("Mul", graph.columns(), graph.constant(np.float64(9))), to=6
    )


def whole_sums(graph: Graph) -> str:
    """Sums of integers, of which each RDU has a summand."""
    return graph.node("ReduceSum", whole_numbers(graph), graph.integers(2))


def own(
    graph: Graph,
    second: np.ndarray,
    count: int = 8,
    order: int = 1,
    data: str = "",
    updates: str = "",
) -> str:
    """Write rows of an axis that is cut, each in a place of its own."""
    first = graph.constant(np.arange(count)[::order].reshape(count, 1, 1))
    rows = graph.node("Concat", first, graph.constant(second), axis=-1)
    return graph.node(
        "ScatterND", data or graph.front(), rows, updates or graph.weight(count, 1, 6)
    )


def pairs(graph: Graph, second: Sequence[int]) -> str:
    """Write the same numbers twice into a row of an axis that is cut, in places that are stated by row."""
    columns = [np.arange(8), np.array(second)]
    parts = [graph.constant(np.repeat(each, 2).reshape(8, 2, 1)) for each in columns]
    rows = graph.node("Concat", *parts, axis=-1)
    return graph.node("ScatterND", graph.front(), rows, graph.constant(np.ones((8, 2, 6))))


def words(graph: Graph, table: str, dtype: type[np.integer] = np.int64) -> str:
    """Choose rows of a table."""
    return graph.node(
        "Gather", table, graph.constant(np.array([[0, 3, 11], [5, 5, 10]], dtype) % 11)
    )


def tied(graph: Graph, count: int, factor: str = "MatMul", between: str = "") -> str:
    """Rows of a table, multiplied by the table: chosen among its words, which are cut."""
    table = graph.weight(count, 8)
    chosen = graph.node("Tanh", words(graph, table))
    if factor == "Gemm":
        flat = graph.node("Reshape", chosen, graph.integers(6, 8))
        return graph.node("Gemm", flat, table, transB=1)
    form = graph.node(between, table) if between else table
    return graph.node("MatMul", chosen, graph.node("Transpose", form, perm=[1, 0]))


def twice(graph: Graph) -> str:
    """Two values whose columns are cut, beside each other: each RDU has a part of both."""
    return graph.node("Concat", graph.columns(), graph.columns(), axis=2)


def pieces(graph: Graph) -> str:
    """The sum of these two, taken apart again."""
    first = graph.node("Split", twice(graph), axis=-1, num_outputs=2, outputs=2)
    return graph.node("Add", first, f"{first}_1")


def blocks(graph: Graph) -> str:
    """Two layers of different width beside each other, taken apart and put together again."""
    wide = graph.node("Concat", graph.columns(), graph.linear("x", 8, 4, bias=False), axis=2)
    first = graph.node("Split", wide, graph.integers(8, 4), axis=2, outputs=2)
    return graph.node("Concat", graph.node("Tanh", first), f"{first}_1", axis=2)


# fmt: off
CASES: tuple[Case, ...] = (
    Case("unary", _op("Tanh"), (2,)),
    Case("add vector", _op("Add", weight(8)), (2,)),
    Case("add one", _op("Add", weight(1)), (2,)),
    Case("add scalar", _op("Add", weight()), (2,)),
    Case("add column", _op("Add", weight(6, 1)), (2,)),
    Case("residual", lambda g: g.node("Add", g.columns(), g.node("Tanh", "x")), (), "G"),
    Case("residual other way", lambda g: g.node("Sub", g.node("Tanh", "x"), g.columns()), (2,)),
    Case("two cut", lambda g: g.node("Mul", g.columns(), g.columns()), (2,)),
    Case("two axes", lambda g: g.node("Add", g.node("Reshape", g.columns(), g.integers(4, 8, 6)), g.middle()), (1,), "G", "Reshape joins elements of several RDUs"),
    Case("middle + x", lambda g: g.node("Add", g.middle(), g.node("Transpose", "x", perm=[0, 2, 1])), (1,)),
    Case("where", lambda g: g.node("Where", g.node("Greater", g.columns(), g.weight(8)), g.columns(), g.weight(1)), (2,)),
    Case("sum of summands", lambda g: g.node("Add", g.summand(), g.summand()), (), "R"),
    Case("sub of summands", lambda g: g.node("Sub", g.summand(), g.summand()), (), "R"),
    Case("product of summands", lambda g: g.node("Mul", g.summand(), g.summand()), (), "RR"),
    Case("summand + whole", lambda g: g.node("Add", g.summand(), "x"), (), "R"),
    Case("summand * number", lambda g: g.node("Mul", g.summand(), g.weight()), (), "R"),
    Case("number * summand", lambda g: g.node("Mul", g.weight(8), g.summand()), (), "R"),
    Case("summand / number", lambda g: g.node("Div", g.summand(), g.weight(8)), (), "R"),
    Case("number / summand", lambda g: g.node("Div", g.weight(8), g.summand()), (), "R"),
    Case("-summand", lambda g: g.node("Neg", g.summand()), (), "R"),
    Case("tanh summand", lambda g: g.node("Tanh", g.summand()), (), "R"),
    Case("summand * cut", lambda g: g.node("Mul", g.summand(), g.columns()), (), "RG"),
    Case("sum of a product and a quotient of summands", lambda g: g.node("Add", g.node("Mul", g.summand(), g.weight()), g.node("Div", g.summand(), g.weight())), (), "R"),
    Case("sum of products of sums of integers", lambda g: g.node("Add", g.node("Mul", whole_sums(g), g.constant(np.int32(7))), whole_sums(g)), (), "R"),
    Case("sum of three", lambda g: g.node("Sum", g.summand(), g.summand(), g.summand()), (), "R"),
    Case("sum of one", lambda g: g.node("Sum", g.columns()), (2,)),
    Case("ReduceSum of 2", _op("ReduceSum", ints(2), keepdims=0), (), "R"),
    Case("ReduceSum of 2 kept", _op("ReduceSum", ints(2), keepdims=1), (), "R"),
    Case("ReduceSum of 1", _op("ReduceSum", ints(1), keepdims=0), (1,)),
    Case("ReduceSum of 1 kept", _op("ReduceSum", ints(1), keepdims=1), (2,)),
    Case("ReduceSum of -1, 1", _op("ReduceSum", ints(-1, 1), keepdims=0), (), "R"),
    Case("ReduceSum of -1, 1 kept", _op("ReduceSum", ints(-1, 1), keepdims=1), (), "R"),
    Case("ReduceSum of 0, 1", _op("ReduceSum", ints(0, 1), keepdims=0), (0,)),
    Case("ReduceMean of 2", _op("ReduceMean", ints(2), keepdims=0), (), "R"),
    Case("ReduceMean of 2 kept", _op("ReduceMean", ints(2), keepdims=1), (), "R"),
    Case("ReduceMean of 1", _op("ReduceMean", ints(1), keepdims=0), (1,)),
    Case("ReduceMean of 1 kept", _op("ReduceMean", ints(1), keepdims=1), (2,)),
    Case("ReduceMean of 0, 1", _op("ReduceMean", ints(0, 1), keepdims=0), (0,)),
    Case("ReduceMax of 2", _op("ReduceMax", ints(2), keepdims=0), (), "G", "ReduceMax takes all elements of an axis that is cut"),
    Case("ReduceMax of 1", _op("ReduceMax", ints(1), keepdims=0), (1,)),
    Case("ReduceMax of 1 kept", _op("ReduceMax", ints(1), keepdims=1), (2,)),
    # Quotients of integers are rounded: those of parts do not add up to that of the whole.
    Case("ReduceSum of integers", lambda g: whole_sums(g), (), "R"),
    Case("ReduceMean of integers", lambda g: g.node("ReduceMean", whole_numbers(g), g.integers(2)), (), "G", "ReduceMean takes all elements of an axis that is cut"),
    Case("ReduceMean of integers of 1", lambda g: g.node("ReduceMean", whole_numbers(g), g.integers(1)), (2,)),
    Case("ReduceMean of sums of integers", lambda g: g.node("ReduceMean", whole_sums(g), g.integers(1)), (), "R"),
    Case("sums of integers / number", lambda g: g.node("Div", whole_sums(g), g.constant(np.int32(7))), (), "R"),
    Case("sums of integers * number", lambda g: g.node("Mul", whole_sums(g), g.constant(np.int32(7))), (), "R"),
    Case("-sums of integers", lambda g: g.node("Neg", whole_sums(g)), (), "R"),
    Case("ReduceSum all", _op("ReduceSum", keepdims=0), (), "R"),
    Case("ReduceSum noop", _op("ReduceSum", noop_with_empty_axes=1), (2,)),
    Case("ReduceSum empty", _op("ReduceSum", ints()), (), "R"),
    Case("ReduceMean front", _op("ReduceMean", ints(0), at="front"), (), "R"),
    Case("ReduceMean front kept", _op("ReduceSum", ints(1), at="front", keepdims=0), (0,)),
    Case("ReduceMax middle", _op("ReduceMax", ints(0), at="middle", keepdims=0), (0,)),
    Case("ReduceSum summand", _op("ReduceSum", ints(1), at="summand"), (), "R"),
    Case("ReduceMean summand", _op("ReduceMean", ints(2), at="summand"), (), "R"),
    Case("ReduceMax summand", _op("ReduceMax", ints(2), at="summand"), (), "R"),
    Case("ReduceSum whole", lambda g: g.node("Tanh", g.node("ReduceSum", "x", g.integers(1)))),
    Case("ArgMax 2", _op("ArgMax", axis=2), (), "G", "ArgMax takes all elements of an axis that is cut"),
    Case("ArgMax 1", _op("ArgMax", axis=1, keepdims=0), (1,)),
    Case("ArgMin default", _op("ArgMin"), (2,)),
    Case("Softmax", _op("Softmax"), (), "G", "Softmax takes all elements of an axis that is cut"),
    Case("Softmax 1", _op("Softmax", axis=1), (2,)),
    Case("Softmax middle", _op("Softmax", at="middle"), (1,)),
    Case("CumSum", _op("CumSum", constant(np.int64(1))), (), "G", "CumSum takes all elements of an axis that is cut"),
    Case("Softmax summand", _op("Softmax", at="summand"), (), "R"),
    Case("LogSoftmax -2", _op("LogSoftmax", axis=-2), (2,)),
    Case("LN", _op("LayerNormalization", weight(8), weight(8)), (), "G", "LayerNormalization takes all elements of an axis that is cut"),
    Case("LN middle", _op("LayerNormalization", weight(6), weight(6), at="middle"), (1,)),
    Case("LN 1 middle", _op("LayerNormalization", weight(8, 6), axis=1, at="middle"), (), "G", "LayerNormalization takes all elements of an axis that is cut"),
    Case("LN front", _op("LayerNormalization", weight(4, 6), axis=1, at="front"), (0,)),
    Case("LN summand", _op("LayerNormalization", weight(8), at="summand"), (), "R"),
    Case("Gather 1", _op("Gather", ints(0, 3), axis=1), (2,)),
    Case("Gather 2", _op("Gather", ints(0, 3), axis=2), (), "G", "Gather chooses along an axis that is cut"),
    Case("Gather scalar", _op("Gather", constant(np.int64(1)), axis=0), (1,)),
    Case("Gather scalar 1", _op("Gather", constant(np.int64(1)), axis=-2), (1,)),
    Case("Gather matrix", _op("Gather", constant(np.array([[0, 1], [2, 3]])), axis=1), (3,)),
    Case("Gather front", _op("Gather", ints(1, 7, 2), at="front"), (), "R"),
    Case("Gather middle 0", _op("Gather", ints(1, 2), at="middle"), (1,)),
    Case("Gather middle 2", _op("Gather", ints(1, 2), axis=2, at="middle"), (1,)),
    Case("Gather summand", _op("Gather", ints(1, 2), axis=2, at="summand"), (), "R"),
    Case("Gather front scalar", _op("Gather", constant(np.int64(5)), at="front"), (), "G", "Gather chooses along an axis that is cut"),
    Case("Gather by cut indices", lambda g: g.node("Gather", "x", indices(g), axis=1), (3,)),
    Case("Gather by cut indices 0", lambda g: g.node("Gather", g.weight(5, 3), indices(g)), (2,)),
    Case("GatherElements 1", lambda g: g.node("GatherElements", g.columns(), g.constant(np.zeros((4, 2, 8), np.int64) + 1), axis=1), (2,)),
    Case("GatherElements 2", lambda g: g.node("GatherElements", g.columns(), g.constant(np.zeros((4, 6, 8), np.int64) + 1), axis=2), (), "G", "GatherElements chooses along an axis that is cut"),
    Case("GatherElements short cut", lambda g: g.node('GatherElements', g.middle(), g.constant(np.zeros((4, 8, 2), np.int64) + 1), axis=2), (1,)),
    Case("GatherElements idx", lambda g: g.node("GatherElements", "x", indices(g), axis=1), (2,)),
    Case("GatherElements summand", lambda g: g.node("GatherElements", g.summand(), g.constant(np.zeros((4, 2, 8), np.int64) + 1), axis=1), (), "R"),
    Case("ScatterElements", lambda g: g.node("ScatterElements", g.columns(), g.constant(np.zeros((4, 1, 8), np.int64) + 1), g.weight(4, 1, 8), axis=1), (2,)),
    Case("GatherElements default", lambda g: g.node("GatherElements", g.front(), g.constant(np.zeros((8, 4, 6), np.int64) + 1)), (), "G", "GatherElements chooses along an axis that is cut"),
    Case("ScatterND rows", lambda g: g.node("ScatterND", g.columns(), g.constant(np.array([[1], [3]])), g.weight(2, 6, 8)), (2,)),
    Case("ScatterND updates", lambda g: g.node("ScatterND", "x", g.constant(np.array([[1, 2], [3, 4]])), g.columns(g.weight(2, 8))), (2,)),
    Case("ScatterND updates whole data", lambda g: g.node("ScatterND", g.node("Tanh", "x"), g.constant(np.array([[[0], [1], [2], [3]]])), g.node("Unsqueeze", g.columns(), g.integers(0))), (2,)),
    Case("ScatterND along cut", lambda g: g.node("ScatterND", g.front(), g.constant(np.array([[1], [3]])), g.weight(2, 4, 6)), (), "G", "ScatterND writes where its indices say"),
    Case("ScatterND points", lambda g: g.node("ScatterND", g.columns(), g.constant(np.array([[1, 2, 3], [3, 0, 7]])), g.weight(2)), (), "G", "ScatterND writes where its indices say"),
    Case("ScatterND chosen", lambda g: g.node("ScatterND", g.middle(), g.constant(np.array([[1, 2], [3, 7]])), g.weight(2, 6)), (), "G", "ScatterND writes where its indices say"),
    Case("ScatterND own", lambda g: own(g, np.full((8, 1, 1), 2)), (0,)),
    Case("ScatterND own differ", lambda g: own(g, np.arange(8).reshape(8, 1, 1) % 4), (0,)),
    Case("ScatterND part", lambda g: own(g, np.full((4, 1, 1), 2), 4), (), "G", "ScatterND writes where its indices say"),
    Case("Reshape (24, 8)", _op("Reshape", ints(24, 8)), (1,)),
    Case("Reshape (4, 6, 2, 4)", _op("Reshape", ints(4, 6, 2, 4)), (2,)),
    Case("Reshape (4, 48)", _op("Reshape", ints(4, 48)), (1,)),
    Case("Reshape (4, 6, 8, 1)", _op("Reshape", ints(4, 6, 8, 1)), (2,)),
    Case("Reshape (4, 6, 1, 8)", _op("Reshape", ints(4, 6, 1, 8)), (3,)),
    Case("Reshape (-1,)", _op("Reshape", ints(-1,)), (0,)),
    Case("Reshape (4, 2, 3, 8)", _op("Reshape", ints(4, 2, 3, 8)), (3,)),
    Case("Reshape (4, 6, 4, 2)", _op("Reshape", ints(4, 6, 4, 2)), (2,)),
    Case("Reshape (192, 1)", _op("Reshape", ints(192, 1)), (0,)),
    Case("Reshape front", _op("Reshape", ints(2, 4, 24), at="front"), (0,)),
    Case("Reshape front2", _op("Reshape", ints(32, 6), at="front"), (0,)),
    Case("Reshape summand", _op("Reshape", ints(24, 8), at="summand"), (), "R"),
    Case("Flatten", _op("Flatten", at="front"), (0,)),
    Case("Flatten 2", _op("Flatten", axis=2), (1,)),
    Case("Unsqueeze", _op("Unsqueeze", ints(0, 3)), (4,)),
    Case("Squeeze", lambda g: g.node("Squeeze", g.node("Unsqueeze", g.columns(), g.integers(1)), g.integers(1)), (2,)),
    Case("Reshape allowzero", _op("Reshape", ints(24, 8), allowzero=1), (1,)),
    Case("Transpose", _op("Transpose"), (0,)),
    Case("Transpose p", _op("Transpose", perm=[1, 2, 0]), (1,)),
    Case("Transpose summand", _op("Transpose", at="summand"), (), "R"),
    Case("Expand", _op("Expand", ints(4, 6, 8)), (2,)),
    Case("Expand more", _op("Expand", ints(3, 4, 6, 8)), (3,)),
    Case("Expand cut", lambda g: g.node("Expand", g.node("Reshape", g.columns(), g.integers(4, 6, 8, 1)), g.integers(4, 6, 8, 3)), (2,)),
    Case("Expand summand", _op("Expand", ints(2, 4, 6, 8), at="summand"), (), "R"),
    Case("Expand one", lambda g: g.node("Expand", g.node("ReduceMax", g.columns(), g.integers(2)), g.integers(4, 6, 8)), (), "G", "ReduceMax takes all elements of an axis that is cut"),
    Case("Concat same", lambda g: g.node("Concat", g.columns(), g.columns(), axis=-1), (2,)),
    Case("Concat other", lambda g: g.node("Concat", g.columns(), g.columns(), axis=1), (2,)),
    Case("Concat x", lambda g: g.node("Concat", g.columns(), g.node("Tanh", "x"), axis=2), (), "G", "Concat joins pieces that RDUs have in part and in whole"),
    Case("Concat x 1", lambda g: g.node("Concat", g.columns(), g.node("Tanh", "x"), axis=1), (2,)),
    Case("Concat weight", lambda g: g.node("Concat", g.weight(4, 6, 8), g.columns(), axis=1), (2,)),
    Case("Concat summand", lambda g: g.node("Concat", g.summand(), g.summand(), axis=1), (), "RR"),
    Case("Concat whole", lambda g: g.node("Concat", "x", "x", axis=0)),
    Case("Concat three sizes", lambda g: g.node("Concat", g.columns(), g.linear("x", 8, 4, bias=False), g.columns(), axis=2), (2,)),
    Case("Concat mixed", lambda g: g.node("Concat", g.middle(), g.node("Reshape", g.columns(), g.integers(4, 8, 6)), axis=0), (1,), "G", "Reshape joins elements of several RDUs"),
    Case("Concat one", lambda g: g.node("Concat", g.columns(), axis=2), (2,)),
    Case("Split other", _op("Split", ints(2, 4), axis=1, outputs=2), (2,)),
    Case("Split default", _op("Split", ints(2, 2), outputs=2), (2,)),
    Case("Split num", _op("Split", num_outputs=2, axis=2, outputs=2), (2,)),
    Case("Split unequal", lambda g: g.node("Split", g.front(), g.integers(3, 5), outputs=2), (), "", "3 columns of a linear layer cannot be divided between 2 RDUs: each computes all of them"),
    Case("Split front", lambda g: g.node("Split", g.front(), g.integers(4, 4), outputs=2), (0,)),
    Case("Split summand", _op("Split", ints(4, 4), axis=2, outputs=2, at="summand"), (), "R"),
    Case("Split joined", lambda g: g.node("Split", twice(g), g.integers(8, 8), axis=2, outputs=2), (2,)),
    Case("Split joined add", pieces, (2,)),
    Case("Slice 1", lambda g: g.node("Slice", g.columns(), g.integers(1), g.integers(5), g.integers(1)), (2,)),
    Case("Slice step 1", lambda g: g.node("Slice", g.columns(), g.integers(5), g.integers(-7), g.integers(1), g.integers(-2)), (2,)),
    Case("Slice cut", lambda g: g.node("Slice", g.front(), g.integers(0), g.integers(4), g.integers(0)), (), "G", "Slice takes unequal parts of what RDUs have"),
    Case("Slice cut all", lambda g: g.node("Slice", g.front(), g.integers(-8, 1), g.integers(99, 3), g.integers(0, 1)), (0,)),
    Case("Slice step", lambda g: g.node("Slice", g.front(), g.integers(0), g.integers(8), g.integers(0), g.integers(2)), (), "G", "Slice takes unequal parts of what RDUs have"),
    Case("Slice no axes", lambda g: g.node("Slice", g.front(), g.integers(0, 1), g.integers(8, 3)), (0,)),
    Case("Slice summand", _op("Slice", ints(0), ints(4), ints(2), at="summand"), (), "R"),
    Case("Slice both halves", lambda g: g.node("Slice", twice(g), g.integers(8), g.integers(16), g.integers(2)), (2,)),
    Case("Slice whole", lambda g: g.node("Slice", "x", g.integers(0), g.integers(2), g.integers(1))),
    Case("Slice middle of each", lambda g: g.node("Slice", g.node("Concat", g.front(), g.front(), g.front(), axis=0), g.integers(8, 0, 1), g.integers(16, 2, 99), g.integers(0, 1, 2)), (0,)),
    Case("Pad 1", _op("Pad", ints(0, 1, 0, 0, 0, 0)), (2,)),
    Case("Pad cut", _op("Pad", ints(0, 0, 1, 0, 0, 0)), (), "G", "Pad adds to an axis that is cut"),
    Case("Pad end", _op("Pad", ints(0, 0, 0, 0, 0, 1)), (), "G", "Pad adds to an axis that is cut"),
    Case("Pad axes", lambda g: g.node("Pad", g.columns(), g.integers(1, 2), g.constant(np.float64(3)), g.integers(1)), (2,)),
    Case("Pad axes cut", lambda g: g.node("Pad", g.columns(), g.integers(0, 2), "", g.integers(-1)), (), "G", "Pad adds to an axis that is cut"),
    Case("Pad summand", _op("Pad", ints(0, 1, 0, 0, 0, 0), at="summand"), (), "R"),
    Case("Pad reflect", _op("Pad", ints(0, 1, 0, 0, 1, 0), mode="reflect"), (2,)),
    Case("summand", lambda g: g.summand(), (), "R"),
    Case("x times cut", lambda g: g.node("MatMul", "x", g.middle()), (), "G"),
    Case("cut times x", lambda g: g.node("MatMul", g.middle(), g.node("Tanh", "x")), (1,)),
    Case("cut times cut", lambda g: g.node("MatMul", g.columns(), g.middle()), (), "R"),
    Case("free times free", lambda g: g.node("MatMul", g.middle(), g.columns()), (2,), "G"),
    Case("summed times whole", lambda g: g.node("MatMul", g.columns(), g.node("Transpose", "x", perm=[0, 2, 1])), (), "G"),
    Case("batch times", lambda g: g.node("MatMul", g.front(), g.node("Transpose", g.front(), perm=[0, 2, 1])), (0,)),
    Case("batch times whole", lambda g: g.node("MatMul", g.front(), g.weight(8, 6, 3)), (0,)),
    Case("batch times broadcast", lambda g: g.node("MatMul", g.front(), g.node("Tanh", g.weight(1, 6, 3))), (0,)),
    Case("broadcast times batch", lambda g: g.node("MatMul", g.node("Tanh", g.weight(3, 4)), g.front()), (0,)),
    Case("vector", lambda g: g.node("MatMul", g.columns(), g.weight(8)), (), "G", "a product with a vector is computed whole"),
    Case("summand times x", lambda g: g.node("MatMul", g.summand(), g.node("Transpose", "x", perm=[0, 2, 1])), (), "R"),
    Case("odd columns", lambda g: g.linear("x", 8, 7, bias=False), (), "", "7 columns of a linear layer cannot be divided between 2 RDUs: each computes all of them"),
    Case("odd then even", lambda g: g.linear(g.linear("x", 8, 7, bias=False), 7, 8, bias=False), (2,), "", "7 columns of a linear layer cannot be divided between 2 RDUs: each computes all of them"),
    Case("bias behind sum", lambda g: g.linear(g.columns(), 8, 6), (), "R"),
    Case("Gemm", lambda g: g.gemm(g.weight(8, 10), g.weight(10)), (1,)),
    Case("Gemm t", lambda g: g.gemm(g.weight(10, 8), g.weight(1, 10), transB=1), (1,)),
    Case("Gemm c1", lambda g: g.gemm(g.weight(8, 10), g.weight(24, 1)), (1,)),
    Case("Gemm no c", lambda g: g.gemm(g.weight(8, 10), alpha=0.5), (1,)),
    Case("Gemm scalar", lambda g: g.gemm(g.weight(8, 10), g.weight()), (1,)),
    Case("Gemm Gemm", lambda g: g.node("Gemm", g.gemm(g.weight(8, 10)), g.weight(10, 6), g.weight(6), beta=0.5, alpha=2.0), (), "R"),
    Case("Gemm Gemm1", lambda g: g.node("Gemm", g.gemm(g.weight(8, 10)), g.weight(10, 6), g.weight(24, 6)), (), "R"),
    Case("Gemm Gemm t", lambda g: g.node("Gemm", g.gemm(g.weight(8, 10)), g.weight(6, 10), transB=1), (), "R"),
    Case("Gemm transA", lambda g: g.node("Gemm", g.node("Transpose", g.gemm(g.weight(8, 10)), perm=[1, 0]), g.weight(10, 6), transA=1), (), "R"),
    Case("Gemm transA free", lambda g: g.node("Gemm", g.gemm(g.weight(8, 10)), g.node("Tanh", g.weight(24, 6)), transA=1), (0,)),
    Case("table", lambda g: words(g, g.weight(12, 8)), (), "G"),
    Case("table of odd width", lambda g: words(g, g.weight(12, 7)), (), "", "the width 7 of an embedding cannot be divided between 2 RDUs: each has all"),
    Case("table of few words", lambda g: tied(g, 11), (), "", "11 words of an embedding cannot be divided between 2 RDUs: each has all"),
    Case("table that a Gemm reads", lambda g: tied(g, 12, "Gemm"), (1,), "R"),
    Case("table that a MatMul reads", lambda g: tied(g, 12), (2,), "R"),
    Case("table of another form", lambda g: tied(g, 12, between="Identity"), (2,), "R"),
    Case("table by short indices", lambda g: words(g, g.weight(12, 8), np.int32), (), "G"),
    Case("ScatterND own of two", lambda g: own(g, np.arange(8).reshape(8, 1, 1) % 3), (0,)),
    Case("reduced twice", lambda g: g.node("ReduceMax", g.node("ReduceSum", g.columns(), g.integers(1), keepdims=0), g.integers(0)), (1,)),
    Case("weight turned round", lambda g: g.node("MatMul", "x", g.node("Transpose", g.weight(6, 8))), (2,)),
    Case("weight of two forms", lambda g: g.node("MatMul", "x", g.node("Identity", g.node("Transpose", g.weight(6, 8), perm=[1, 0]))), (2,)),
    Case("weight for whole rows", lambda g: g.node("Softmax", g.node("Transpose", g.weight(6, 8)))),
    Case("batch of weights", lambda g: g.node("MatMul", g.front(), g.node("Tanh", g.weight(8, 6, 3))), (0,)),
    Case("batches of two axes", lambda g: g.node("MatMul", g.node("Unsqueeze", g.front(), g.integers(0)), g.node("Tanh", g.weight(8, 6, 3))), (1,)),
    Case("weight transposed", lambda g: g.node("MatMul", "x", g.node("Transpose", g.weight(8, 8), perm=[1, 0])), (2,)),
    Case("batch MatMul", lambda g: g.linear("x", 8, 8), (0,), "", "", "batch"),
    Case("batch Softmax 0", lambda g: g.node("Softmax", "x", axis=0), (), "G", "Softmax takes all elements of an axis that is cut", "batch"),
    Case("batch reshape", lambda g: g.node("Reshape", "x", g.integers(-1, 8)), (0,), "", "", "batch"),
    Case("batch gemm", lambda g: g.gemm(g.weight(8, 10), g.weight(10)), (0,), "", "", "batch"),
    Case("batch mean", lambda g: g.node("ReduceMean", "x", g.integers(0)), (), "R", "", "batch"),
    Case("If", lambda g: g.node("TopK", g.columns(), g.integers(2), outputs=2), (), "G", "TopK has no rule for shards"),
    Case("LpNormalization of a batch", _op("LpNormalization", at="x", axis=-1), (0,), "", "", "batch"),
    Case("MaxPool of a batch", _op("MaxPool", at="x", kernel_shape=[2]), (0,), "", "", "batch"),
    Case("LpNormalization", _op("LpNormalization", axis=1), (), "G", "LpNormalization needs its operand whole"),
    Case("sums of summands that are scaled", lambda g: g.node("Add", g.node("Mul", g.weight(8), g.summand()), g.summand()), (), "R"),
    Case("summands that are reduced", lambda g: g.node("Add", g.node("ReduceSum", g.summand(), g.integers(1)), g.node("ReduceSum", g.summand(), g.integers(1))), (), "R"),
    Case("summands of means", lambda g: g.node("Add", g.node("ReduceMean", g.summand(), g.integers(1)), g.node("ReduceMean", g.summand(), g.integers(1))), (), "R"),
    Case("search along the first axis", _op("ArgMax", at="front"), (), "G", "ArgMax takes all elements of an axis that is cut"),
    Case("Add of fewer axes", lambda g: g.node("Add", g.node("ReduceSum", g.middle(), g.integers(0), keepdims=0), g.weight(4, 8, 6)), (1,)),
    Case("one axis", lambda g: g.node("Add", g.node("ReduceSum", g.columns(), g.integers(0, 1), keepdims=0), g.node("ReduceSum", "x", g.integers(0, 1), keepdims=0)), (0,)),
    Case("two axes of which the last is cut", lambda g: g.node("Add", g.node("ReduceSum", g.columns(), g.integers(0), keepdims=0), g.node("ReduceSum", "x", g.integers(0), keepdims=0)), (), "G"),
    Case("columns of a second factor", lambda g: g.node("Gemm", g.node("Tanh", g.weight(5, 24)), g.node("Reshape", g.columns(), g.integers(24, 8))), (1,)),
    Case("Gemm twice what is added", lambda g: g.node("Gemm", g.gemm(g.weight(8, 10)), g.weight(10, 6), g.weight(6), beta=2.0), (), "R"),
    Case("weights in batches", lambda g: g.node("MatMul", "x", g.node("Transpose", g.weight(4, 8, 8), perm=[0, 2, 1])), (2,)),
    Case("Gather behind what is cut", lambda g: g.node("Gather", g.front(), g.integers(3, 0), axis=1), (0,)),
    Case("Gather of two axes behind what is cut", lambda g: g.node("Gather", g.front(), g.constant(np.array([[3, 0, 1]])), axis=2), (0,)),
    Case("Gather along pieces of several", lambda g: g.node("Gather", g.node("Transpose", twice(g), perm=[2, 0, 1]), g.integers(0, 9)), (), "G", "Gather chooses along an axis that is cut"),
    Case("tied table by short indices", lambda g: g.node("MatMul", g.node("Tanh", words(g, (table := g.weight(12, 8)), np.int32)), g.node("Transpose", table, perm=[1, 0])), (2,), "R"),
    Case("tied table that is cast", lambda g: g.node("MatMul", g.node("Tanh", words(g, (table := g.weight(12, 8)))), g.node("Transpose", g.node("Cast", table, to=11), perm=[1, 0])), (2,), "R"),
    Case("ScatterElements of fewer columns", lambda g: g.node("ScatterElements", g.columns(), g.constant(np.zeros((4, 6, 4), np.int64)), g.weight(4, 6, 4), axis=1), (), "G", "ScatterElements chooses along an axis that is cut"),
    Case("ScatterND whole", lambda g: g.node("ScatterND", "x", g.constant(np.array([[1], [3]])), g.node("Tanh", g.weight(2, 6, 8)))),
    Case("ScatterND own rows in another order", lambda g: own(g, np.zeros((8, 1, 1), np.int64), order=-1), (), "G", "ScatterND writes where its indices say"),
    Case("ScatterND of updates that are cut", lambda g: own(g, np.arange(8).reshape(8, 1, 1) % 3, data=g.node("Transpose", "x", perm=[2, 0, 1]), updates=g.node("ReduceSum", g.front(), g.integers(1))), (0,)),
    Case("ScatterND own rows that differ within an RDU", lambda g: pairs(g, [0, 0, 1, 1, 0, 0, 0, 0]), (0,)),
    Case("ScatterND own rows that differ between RDUs", lambda g: pairs(g, [0, 0, 0, 0, 1, 1, 1, 1]), (0,)),
    Case("ScatterND of rows that are cut", lambda g: g.node("ScatterND", g.node("Transpose", "x", perm=[2, 0, 1]), g.node("Concat", g.constant(np.arange(8).reshape(8, 1)), g.constant(np.arange(8).reshape(8, 1) % 3), axis=-1), g.node("ReduceSum", g.front(), g.integers(1), keepdims=0)), (0,)),
    Case("Split of blocks", blocks, (2,)),
    Case("Split in unequal parts", lambda g: g.node("Split", twice(g), g.integers(3, 13), axis=2, outputs=2), (), "G", "Split takes pieces that RDUs have in unequal parts"),
    Case("Slice of two axes", lambda g: g.node("Slice", twice(g), g.integers(1, 8), g.integers(4, 16), g.integers(1, 2)), (2,)),
    Case("Slice of half of each", lambda g: g.node("Slice", g.node("Transpose", twice(g), perm=[2, 0, 1]), g.integers(4), g.integers(12), g.integers(0)), (), "G", "Slice takes unequal parts of what RDUs have"),
    Case("Pad with a number", lambda g: g.node("Pad", g.columns(), g.integers(0, 1, 0, 0, 0, 0), g.constant(np.float64(3))), (2,)),
    Case("Pad behind a cut axis", lambda g: g.node("Pad", g.columns(), g.integers(0, 1), "", g.integers(2)), (), "G", "Pad adds to an axis that is cut"),
    Case("Softmax of summands", _op("Softmax", at="summand"), (), "R"),
    Case("two columns on two RDUs", lambda g: g.node("Expand", g.linear("x", 8, 2, bias=False), g.integers(3, 4, 6, 2)), (3,)),
    Case("a number that a node states", lambda g: g.node("Mul", g.columns(), g.node("Constant", value=onnx.numpy_helper.from_array(np.float64(2)))), (2,)),
)
# fmt: on


def became(case: Case) -> tuple[tuple[int, ...], str, str]:
    """Cut the graph of a case for two RDUs, hold what it computes, and return what became of it."""
    graph = Graph()
    result = case.write(graph)
    proto = graph.model({result: ()}, {"x": (onnx.TensorProto.DOUBLE, SHAPE)})
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.output[0].type.tensor_type.ClearField("elem_type")
    proto = onnx.shape_inference.infer_shapes(proto)
    inputs = {"x": np.random.default_rng(1).standard_normal(SHAPE)}
    options = onnxruntime.SessionOptions()  # its own rewrites scale products by factors of float32
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, inputs)
    done = cut_model(proto, 2, case.mode)
    (value,) = done.run(inputs).values()
    np.testing.assert_allclose(value, expected, rtol=1e-11, atol=1e-12)
    kinds = "".join(n.op_type[3] for n in done.model.graph if n.domain == SAMBA_DOMAIN)
    return done.sharded().get(done.outputs[0], ()), kinds, "; ".join(done.cut.reasons)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_operator_beside_what_is_cut(case: Case) -> None:
    assert became(case) == (case.axes, case.exchanges, case.reason)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda g: g.node("MatMul", g.columns(), "u"), "a product has sizes that are not known"),
        (lambda g: g.node("Gemm", g.gemm(g.weight(8, 10)), "u"), "a product has sizes that are not known"),
        (lambda g: g.node("Add", g.columns(), "u"), "Add has sizes that are not known"),
        (lambda g: g.node("Gather", g.columns(), "i"), "Gather has sizes that are not known"),
        (lambda g: g.node("GatherElements", g.columns(), "e"), "GatherElements has sizes that are not known"),
        (lambda g: g.node("ScatterND", g.columns(), "i", "v"), "ScatterND writes where its indices say"),
        (lambda g: g.node("Expand", g.columns(), "i"), "Expand has sizes that are not known"),
        (lambda g: g.node("Reshape", g.columns(), "i"), "Reshape has sizes that are not known"),
        (lambda g: g.node("ReduceSum", g.columns(), "i"), "ReduceSum has sizes that are not known"),
        (lambda g: g.node("Slice", g.columns(), "i", "i"), "Slice takes what is known when it runs only"),
        (lambda g: g.node("Pad", g.columns(), "i"), "Pad adds what is known when it runs only"),
        (lambda g: g.node("Concat", g.columns(), "v", axis=0), "Concat has sizes that are not known"),
        (lambda g: g.node("Split", g.columns(), "i", outputs=2), "Split has sizes that are not known"),
    ],
)  # fmt: skip
def test_what_has_no_known_size_is_whole(write: Callable[[Graph], str], reason: str) -> None:
    graph = Graph()
    result = write(graph)
    floats, integers = onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64
    inputs = {
        "x": (floats, SHAPE), "u": (floats, ("n", "m")), "v": (floats, ("n", 6, 8)),
        "i": (integers, ("n",)), "e": (integers, ("n", "n", "n")),
    }  # fmt: skip
    proto = graph.model({result: ()}, inputs)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    done = cut_model(proto, 2)
    assert list(done.cut.reasons) == [reason]
    assert "".join(n.op_type[3] for n in done.model.graph if n.domain == SAMBA_DOMAIN) == "G"
