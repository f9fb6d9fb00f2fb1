"""Holds what a program computed against torch, and says what differs, by how much, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.naming import place
from samba_onnx.facts.names import GRADIENT, UPDATED, updated_name
from samba_onnx.workflows.checking.first_difference import first_difference
from samba_onnx.workflows.checking.judge import Mismatch, judged
from samba_onnx.workflows.checking.torch_runs import TorchRuns


def compared(
    values: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]], runs: TorchRuns
) -> Mapping[str, float]:
    """Return how far each result of a program is from torch's.

    Args:
        values: All that the program read and wrote, by name.
        expected: torch's results.
        runs: What can tell how exact these are.

    Returns:
        The largest error of each of torch's results, as a fraction of its largest number.

    Raises:
        ExportMismatchError: One of them is further from float64 than torch's own error explains.
    """
    judgement = judged({name: _result(values, name) for name in expected}, runs)
    if judgement.mismatch is not None:
        raise _error(judgement.mismatch, runs)
    return judgement.errors


def _result(values: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any] | None:
    """Return our result of a name; what was accumulated is an update, and what was not written stays.

    Args:
        values: All that the program read and wrote.
        name: As torch's result is called.
    """
    names = (name, updated_name(name), name.removesuffix(UPDATED))
    return next((values[name] for name in names if name in values), None)


def _title(name: str) -> str:
    """Return what a result is to the user."""
    if name.endswith(GRADIENT):
        return f"the gradient of {name.removesuffix(GRADIENT)!r}"
    if name.endswith(UPDATED):
        return f"the new value of {name.removesuffix(UPDATED)!r}"
    return f"output {name!r}"


def _error(mismatch: Mismatch, runs: TorchRuns) -> ExportMismatchError:
    """Return an error that names the first operator whose result differs."""
    first = first_difference(runs.module, runs.leaves, runs.exported)
    operator = location = None
    where = "no single operator differs by itself"
    if first is not None:
        node, amount = first
        operator, location = str(node.target), place(node)
        where = f"the first operator that differs is {operator} at {location}, by {amount:.2g}"
    return ExportMismatchError(
        f"{_title(mismatch.name)} of the exported graph differs from what "
        f"{type(runs.module).__name__} computes in torch: {mismatch.extent}; {where}; write that operator "
        "in another way",
        operator=operator,
        location=location,
    )
