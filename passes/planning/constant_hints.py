"""Finds inputs that would let the RDU run a node that it refuses, if they were constants.

A branch is chosen, a loop counted or a shape computed from a few numbers that an input brings in every run. If a
program never changes them, they may as well be constants, and then the node is one that the RDU runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.families import SIZES
from samba_onnx.passes.planning.placement import Placement
from samba_onnx.passes.rewrites.rewriting import small_array, static_shape
from samba_onnx.passes.targets.reasons import Reason, ReasonCode
from samba_onnx.program.dataflow import dimensions, name_of, reads
from samba_onnx.program.program import Part

__all__ = ["with_constant_hints"]

_MOST_ELEMENTS: Final = 16
"""Elements of an input that somebody would write down: a rate, a switch, sizes; no mask and no data."""
_MOST_NODES: Final = 256
"""Nodes that are looked at for one operand; numbers that decide are computed by few."""
_DECIDING: Final = {"If": (0,), "Loop": (0, 1)}
"""Operands that decide what of a node's graphs is executed: condition; trip count and first condition."""


def with_constant_hints(part: Part, placement: Placement) -> Placement:
    """Add to reasons which inputs to fix as constants, where an input alone decides.

    1. A branch, or how often a body is executed, depends on inputs of a few elements and on nothing else.
    2. So does an operand that the target needs at compile time.
    3. So does a number, by which a node has dimensions that are only known at run time, or some node before it.

    Args:
        part: What the nodes are of. Inputs can be fixed of a model that was given as ONNX; it alone comes with
            its weights, and any other part keeps its reasons.
        placement: The homes of its nodes.
    """
    if not part.has_weights:
        return placement
    # Supports hold the same reasons, for those who ask what the target says: both get the hint.
    hinted = {node: _hinted(node, reason) for node, reason in placement.reasons.items()}
    supports = {
        node: replace(support, reason=hinted[node]) if node in hinted else support
        for node, support in placement.supports.items()
    }
    return Placement(reasons=hinted, supports=supports)


def _hinted(node: ir.Node, reason: Reason) -> Reason:
    operands: Iterable[ir.Value | None] = ()
    if reason.code is ReasonCode.CONTROL_FLOW:  # Case 1
        operands = [
            node.inputs[place]
            for place in _DECIDING.get(node.op_type, ())
            if place < len(node.inputs)
        ]
    elif reason.code is ReasonCode.STATIC_INPUT:  # Case 2
        operands = _numbers(node)
    elif reason.code in (ReasonCode.DYNAMIC_SHAPE, ReasonCode.UNKNOWN_RANK):  # Case 3
        operands = _numbers(_origin(node))
    parts = [_slice(operand) for operand in operands if operand is not None]
    sources = dict.fromkeys(source for inputs, _ in parts for source in inputs)
    if not sources:
        return reason
    value = _compared(node for inputs, nodes in parts if inputs for node in nodes)
    names = sorted(name_of(source) for source in sources)
    options = " ".join(f"--constant {name}={value}" for name in names)
    is_single = len(names) == 1
    what, it = (
        ("this input never changes", "it") if is_single else ("these inputs never change", "them")
    )
    hint = f"if {what}, fix {it}: {options}"
    return replace(reason, hint=f"{hint}; or {reason.hint}" if reason.hint else hint)


def _numbers(node: ir.Node) -> list[ir.Value]:
    """Return the operands of a node that may hold sizes, bounds, axes or a truth value."""
    return [
        value
        for value in node.inputs
        if value is not None
        and value.dtype is not None
        and (value.dtype.is_integer() or value.dtype is ir.DataType.BOOL)
    ]


def _origin(node: ir.Node) -> ir.Node:
    """Return the first node on the way to one with dynamic dimensions that has some although its operands have none."""
    for _ in range(_MOST_NODES):
        before = [
            value.producer() for value in node.inputs if value is not None and _is_dynamic(value)
        ]
        if not before or before[0] is None:
            return node
        # Of several operands with dynamic dimensions the first: one origin to begin with is enough for a
        # hint.
        node = before[0]
    return node


def _is_dynamic(value: ir.Value) -> bool:
    sizes = dimensions(value)
    return sizes is None or not all(isinstance(size, int) for size in sizes)


def _slice(operand: ir.Value) -> tuple[tuple[ir.Value, ...], frozenset[ir.Node]]:
    """Return the inputs that an operand is computed from, all of them small, and the nodes that compute it.

    There are no inputs where it needs anything else, or sizes of something.
    """
    sources: dict[ir.Value, None] = {}
    nodes: set[ir.Node] = set()
    waiting = [operand]
    while waiting:
        value = waiting.pop()
        producer = value.producer()
        if producer is not None:
            # No constant changes a size: for these the reason has a hint of its own, with --dim.
            if producer.op_type in SIZES or len(nodes) > _MOST_NODES:
                return (), frozenset()
            if producer not in nodes:
                nodes.add(producer)
                waiting += reads(producer)
        # What has neither a producer nor the place of an input is a constant already.
        elif value.is_graph_input():
            shape = static_shape(value)
            if shape is None or math.prod(shape) > _MOST_ELEMENTS:
                return (), frozenset()
            sources[value] = None
    return tuple(sources), frozenset(nodes)


def _compared(nodes: Iterable[ir.Node]) -> str:
    """Return the number that nodes compare with, if it is one; else a word that stands for the user's."""
    # A comparison with one number, as of a mode with 2, says which value the model was written for.
    numbers = {
        str(array.item())
        for node in nodes
        if node.op_type == "Equal"
        for array in map(small_array, node.inputs)
        if array is not None and array.size == 1
    }
    return numbers.pop() if len(numbers) == 1 else "VALUE"
