"""Finds the first value of a run that is not a number, or infinite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from samba_onnx.errors import AnomalyError
from samba_onnx.pef.manifest import Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.schedule import Step


def check_outputs(step: Step, symbol: Callable[[str], Symbol], value: Callable[[str], Any]) -> None:
    """Check what a step wrote.

    Args:
        step: The step, which has just run.
        symbol: Returns a symbol by name.
        value: Returns the current value of one of the step's inputs or outputs.

    Raises:
        AnomalyError: An output holds a NaN or an infinite number. Negative infinities alone are
            none in activations: masks are made of them.
    """
    for name in step.outputs:
        anomaly = _anomaly(value(name), masks=symbol(name).kind is SymbolKind.ACTIVATION)
        if anomaly:
            blamed = _first_anomaly((source for source, _ in step.inputs), value)
            raise AnomalyError(
                f"{step.title} of type {step.stages[-1].type.value} made {name!r} with {anomaly}; "
                + (f"its input {blamed} already" if blamed else "all its inputs are finite")
            )


def _first_anomaly(names: Iterable[str], value: Callable[[str], Any]) -> str | None:
    for name in names:
        anomaly = _anomaly(value(name), masks=False)
        if anomaly:
            return f"{name!r} has {anomaly}"
    return None


def _anomaly(value: Any, *, masks: bool) -> str | None:
    """Return what is wrong with a value, in words."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fcV":
        return None
    try:
        finite = np.isfinite(value)
    except TypeError:  # A type of another package, without such numbers.
        return None
    if finite.all():
        return None
    nan = int(np.isnan(value).sum())
    infinite = int(finite.size - finite.sum()) - nan
    if masks and not nan and not (value > 0)[~finite].any():
        return None
    return f"{nan} NaN and {infinite} infinite numbers among {value.size}"
