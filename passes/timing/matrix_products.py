"""Matrix products and what computes as they do: their sizes, and how well they fill a device.

A compute unit executes products of a *granule* of rows, columns and depth at a time, as a systolic array.
Sizes are rounded up to it, and a product of fewer granules than there are compute units leaves some of them
idle. Where that costs more than going through the elements one by one, the units work as vector units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.domains import normal_domain
from samba_onnx.facts.dtypes import plain_name
from samba_onnx.facts.families import CONVOLUTIONS, MATRIX_PRODUCTS, PRODUCTS, REARRANGING
from samba_onnx.facts.operator_facts import Kind
from samba_onnx.facts.operators import facts
from samba_onnx.passes.rewrites.rewriting import integer_attribute
from samba_onnx.passes.timing.node_work import node_flops, value_bytes
from samba_onnx.pef.target_summary import TargetSummary, TimingFigures
from samba_onnx.program.dataflow import dimensions
from samba_onnx.program.repetition import repetition

__all__ = [
    "ProductSize", "is_product", "is_row_by_row", "looked_up", "node_dtype", "product_size", "renames",
    "static_sizes", "stationary", "units_of", "widened_for",
]  # fmt: skip

_ROW_BY_ROW: Final = frozenset({"LayerNormalization", "LogSoftmax", "RMSNormalization", "Softmax"})
# Sums by element may join all layers of a model: without a bound each product would look at all of it.
_NEAR: Final = 64
"""Values that are looked at to find out what a product streams its rows from or to."""

_LOOKUPS: Final = frozenset({"Gather", "GatherElements", "GatherND"})


@dataclass(frozen=True)
class ProductSize:
    """How many products an operator executes, and of which size."""

    count: int
    """Products of the same size."""
    rows: int
    """Rows of each."""
    depth: int
    """Elements that are summed up for each result."""
    columns: int
    """Columns of each."""

    def granules(self, granule: int) -> int:
        """Return how many granules all products take, with sizes rounded up to whole ones."""
        sizes = (self.rows, self.depth, self.columns)
        return self.count * math.prod(-(-size // granule) for size in sizes)

    def filled_flops(self, timing: TimingFigures) -> int:
        """Return the operations that the device could have done in the time of these at its best.

        Args:
            timing: Figures of the device.

        Returns:
            Those of all granules, and at least of one granule for each compute unit.
        """
        # Units without a granule wait until the others are done.
        busy = max(self.granules(timing.granule), timing.compute_units)
        return 2 * timing.granule**3 * busy


def is_product(node: ir.Node) -> bool:
    """Return whether a node computes as matrix products do."""
    return node.op_type in PRODUCTS and not normal_domain(node.domain)


def widened_for(node: ir.Node) -> ir.Node | None:
    """Return the product for which alone a node widens an operand: a Cast of bfloat16 to float32.

    A device has no such operator: its products read bfloat16, and add up in float32.

    Args:
        node: A node with inferred types.

    Returns:
        The product; None for another node, and for a Cast that others read, too.
    """
    source = node.inputs[0] if node.op_type == "Cast" and not normal_domain(node.domain) else None
    if source is None or source.dtype != ir.DataType.BFLOAT16:
        return None
    result = node.outputs[0]
    readers = {use.node for use in result.uses()}
    if result.dtype != ir.DataType.FLOAT or len(readers) != 1 or result.is_graph_output():
        return None
    (reader,) = readers
    return reader if is_product(reader) else None


def node_dtype(node: ir.Node) -> str:
    """Return the data type that a node computes in, as the target's peak figures name it.

    Args:
        node: A node with inferred types.

    Returns:
        The type of its first floating-point operand or result (``bfloat16``, ``float32``), else of
        its first typed operand or result (``int64``); empty where no type is known. A product of bfloat16
        that returns float32 reads it through Casts, and is one in ``bfloat16`` all the same: the device
        adds up in float32 anyway.
    """
    if is_product(node) and all(map(_is_widened, filter(None, node.inputs))):
        return "bfloat16"
    types = [
        value.dtype
        for value in (*node.inputs, *node.outputs)
        if value is not None and value.dtype is not None
    ]
    # Floats first: indices and masks stand beside the numbers that a node computes with.
    for dtype in types:
        if dtype.is_floating_point():
            return plain_name(dtype.name)
    return plain_name(types[0].name) if types else ""


def _is_widened(value: ir.Value) -> bool:
    """Return whether a value is a bfloat16 one in float32."""
    producer = value.producer()
    source = producer.inputs[0] if producer is not None and producer.op_type == "Cast" else None
    return source is not None and source.dtype == ir.DataType.BFLOAT16


def product_size(node: ir.Node) -> ProductSize | None:
    """Return the size of the products that a node executes.

    Args:
        node: A node with inferred shapes.

    Returns:
        The size; None for a node that is no product, or of which only its operations are known: one
        with an unknown shape, attention, and what repeats products in steps.
    """
    if not is_product(node) or not node_flops(node):
        return None
    result = static_sizes(node.outputs[0])
    # A kernel of a ConvTranspose has its input channels first: none of the sizes below would be right.
    if node.op_type in CONVOLUTIONS - {"ConvTranspose"}:
        kernels = static_sizes(node.inputs[3 if node.op_type == "QLinearConv" else 1])
        if not kernels or not result:
            return None
        groups = max(integer_attribute(node, "group", 1), 1)
        columns = max(kernels[0] // groups, 1)
        # Each place of the result is a row: a convolution is the product of patches with its kernels.
        rows = math.prod(result) // max(kernels[0], 1)
        return ProductSize(groups, rows, math.prod(kernels[1:]), columns)
    if node.op_type not in MATRIX_PRODUCTS or not result:
        return None
    left = static_sizes(node.inputs[0])
    # Behind the scale and the zero point of the first operand, where there are such.
    right = static_sizes(node.inputs[3 if node.op_type == "QLinearMatMul" else 1])
    if len(left) < 2 or len(right) < 2:
        return None
    depth = left[0] if integer_attribute(node, "transA", 0) else left[-1]
    if math.prod(right[:-2]) == 1:  # rows of all products meet the same columns: one product
        return ProductSize(1, math.prod(result[:-1]), depth, result[-1])
    return ProductSize(math.prod(result[:-2]), result[-2], depth, result[-1])


def stationary(node: ir.Node, tile: int) -> tuple[ir.Value, int] | None:
    """Return what a product keeps on the chip while the rest of it streams past.

    Args:
        node: Any node.
        tile: Bytes of a value that are on the chip at a time while it streams.

    Returns:
        The smallest of both operands and the result, and its bytes: a weight in a forward graph, its
        gradient where that is computed. But where rows are to stream past, since another operator makes or takes
        them whole, as a softmax does, the second operand. Of several products that share nothing, what one of
        them keeps. None for a node that is no product of two operands.
    """
    if not is_product(node) or len(node.inputs) < 2:
        return None
    size = product_size(node)
    values = [value for value in (*node.inputs[:2], node.outputs[0]) if value is not None]
    sizes = {value: value_bytes(value) for value in values}
    known = {value: number for value, number in sizes.items() if number is not None}
    if size is None or len(known) < len(values):
        return None
    # What is kept takes room for as long as the section runs, what streams past only that of a tile.
    value = min(known, key=lambda each: known[each])
    if node.op_type in MATRIX_PRODUCTS and _streams_rows(node, value, tile):
        value = values[1]
    return value, -(-known[value] // size.count)


def _streams_rows(node: ir.Node, kept: ir.Value, tile: int) -> bool:
    """Return whether a product has to go through its rows although it keeps no second operand.

    One that keeps its first operand makes column after column of the result, and one that keeps the result takes
    column after column of the first operand. Neither goes with an operator of whole rows.
    """
    (left, right), result = node.inputs[:2], node.outputs[0]
    if kept is right or left is None or integer_attribute(node, "transA", 0):
        return False
    streamed, neighbours = (result, _readers) if kept is left else (left, _writers)
    return (value_bytes(streamed) or 0) > tile and _meets_whole_rows(streamed, neighbours)


def _readers(value: ir.Value) -> list[tuple[ir.Node, Sequence[ir.Value]]]:
    return [(use.node, use.node.outputs) for use in value.uses()]


def _writers(value: ir.Value) -> list[tuple[ir.Node, Sequence[ir.Value]]]:
    node = value.producer()
    return [] if node is None else [(node, [v for v in node.inputs if v is not None])]


def _meets_whole_rows(
    value: ir.Value, neighbours: Callable[[ir.Value], list[tuple[ir.Node, Sequence[ir.Value]]]]
) -> bool:
    """Return whether elementwise operators lead from a value to one that takes or makes whole rows."""
    pending, seen = [value], {value}
    # Elementwise operators pass rows on as they come, so that the order is decided behind them.
    while pending and len(seen) < _NEAR:
        for node, beyond in neighbours(pending.pop()):
            if _takes_whole_rows(node):
                return True
            row = facts(node.op_type, node.domain)
            if row is not None and (row.kind is Kind.ELEMENTWISE or renames(node)):
                pending += [v for v in beyond if v not in seen]
                seen.update(beyond)
    return False


def _takes_whole_rows(node: ir.Node) -> bool:
    """Return whether each row of the first operand is needed whole before its result is known."""
    if normal_domain(node.domain) or not node.inputs:
        return False
    if is_row_by_row(node):
        return True
    row, shape, result = (
        facts(node.op_type),
        static_sizes(node.inputs[0]),
        static_sizes(node.outputs[0]),
    )
    reduces = row is not None and row.kind is Kind.REDUCE and len(shape) > 1 and shape[-1] > 1
    return reduces and result in (shape[:-1], (*shape[:-1], 1))


def is_row_by_row(node: ir.Node) -> bool:
    """Return whether a node normalises each row, which is of the last axis, by itself."""
    if node.op_type not in _ROW_BY_ROW:
        return False
    return integer_attribute(node, "axis", -1) in (-1, len(static_sizes(node.inputs[0])) - 1)


def renames(node: ir.Node) -> bool:
    """Return whether a node gives elements other places only, which its readers take into their addresses."""
    row = facts(node.op_type, node.domain)
    return row is not None and row.name in REARRANGING


def units_of(node: ir.Node, target: TargetSummary) -> int:
    """Return how many compute units a node needs of a section.

    Args:
        node: Any node.
        target: The device's figures.

    Returns:
        0 for a node that only renames elements. A product that keeps more than the memory units
        beside its compute units hold twice, to be filled while they are read, needs more of them. What is
        repeated needs those of its body: all of it is on the chip, for every step.
    """
    timing = target.timing
    repeated = repetition(node)
    if repeated is not None:
        return sum(units_of(inner, target) for inner in repeated.body)
    if timing is None or renames(node):
        return 0
    # Elements are taken as they come, whatever their number: such a stage of the pipeline keeps nothing.
    if not is_product(node):
        return timing.operator_units
    own = stationary(node, timing.tile_bytes)
    kept = 0 if own is None else own[1]
    beside = max(target.tier("sram").bytes // timing.compute_units, 1)
    return max(timing.product_units, -(-2 * kept // beside))


def looked_up(node: ir.Node) -> ir.Value | None:
    """Return the table of which a node reads a few rows only; None for one that reads all it is given."""
    if node.op_type in _LOOKUPS and not normal_domain(node.domain):
        return node.inputs[0]
    return None


def static_sizes(value: ir.Value | None) -> tuple[int, ...]:
    """Return a shape of known sizes; empty where one is not known.

    Args:
        value: A value, or an operand that is left out.
    """
    shape = None if value is None else dimensions(value)
    sizes = tuple(size for size in shape or () if isinstance(size, int))
    return sizes if len(sizes) == len(shape or ()) else ()
