"""Intervals of numbers, and those that values of a graph are known to lie in whatever its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.operators import operators
from samba_onnx.facts.records import Kind
from samba_onnx.program.dataflow import dimensions

__all__ = ["Bounds", "Interval", "axis_size"]

_READ: Final = 1 << 20
"""Constants of more elements are not looked at: they are tables, and no offsets or bounds."""


@dataclass(frozen=True)
class Interval:
    """All numbers from ``low`` to ``high``, both included; without arguments all numbers."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def is_empty(self) -> bool:
        """Whether no number lies inside."""
        return self.low > self.high

    @property
    def is_finite(self) -> bool:
        """Whether it has two ends."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def within(self, other: Interval) -> Interval:
        """Return what lies in both, maybe nothing.

        Args:
            other: Another interval.
        """
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def is_inside(self, other: Interval) -> bool:
        """Return whether all of it lies in another one.

        Args:
            other: Another interval.
        """
        return other.low <= self.low and self.high <= other.high

    def plus(self, other: Interval) -> Interval:
        """Return where sums of a number of each lie.

        Args:
            other: Another interval.
        """
        return Interval(self.low + other.low, self.high + other.high)

    def times(self, other: Interval) -> Interval:
        """Return where products of a number of each lie.

        Args:
            other: Another interval.
        """
        products = [
            a * b if a and b else 0.0
            for a in (self.low, self.high)
            for b in (other.low, other.high)
        ]
        return Interval(min(products), max(products))

    def negated(self) -> Interval:
        """Return where the negatives of its numbers lie."""
        return Interval(-self.high, -self.low)

    def hull(self, other: Interval) -> Interval:
        """Return the smallest interval around both.

        Args:
            other: Another interval.
        """
        return Interval(min(self.low, other.low), max(self.high, other.high))


def axis_size(value: ir.Value | None, axis: int) -> int | None:
    """Return the size of an axis; None if it is not known.

    Args:
        value: A tensor.
        axis: The axis; a negative one counts from the end.
    """
    shape = None if value is None else dimensions(value)
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    size = shape[axis]
    return size if isinstance(size, int) else None


class Bounds:
    """What is known of values without knowing the inputs of their graph."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, Interval] = {}

    def of(self, value: ir.Value | None) -> Interval:
        """Return the interval that a value's elements lie in.

        Args:
            value: A value of a graph in which every node stands behind those that it reads.

        Returns:
            All numbers where nothing is known, as for an input of the graph.
        """
        if value is None:
            return Interval()
        pending = [value]
        while pending:
            current = pending[-1]
            node = current.producer()
            missing = [] if node is None or not _computes(node) else self._missing(node)
            if current in self._known or not missing:
                pending.pop()
                if current not in self._known:
                    self._known[current] = self._computed(current, node)
            else:
                pending += missing
        return self._known[value]

    def _missing(self, node: ir.Node) -> list[ir.Value]:
        """Return the operands of a node that nothing is known of yet."""
        return [v for v in node.inputs if v is not None and v not in self._known]

    def _computed(self, value: ir.Value, node: ir.Node | None) -> Interval:
        constant = _content(value)
        if constant is not None:
            return constant
        if value.dtype is ir.DataType.BOOL:
            return Interval(0, 1)
        if node is None or not _computes(node):
            return Interval()
        return _RESULTS[node.op_type](node, self._known)


def _computes(node: ir.Node | None) -> bool:
    return node is not None and node.op_type in _RESULTS


def _content(value: ir.Value) -> Interval | None:
    """Return the ends of a constant of numbers; None for anything else."""
    if value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.dtype is ir.DataType.STRING or not 0 < tensor.size <= _READ:
        return None
    array = tensor.numpy()
    if array.dtype.kind not in "biuf":
        return None
    low, high = float(array.min()), float(array.max())
    return None if math.isnan(low) or math.isnan(high) else Interval(low, high)


