"""What a run is given, checked before anything on the device changes: the one way in for all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from samba_onnx.runtime.contents import Contents
from samba_onnx.runtime.inputs import check_inputs
from samba_onnx.runtime.mini_batches import argin_series
from samba_onnx.runtime.plans import RunPlan
from samba_onnx.runtime.registers import Registers

__all__ = ["RunValues", "check_values"]


class RunValues(NamedTuple):
    """What a run was given, checked."""

    inputs: Mapping[str, Any]
    """In the order of the graph's inputs; may share the user's memory."""
    argins: Mapping[str, Any]
    """As registers take them."""
    series: Sequence[Mapping[str, Any]]
    """Argins of every mini-batch, where there are several."""


def check_values(
    contents: Contents,
    registers: Registers,
    plan: RunPlan,
    inputs: Mapping[str, Any],
    argins: Mapping[str, Any] | None,
) -> RunValues:
    """Check what a run is given, changing nothing.

    Args:
        contents: Knows which inputs are constants.
        registers: The device's argins.
        plan: What the run executes.
        inputs: Values by name, argins among them.
        argins: Numbers by the names of argins.

    Raises:
        InputError: An input or argin does not exist, or does not fit.
    """
    # Argins first: what they are is known without looking at a single array.
    argins, series = argin_series(argins, plan.batches, registers)
    inputs, numbers = registers.split(inputs, argins)
    return RunValues(check_inputs(plan.specs, contents.without_fixed(inputs)), numbers, series)
