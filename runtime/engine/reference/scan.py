"""``Scan`` in numpy: that of ``onnx.reference`` reads and writes forwards only, and along the first axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class Scan(OpRun):
    """The operator from version 9 on, found by its name."""

    op_domain = ""
    body: ReferenceEvaluator  # an attribute of the node, as onnx.reference keeps it
    _run_body: Callable[[Mapping[str, Any]], Sequence[Any]]

    def need_context(self) -> bool:
        """Return that the body may read values of the graph around it."""
        return True

    def _run(
        self,
        *operands: Any,
        context: Mapping[str, Any] | None = None,
        num_scan_inputs: int | None = None,
        scan_input_axes: Sequence[int] | None = None,
        scan_input_directions: Sequence[int] | None = None,
        scan_output_axes: Sequence[int] | None = None,
        scan_output_directions: Sequence[int] | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        """Execute the body for each element.

        Args:
            operands: States, then what is read step by step.
            context: Values around the body by name.
            num_scan_inputs: How many values are read step by step.
            scan_input_axes: Along which axis each of them is.
            scan_input_directions: 1 for one that is read from its end.
            scan_output_axes: Along which axis each value of all steps is put together.
            scan_output_directions: 1 for one whose first step is at its end.
        """
        first = len(operands) - int(num_scan_inputs or 0)
        states, read = list(operands[:first]), operands[first:]
        slices = [
            _slices(value, _at(scan_input_axes, place), _at(scan_input_directions, place))
            for place, value in enumerate(read)
        ]
        written: list[list[Any]] = [[] for _ in self.body.output_names[first:]]
        if written and not len(slices[0]):
            raise RuntimeError("a Scan without steps returns tensors without elements")
        for step in zip(*slices, strict=True):
            values = dict(zip(self.body.input_names, [*states, *step], strict=True))
            results = self._run_body({**(context or {}), **values})
            states = list(results[:first])
            for values_of_all, result in zip(written, results[first:], strict=True):
                values_of_all.append(result)
        stacks = [
            np.stack(
                values[::-1] if _at(scan_output_directions, place) else values,
                axis=_at(scan_output_axes, place),
            )
            for place, values in enumerate(written)
        ]
        return (*states, *stacks)


def _at(numbers: Sequence[int] | None, place: int) -> int:
    """Return an element of an attribute; 0 where it is left out."""
    return 0 if numbers is None else int(numbers[place])


def _slices(value: Any, axis: int, backwards: int) -> list[Any]:
    """Return the elements of a value along an axis, in the order in which they are read."""
    elements = list(np.moveaxis(value, axis, 0))
    return elements[::-1] if backwards else elements
