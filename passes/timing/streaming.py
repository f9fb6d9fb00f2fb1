"""The nodes of a section that take values in the order in which an exchange between RDUs brings them, row by row.

Rows are what lies along the last axis. Arithmetic by element, sums and norms along a row, and products whose left
operand they are take one row after the other, and bring results in the same order. A product that sums over rows, as of
queries and keys, or elements in another order need all of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.operator_facts import Kind
from samba_onnx.facts.operators import facts
from samba_onnx.passes.rewrites.rewriting import integer_attribute, static_shape
from samba_onnx.passes.timing.matrix_products import is_row_by_row
from samba_onnx.passes.timing.section_terms import SectionTerms, section_terms
from samba_onnx.pef.stage_records import Streaming
from samba_onnx.pef.target_summary import TargetSummary
from samba_onnx.program.dataflow import reads

__all__ = ["StreamedTerms", "arrives_in_rows", "streamed_nodes", "streamed_terms"]

_ALONG_ROWS: Final = frozenset({"Concat", "Split"})
"""Operators that join and cut rows where all of these stay as they are along the other axes."""


@dataclass(frozen=True)
class StreamedTerms:
    """The part of a section that goes on while an exchange brings rows."""

    terms: SectionTerms
    """What these operators have to do."""
    tiles: int
    """Pieces in which rows arrive."""

    def streaming(self, whole: SectionTerms, target: TargetSummary) -> Streaming:
        """Return what goes on beside the exchange.

        Args:
            whole: What the whole section has to do.
            target: The device's figures.
        """
        # The part is modelled by itself, with fewer values that share a rate: it never takes longer than
        # the whole.
        seconds = min(self.terms.time(target).overlapped, whole.time(target).overlapped)
        return Streaming(seconds, self.tiles)


def streamed_terms(
    nodes: Sequence[ir.Node],
    sums: Collection[ir.Value],
    traffic: Mapping[ir.Value, tuple[str, int]],
    whole: SectionTerms,
    target: TargetSummary,
) -> StreamedTerms | None:
    """Return the part of a section that goes on while values arrive.

    Args:
        nodes: The section's nodes in the order in which they run.
        sums: What the exchanges just before it bring.
        traffic: Tier and bytes of each value that it reads or writes in off-chip memory.
        whole: What all of its nodes have to do.
        target: The device's figures.

    Returns:
        The part; None where nothing goes on, the section takes no time, or the figures of the device do not say what sections take.
    """
    # Nothing begins before the first tile is there, so that with one tile nothing overlaps.
    tiles = None if target.timing is None else _tiles(sums, target.timing.granule)
    streamed = streamed_nodes(nodes, sums) if tiles is not None and tiles > 1 else []
    if not streamed or tiles is None or not whole.executed:
        return None
    touched = {value for node in streamed for value in (*reads(node), *node.outputs)}
    moved: dict[str, list[int]] = {}
    for value, (tier, size) in traffic.items():
        if value in touched:
            moved.setdefault(tier, []).append(size)
    terms = section_terms(streamed, moved, target)
    # At the efficiency of the whole section: its other nodes are on the chip, too.
    return StreamedTerms(replace(terms, alone=whole.alone, streamed=whole.streamed), tiles)


def streamed_nodes(nodes: Sequence[ir.Node], sums: Collection[ir.Value]) -> list[ir.Node]:
    """Return the nodes that need not wait until all rows of some values are there.

    Args:
        nodes: A section's nodes in the order in which they run.
        sums: The values, which arrive row by row.

    Returns:
        The nodes that take rows in their order, and the nodes that read nothing of the values.
    """
    flowing, waiting = set(sums), set[ir.Value]()
    rows = min((_rows(value) for value in sums), default=0)
    streamed: list[ir.Node] = []
    for node in nodes:
        operands = set(reads(node))
        if not operands.isdisjoint(waiting):
            waiting.update(node.outputs)
        # It waits for nothing of the exchange.
        elif operands.isdisjoint(flowing):
            streamed.append(node)
        elif _takes_rows(node, flowing, rows):
            streamed.append(node)
            flowing.update(node.outputs)
        else:
            waiting.update(node.outputs)
    return streamed


def arrives_in_rows(node: ir.Node) -> bool:
    """Return whether an exchange brings rows in their order: none that gathers whole rows from others."""
    return _same_rows(node.inputs[0], node.outputs[0])


def _takes_rows(node: ir.Node, flowing: Collection[ir.Value], rows: int) -> bool:
    """Return whether a node takes the rows of its flowing operands, ``rows`` in number, one after the other."""
    row = facts(node.op_type, node.domain)
    places = [place for place, value in enumerate(node.inputs) if value in flowing]
    if row is None or not places:  # unknown, or read by a body alone
        return False
    operands = [node.inputs[place] for place in places]
    kept = all(_same_rows(value, result) for value in operands for result in node.outputs)
    if row.kind is Kind.VIEW:
        # A view that joins rows has none before several are there.
        return places == [0] and _rows(node.outputs[0]) >= rows
    if row.kind is Kind.ELEMENTWISE or node.op_type in _ALONG_ROWS:
        return kept
    # The right operand is summed along rows, of which a product needs all.
    if node.op_type == "MatMul":
        return kept and places == [0]
    if node.op_type == "Gemm":
        return kept and 0 in places and 1 not in places and not integer_attribute(node, "transA", 0)
    if row.kind is Kind.REDUCE:
        return kept and places == [0] and _row_sums(node)
    return kept and places == [0] and is_row_by_row(node)


def _row_sums(node: ir.Node) -> bool:
    """Return whether a reduction, which keeps the number of axes, leaves one element of each row."""
    after = static_shape(node.outputs[0])
    return after is not None and after[-1:] == (1,)


def _same_rows(before: ir.Value | None, after: ir.Value) -> bool:
    """Return whether two values have the same axes but for the last one."""
    left, right = static_shape(before), static_shape(after)
    if left is None or right is None:
        return False
    return len(left) > 1 and tuple(left[:-1]) == tuple(right[:-1]) and len(left) == len(right)


def _tiles(sums: Collection[ir.Value], granule: int) -> int:
    """Return the pieces in which rows arrive: as many rows each as a product takes at a time."""
    return min((-(-_rows(value) // granule) for value in sums), default=0)


def _rows(value: ir.Value) -> int:
    """Return how many rows a value has; 0 where nobody knows."""
    shape = static_shape(value)
    return 0 if shape is None else math.prod(shape[:-1])
