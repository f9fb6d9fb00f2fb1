"""Which floating-point numbers a graph is defined for: the ranges of inputs of logarithms and roots.

A normally distributed input of a logarithm is no number half of the time, and two things that are no
numbers look alike. Unlike places in tables, a range is followed backwards only where every number of it
stays legal: through views, and sums and differences with constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.families import MOVING
from samba_onnx.program.bounds import Bounds
from samba_onnx.program.constraints import Demand
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.intervals import Interval
from samba_onnx.program.inversions import INVERSIONS

__all__ = ["float_ranges"]

_DOMAINS: Final[Mapping[str, tuple[int, Interval]]] = MappingProxyType(
    {
        "Acos": (0, Interval(-1, 1)),
        "Acosh": (0, Interval(1)),
        "Asin": (0, Interval(-1, 1)),
        "Atanh": (0, Interval(-1, 1)),
        "BatchNormalization": (4, Interval(0)),
        "Log": (0, Interval(0)),
        "Sqrt": (0, Interval(0)),
    }
)
"""By operator: which operand is limited, and the numbers that it is defined for."""
_VIEWS: Final = MOVING | {"Cast"}
"""Operators whose results are elements of their first operand, or of all of them."""
# Only these two can be undone without leaving what is legal.
_SHIFTS: Final = frozenset({"Add", "Sub"})


def float_ranges(graph: ir.Graph) -> dict[str, Interval]:
    """Return the ranges of the floating-point inputs of a graph whose numbers are limited.

    Args:
        graph: It is looked at, not changed; every node stands behind those that it reads.

    Returns:
        By name of the input; those that take any number are missing.
    """
    demands: dict[ir.Value, Interval] = {}
    bounds = Bounds()
    # From the last node to the first, so that what readers want is known at each.
    for node in reversed(graph):
        for value, interval in _demands(node, demands, bounds):
            both = interval.within(demands.get(value, Interval())) if value is not None else None
            # Two demands that exclude each other cannot both be met; the one of the later node
            # stays.
            if value is not None and both is not None and not both.is_empty:
                demands[value] = both
    return {
        name_of(value): demands[value]
        for value in graph.inputs
        if value in demands and value.dtype is not None and value.dtype.is_floating_point()
    }


def _demands(
    node: ir.Node, demands: Mapping[ir.Value, Interval], bounds: Bounds
) -> Sequence[Demand]:
    """Return what a node wants of its operands."""
    wanted: list[Demand] = []
    if node.op_type in _DOMAINS:
        index, interval = _DOMAINS[node.op_type]
        wanted += [(node.inputs[index], interval)] if index < len(node.inputs) else []
    # Below zero a power with a fraction is no number.
    if node.op_type == "Pow" and not _is_whole(node):
        wanted.append((node.inputs[0], Interval(0)))
    for output in node.outputs:
        if output not in demands:
            continue
        if node.op_type in _VIEWS:
            # Of a Concat all operands are parts of the result, elsewhere further operands are
            # shapes and indices.
            moved = node.inputs if node.op_type == "Concat" else node.inputs[:1]
            wanted += [(value, demands[output]) for value in moved]
        elif node.op_type in _SHIFTS and any(bounds.of(v).is_finite for v in node.inputs):
            wanted += INVERSIONS[node.op_type](node, demands[output], bounds)
    return wanted


def _is_whole(node: ir.Node) -> bool:
    """Return whether a power is taken with whole numbers, which is defined for any base."""
    exponent = node.inputs[1] if len(node.inputs) > 1 else None
    tensor = None if exponent is None else ir.convenience.get_const_tensor(exponent)
    # An exponent of more elements is data, and no constant of a formula.
    if tensor is None or tensor.size > 64:
        return False
    return all(float(number).is_integer() for number in tensor.numpy().reshape(-1))