_Known = Mapping[ir.Value, Interval]


def _operand(node: ir.Node, index: int, known: _Known) -> Interval:
    value = node.inputs[index] if index < len(node.inputs) else None
    return Interval() if value is None else known[value]


def _same(node: ir.Node, known: _Known) -> Interval:
    return _operand(node, 0, known)


def _sum(node: ir.Node, known: _Known) -> Interval:
    return _operand(node, 0, known).plus(_operand(node, 1, known))


def _difference(node: ir.Node, known: _Known) -> Interval:
    return _operand(node, 0, known).plus(_operand(node, 1, known).negated())


def _product(node: ir.Node, known: _Known) -> Interval:
    return _operand(node, 0, known).times(_operand(node, 1, known))


def _remainder(node: ir.Node, known: _Known) -> Interval:
    divisor = _operand(node, 1, known)
    if node.attributes.get_int("fmod", 0) != 0 or divisor.low <= 0:
        return Interval()
    return Interval(0, divisor.high - 1)


def _clipped(node: ir.Node, known: _Known) -> Interval:
    result = _operand(node, 0, known)
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        low = _operand(node, 1, known).low
        result = Interval(max(result.low, low), max(result.high, low))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        high = _operand(node, 2, known).high
        result = Interval(min(result.low, high), min(result.high, high))
    return result


def _least(node: ir.Node, known: _Known) -> Interval:
    operands = [_operand(node, index, known) for index in range(len(node.inputs))]
    return Interval(min(o.low for o in operands), min(o.high for o in operands))


def _greatest(node: ir.Node, known: _Known) -> Interval:
    operands = [_operand(node, index, known) for index in range(len(node.inputs))]
    return Interval(max(o.low for o in operands), max(o.high for o in operands))


def _either(node: ir.Node, known: _Known) -> Interval:
    return _operand(node, 1, known).hull(_operand(node, 2, known))


def _joined(node: ir.Node, known: _Known) -> Interval:
    result = _operand(node, 0, known)
    for index in range(1, len(node.inputs)):
        result = result.hull(_operand(node, index, known))
    return result


def _running_sum(node: ir.Node, known: _Known) -> Interval:
    element, count = _operand(node, 0, known), _length(node.inputs[0])
    return Interval(min(element.low, element.low * count), max(element.high, element.high * count))


def _length(value: ir.Value | None) -> float:
    """Return the number of elements, which no sum has more of; endless if it is not known."""
    shape = None if value is None else dimensions(value)
    if shape is None or not all(isinstance(size, int) for size in shape):
        return math.inf
    return max(1, math.prod(size for size in shape if isinstance(size, int)))


def _place(node: ir.Node, known: _Known) -> Interval:
    size = axis_size(node.inputs[0], node.attributes.get_int("axis", 0))
    return Interval() if size is None else Interval(0, size - 1)


_FILLED: Final = frozenset({"CenterCropPad", "MaxUnpool", "Pad", "Trilu"})
"""They put other numbers beside the elements that they move."""
_KEPT: Final = (
    operators(kind=Kind.VIEW)
    | operators(kind=Kind.MOVE)
    | {"Cast", "Ceil", "Floor", "ReduceMax", "ReduceMin", "Round"}
) - _FILLED
"""Their results are elements of their first operand, or rounded ones."""

_RESULTS: Final[Mapping[str, Callable[[ir.Node, _Known], Interval]]] = MappingProxyType(
    {
        **dict.fromkeys(_KEPT, _same),
        "Add": _sum,
        "Sub": _difference,
        "Mul": _product,
        "Mod": _remainder,
        "Clip": _clipped,
        "Min": _least,
        "Max": _greatest,
        "Where": _either,
        "Concat": _joined,
        "CumSum": _running_sum,
        "ReduceSum": _running_sum,
        "ArgMax": _place,
        "ArgMin": _place,
    }
)
