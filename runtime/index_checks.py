"""Checks integers that a run is given, where a module demands a range of them."""

from __future__ import annotations

from typing import Any

from samba_onnx.errors import InputError
from samba_onnx.program.index_demands import IndexDemand
from samba_onnx.runtime.elements import Array

__all__ = ["IndexCheck"]


class IndexCheck:
    """Refuses what torch refuses as an index, a class or a label.

    A run makes it of every batch: nothing but the least and the greatest number are looked for as long
    as both fit, which takes microseconds for thousands of labels.
    """

    def __init__(self, demand: IndexDemand) -> None:
        """Prepare the check of one demand.

        Args:
            demand: Its part has the axes of the input.
        """
        self.demand = demand
        self._lowest, self._highest = demand.lowest, demand.highest
        self._part: Any = tuple(slice(*ends) for ends in demand.part)

    def check(self, array: Array) -> None:
        """Check an input.

        Args:
            array: An array of the compiled type and shape.

        Raises:
            InputError: It holds a number that is out of range; the message has the first.
        """
        if not self.accepts(array):
            wrong = self._wrong(array)
            raise InputError(self._message(int(wrong[0]), wrong.size))

    def accepts(self, array: Array) -> bool:
        """Return whether an input holds only numbers that are in range.

        Args:
            array: As for :meth:`check`.
        """
        numbers = array[self._part] if self._part else array
        if numbers.size == 1:
            # The label of a batch of one, for which a reduction would take microseconds.
            is_within = self._lowest <= numbers.item() <= self._highest
        else:
            # The least and the greatest number are in range, but for those that are exempt.
            is_within = not numbers.size or bool(
                self._lowest <= numbers.min() and numbers.max() <= self._highest
            )
        return is_within or not self._wrong(array).size

    def _wrong(self, array: Array) -> Array:
        """Return the numbers that are out of range and not exempt."""
        demand, numbers = self.demand, array[self._part] if self._part else array
        wrong = (numbers < demand.lowest) | (numbers > demand.highest)
        for number in demand.exempt:
            wrong &= numbers != number
        return numbers[wrong]

    def _message(self, number: int, count: int) -> str:
        demand = self.demand
        besides = "".join(f", or {one}" for one in demand.exempt)
        others = f", and {count - 1} more such" if count > 1 else ""
        return (
            f"input {demand.input!r} holds {number}{others}, which {demand.operator} does not take, here or "
            f"in torch: give numbers from {demand.lowest} to {demand.highest}{besides}"
        )
