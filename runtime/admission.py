"""What a run is given, checked before anything on the device changes: the one way in for all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from samba_onnx.runtime.contents import Contents
from samba_onnx.runtime.inputs import check_inputs
from samba_onnx.runtime.mini_batches import argin_series
from samba_onnx.runtime.plans import RunPlan
from samba_onnx.runtime.registers import Registers

__all__ = ["Admission", "RunValues"]


class RunValues(NamedTuple):
    """What a run was given, checked."""

    inputs: Mapping[str, Any]
    """In the order of the graph's inputs; may share the user's memory."""
    argins: Mapping[str, Any]
    """As registers take them."""
    series: Sequence[Mapping[str, Any]]
    """Argins of every mini-batch, where there are several."""


class Admission:
    """Checks what runs are given."""

    def __init__(self, contents: Contents, registers: Registers) -> None:
        """Take the parts of a device.

        Args:
            contents: Knows which inputs are constants.
            registers: The argins.
        """
        self._contents = contents
        self._registers = registers

    def check(
        self, plan: RunPlan, inputs: Mapping[str, Any], argins: Mapping[str, Any] | None
    ) -> RunValues:
        """Check what a run is given, changing nothing.

        Args:
            plan: What it executes.
            inputs: Values by name, argins among them.
            argins: Numbers by the names of argins.

        Raises:
            InputError: An input or argin does not exist, or does not fit.
        """
        argins, series = argin_series(argins, plan.batches, self._registers)
        inputs, numbers = self._registers.split(inputs, argins)
        inputs = self._contents.without_fixed(inputs)
        return RunValues(check_inputs(plan.specs, inputs), numbers, series)
