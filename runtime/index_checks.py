"""Checks integers that a run is given, where a module demands a range of them."""

from __future__ import annotations

from typing import Any

import numpy as np

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
        self._part: Any = tuple(slice(*ends) for ends in demand.part)

    def check(self, array: Array) -> None:
        """Check an input.

        Args:
            array: An array of the compiled type and shape.

        Raises:
            InputError: It holds a number that is out of range; the message has the first.
        """
        demand, numbers = self.demand, array[self._part] if self._part else array
        if not numbers.size:
            return
        if demand.lowest <= numbers.min() and numbers.max() <= demand.highest:
            return
        wrong = (numbers < demand.lowest) | (numbers > demand.highest)
        for number in demand.exempt:
            wrong &= numbers != number
        count = int(np.count_nonzero(wrong))
        if count:
            raise InputError(self._message(int(numbers[wrong].flat[0]), count))

    def _message(self, number: int, count: int) -> str:
        demand = self.demand
        besides = "".join(f", or {one}" for one in demand.exempt)
        others = f", and {count - 1} more such" if count > 1 else ""
        return (
            f"input {demand.input!r} holds {number}{others}, which {demand.operator} does not take, here or "
            f"in torch: give numbers from {demand.lowest} to {demand.highest}{besides}"
        )
