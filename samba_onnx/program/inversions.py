"""What operands must lie in, so that a result lies in an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.families import MOVING
from samba_onnx.program.bounds import Bounds, summands
from samba_onnx.program.constraints import Demand
from samba_onnx.program.intervals import Interval

__all__ = ["INVERSIONS"]


def _first(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    """Views, and operators that pick elements of their first operand or round them."""
    return [(node.inputs[0], wanted)]


def _every(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    return [(operand, wanted) for operand in node.inputs]


def _choice(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    """Where, unless it turns indices that count from the end into others: then those from 0 on do."""
    condition = node.inputs[0]
    test = None if condition is None else condition.producer()
    first, other = node.inputs[1], node.inputs[2]
    is_comparison = test is not None and test.op_type == "Less" and test.inputs[0] is other
    if test is not None and is_comparison and bounds.of(test.inputs[1]) == Interval(0, 0):
        return [(other, Interval(max(0, wanted.low), wanted.high))]
    return [(first, wanted), (other, wanted)]


def _replaced(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    """ScatterElements, ScatterND: elements of the first and of the third operand."""
    return [(node.inputs[0], wanted), (node.inputs[2], wanted)]


def _sum(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    return _summands(wanted, bounds, node.inputs[0], node.inputs[1])


def _summands(
    wanted: Interval, bounds: Bounds, left_operand: ir.Value | None, other: ir.Value | None
) -> Sequence[Demand]:
    first, second = bounds.of(left_operand), bounds.of(other)
    if second.is_finite:
        return [(left_operand, Interval(wanted.low - second.low, wanted.high - second.high))]
    if first.is_finite:
        return [(other, Interval(wanted.low - first.low, wanted.high - first.high))]
    half = Interval(wanted.low / 2, wanted.high / 2)  # of two unknown ones, each a half
    return [(left_operand, half), (other, half)]


def _difference(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    one, other = node.inputs[0], node.inputs[1]
    first, second = bounds.of(one), bounds.of(other)
    if second.is_finite:
        return [(one, Interval(wanted.low + second.high, wanted.high + second.low))]
    if first.is_finite:
        return [(other, Interval(first.high - wanted.high, first.low - wanted.low))]
    return []


def _product(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    # A factor of unknown sign would turn the interval around.
    for one, other in ((0, 1), (1, 0)):
        factor = bounds.of(node.inputs[other])
        if factor.is_finite and factor.low >= 0 and factor.high > 0:
            return [(node.inputs[one], _quotients(wanted, factor))]
    if wanted.low <= 0 <= wanted.high:
        # Both factors are unknown: each from 0 to the root keeps the product inside.
        root = Interval(0, math.isqrt(int(min(wanted.high, 1 << 62))))
        return [(node.inputs[0], root), (node.inputs[1], root)]
    return []


def _quotients(wanted: Interval, factor: Interval) -> Interval:
    """Return what stays in the interval whatever number of ``factor``, none negative, it is times."""
    if not wanted.low <= 0 <= wanted.high and not factor.low:
        return Interval(math.inf, -math.inf)  # zero times anything is not inside
    # Towards zero the largest factor is the worst case, away from it the smallest.
    low = wanted.low / (factor.high if wanted.low <= 0 else factor.low)
    high = wanted.high / (factor.high if wanted.high >= 0 else factor.low)
    return Interval(low, high)


def _quotient(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    divisor = bounds.of(node.inputs[1])
    if not divisor.is_finite or divisor.low <= 0:
        return []
    low = wanted.low * (divisor.low if wanted.low <= 0 else divisor.high)
    # Division cuts towards zero, so that a little more than the product still gives the same
    # quotient.
    high = wanted.high * divisor.low + divisor.low - 1 if wanted.high >= 0 else -math.inf
    return [(node.inputs[0], Interval(low, high))]


def _remainder(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    """Mod: numbers that the divisor leaves as they are."""
    return [(node.inputs[0], Interval(max(wanted.low, 0), wanted.high))]


def _negative(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    return [(node.inputs[0], wanted.negated())]


def _size(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    # The negative half may be as long as the positive one where zero is wanted.
    low = -wanted.high if wanted.low <= 0 else wanted.low
    return [(node.inputs[0], Interval(low, wanted.high))]


def _addends(node: ir.Node, wanted: Interval, bounds: Bounds) -> Sequence[Demand]:
    """CumSum, ReduceSum: each element gets an equal share of what the sum may be."""
    value = node.inputs[0]
    count = summands(node)
    # Without zero in the interval the share of an element depends on all others.
    if value is None or count is None or not wanted.low <= 0 <= wanted.high:
        return []
    return [(value, Interval(wanted.low / count, wanted.high / count))]


_KEPT: Final = MOVING | {"Cast", "Ceil", "Floor", "ReduceMax", "ReduceMin", "Round"}
"""Operators whose results are elements of their first operand, or such elements rounded."""

INVERSIONS: Final[Mapping[str, Callable[[ir.Node, Interval, Bounds], Sequence[Demand]]]] = (
    MappingProxyType(
        {
            **dict.fromkeys(_KEPT, _first),
            **dict.fromkeys(("Concat", "Min", "Max"), _every),
            "Clip": _first,
            "Abs": _size,
            "Add": _sum,
            "CumSum": _addends,
            "Div": _quotient,
            "Mod": _remainder,
            "Mul": _product,
            "Neg": _negative,
            "ReduceSum": _addends,
            "ScatterElements": _replaced,
            "ScatterND": _replaced,
            "Sub": _difference,
            "Where": _choice,
        }
    )
)
"""By operator: what its operands must lie in for its result to lie in an interval."""
