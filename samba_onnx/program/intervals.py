"""Intervals of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.program.dataflow import dimensions

__all__ = ["Interval", "axis_size", "reduced_sizes"]


@dataclass(frozen=True)
class Interval:
    """All numbers from ``low`` to ``high``, both included; without arguments all numbers.

    Ends of integers are of type ``int``, so that they are exact beyond 2^53, too.
    """

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
            # Infinity times zero would be NaN; an end that is zero makes zero of every number.
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


def reduced_sizes(node: ir.Node) -> list[int | None]:
    """Return the sizes of the axes that a reduction or a CumSum runs along; None for those that are not known.

    Args:
        node: Its second operand are axes, if it has any; all axes count where they are no constant.
    """
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    constant = None if axes is None else ir.convenience.get_const_tensor(axes)
    # Without constant axes the count is of all axes, which is never too small.
    if constant is not None and constant.size:
        return [axis_size(node.inputs[0], int(axis)) for axis in constant.numpy().reshape(-1)]
    shape = None if node.inputs[0] is None else dimensions(node.inputs[0])
    if shape is None:
        return [None]
    return [size if isinstance(size, int) else None for size in shape]
