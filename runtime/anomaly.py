"""Finds the first value of a run that is not a number, or infinite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from samba_onnx.errors import AnomalyError
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.schedule import Step

_KINDS: Final = "fcV"
"""numpy's kinds of numbers that may be infinite; V is ml_dtypes' own."""


def input_anomaly(step: Step, value: Callable[[str], Any]) -> str | None:
    """Return what is wrong with the inputs of a step that is about to run, in words.

    Afterwards would be too late: a step may write where an input was.

    Args:
        step: The step.
        value: Returns the current value of one of the step's inputs.

    Returns:
        A clause that names the first input with a NaN or an infinite number; None if there is none.
    """
    for name, _ in step.inputs:
        anomaly = _anomaly(value(name), masks=False)
        if anomaly:
            return f"{name!r} has {anomaly}"
    return None


def check_outputs(
    step: Step,
    symbol: Callable[[str], Symbol],
    value: Callable[[str], Any],
    blamed: str | None,
) -> None:
    """Check what a step wrote.

    Args:
        step: The step, which has just run.
        symbol: Returns a symbol by name.
        value: Returns the current value of one of the step's outputs.
        blamed: What ``input_anomaly`` returned before the step ran.

    Raises:
        AnomalyError: An output holds a NaN or an infinite number. Negative infinities alone are
            none in activations: masks are made of them.
    """
    for name in step.outputs:
        anomaly = _anomaly(value(name), masks=symbol(name).kind is SymbolKind.ACTIVATION)
        if anomaly:
            raise AnomalyError(
                f"{step.title} of type {step.stages[-1].type.value} made {name!r} with {anomaly}; "
                + (f"its input {blamed} already" if blamed else "all its inputs are finite")
            )


def _anomaly(value: Any, *, masks: bool) -> str | None:
    """Return what is wrong with a value, in words."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in _KINDS:
        return None
    try:
        finite = np.isfinite(value)
    except TypeError:  # A type of another package, without such numbers.
        return None
    if finite.all() or (masks and (finite | (value == -np.inf)).all()):
        return None
    nan = int(np.isnan(value).sum())
    infinite = int(finite.size - finite.sum()) - nan
    return f"{nan} NaN and {infinite} infinite numbers among {value.size}"
