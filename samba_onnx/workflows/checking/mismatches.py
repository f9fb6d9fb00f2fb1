"""Holds what a program computed against torch, and says what differs, by how much, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from torch import fx

from samba_onnx.errors import ExportMismatchError
from samba_onnx.export.differentiation.recording import BACKWARD
from samba_onnx.export.naming import place
from samba_onnx.facts.names import GRADIENT, UPDATED, updated_name
from samba_onnx.workflows.checking.captured_graphs import captured_graph
from samba_onnx.workflows.checking.first_difference import OperatorDifference, first_difference
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
    if judgement.coarse:
        _refuse_wrong_operator(runs)
    return judgement.errors


def _refuse_wrong_operator(runs: TorchRuns) -> None:
    """Compare what torch itself is unsure of operator by operator, where it is not."""
    graph = captured_graph(runs)
    if graph is None:
        return
    difference = first_difference(graph, whole_numbers=False)
    if difference is not None:
        raise _operator_error(difference, runs)


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
    """Return an error that names a result, and the first operator that explains it."""
    graph = captured_graph(runs)
    difference = None if graph is None else first_difference(graph)
    where = "each operator by itself computes what torch does"
    if difference is not None:
        where = f"the first operator that differs is {_where(difference.node)}"
    return _refusal(
        f"{_title(mismatch.name)} of the exported graph differs from what "
        f"{type(runs.module).__name__} computes in torch: {mismatch.extent}; {where}",
        difference,
    )


def _operator_error(difference: OperatorDifference, runs: TorchRuns) -> ExportMismatchError:
    """Return an error that names an operator."""
    return _refusal(
        f"{_where(difference.node)} in the exported graph differs from what "
        f"{type(runs.module).__name__} computes in torch: {difference.mismatch.extent}",
        difference,
    )


def _where(node: fx.Node) -> str:
    """Return an operator and the user's line."""
    backward = "the backward of " if node.meta.get(BACKWARD) else ""
    return f"{node.target} at {backward}{place(node)}"


def _refusal(text: str, difference: OperatorDifference | None) -> ExportMismatchError:
    node = None if difference is None else difference.node
    return ExportMismatchError(
        f"{text}; write that in another way",
        operator=None if node is None else str(node.target),
        location=None if node is None else place(node),
    )
