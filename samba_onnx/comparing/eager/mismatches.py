"""Holds what a program computed against torch, and says what differs, by how much, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import Tensor, fx

from samba_onnx.comparing.eager.captured_graphs import CapturedGraph, captured_graph, is_faithful
from samba_onnx.comparing.eager.first_difference import first_difference
from samba_onnx.comparing.eager.running import members_of
from samba_onnx.comparing.eager.torch_runs import TorchRuns
from samba_onnx.comparing.expectations import Expectation
from samba_onnx.comparing.judge import Verdict, judge
from samba_onnx.comparing.walk import Difference
from samba_onnx.errors import ExecutionError, ExportMismatchError
from samba_onnx.export.differentiation.recording import BACKWARD
from samba_onnx.export.places import node_place
from samba_onnx.facts.names import GRADIENT, UPDATED, updated_name, written_name
from samba_onnx.facts.tolerances import TIMES_ALLOWED
from samba_onnx.tensor.arrays import to_array


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
    kept = {path: to_array(tensor) for path, tensor in _forgotten(runs).items()}
    known = {**kept, **values}
    verdicts = judge({n: _result(known, n) for n in expected}, Expectation(expected, runs=runs))
    if any(not verdict.passed or verdict.coarse for verdict in verdicts):
        _look_closer(verdicts, runs)
    return {verdict.name: verdict.max_relative_error for verdict in verdicts}


def _look_closer(verdicts: Sequence[Verdict], runs: TorchRuns) -> None:
    """Compare operator by operator, and the graph in float64, where results alone say too little.

    They do if torch itself is unsure of them, and if they are further from float64 than torch's own
    roundings were in the runs that there were.
    """
    evidence = _evidence(runs)
    wrong = [verdict for verdict in verdicts if not verdict.passed]
    small = all(verdict.of_allowed <= TIMES_ALLOWED for verdict in wrong)
    if wrong and not (evidence.is_proof and small):
        raise _error(wrong[0], evidence, runs)
    if evidence.difference is not None:
        raise _operator_error(evidence.difference, runs)
    if evidence.is_faithful is False:
        raise _refusal(
            f"what was captured of {type(runs.module).__name__} computes something else in float64 "
            "than torch does",
            None,
        )


@dataclass(frozen=True)
class _Evidence:
    """What is known besides the results of the whole."""

    graph: CapturedGraph | None = None
    difference: Difference[fx.Node] | None = None
    """The first operator that is translated wrongly."""
    is_translated: bool = False
    """Whether each operator by itself computes what torch does."""
    is_faithful: bool | None = None
    """Whether the graph of them computes in float64 what the module does; None if nobody can say."""

    @property
    def is_proof(self) -> bool:
        """Whether nothing but roundings can be wrong with what was exported."""
        return self.is_translated and bool(self.is_faithful)

    def named_difference(self) -> Difference[fx.Node] | None:
        """Return the operator that an error should name."""
        if self.graph is not None and self.is_translated:  # it may be one that chooses among equals
            return first_difference(self.graph)
        return self.difference

    def explanation(self, difference: Difference[fx.Node] | None) -> str:
        """Return the rest of a sentence that says where a result went wrong."""
        if difference is not None:
            return f"; the first operator that differs is {_where(difference.place)}"
        if self.is_faithful is False:
            return "; what was captured of it differs in float64 already"
        if self.is_translated:
            return "; each operator by itself computes what torch does"
        return ""


def _evidence(runs: TorchRuns) -> _Evidence:
    """Compare operator by operator, and the graph as a whole in float64."""
    graph = captured_graph(runs)
    if graph is None:
        return _Evidence()
    try:
        difference = first_difference(graph, whole_numbers=False)
    except ExecutionError:  # of so many outputs; the graph itself was run before
        return _Evidence(graph, is_faithful=is_faithful(graph, runs))
    if difference is not None:
        return _Evidence(graph, difference)
    return _Evidence(graph, None, True, is_faithful(graph, runs))


def _forgotten(runs: TorchRuns) -> dict[str, Tensor]:
    """Return what the module writes and the program does not know, which stays as it is."""
    members = members_of(runs.module)
    known = {id(members[path]) for path in runs.exported.members.values()}
    written = [path for path in runs.exported.captured.updates if path in members]
    return {path: members[path] for path in written if id(members[path]) not in known}


def _result(values: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any] | None:
    """Return our result of a name; what was accumulated is an update, and what was not written stays.

    Args:
        values: All that the program read and wrote.
        name: As torch's result is called.
    """
    member = name.removesuffix(UPDATED)
    names = (name, updated_name(name), written_name(member), member)
    return next((values[name] for name in names if name in values), None)


def _title(name: str) -> str:
    """Return what a result is to the user."""
    if name.endswith(GRADIENT):
        return f"the gradient of {name.removesuffix(GRADIENT)!r}"
    if name.endswith(UPDATED):
        return f"the new value of {name.removesuffix(UPDATED)!r}"
    return f"output {name!r}"


def _error(verdict: Verdict, evidence: _Evidence, runs: TorchRuns) -> ExportMismatchError:
    """Return an error that names a result, and the first operator that explains it."""
    difference = evidence.named_difference()
    return _refusal(
        f"{_title(verdict.name)} of the exported graph differs from what "
        f"{type(runs.module).__name__} computes in torch: {verdict.extent}"
        f"{evidence.explanation(difference)}",
        difference,
    )


def _operator_error(difference: Difference[fx.Node], runs: TorchRuns) -> ExportMismatchError:
    """Return an error that names an operator."""
    return _refusal(
        f"{_where(difference.place)} in the exported graph differs from what "
        f"{type(runs.module).__name__} computes in torch: {difference.verdict.extent}",
        difference,
    )


def _where(node: fx.Node) -> str:
    """Return an operator and the user's line."""
    backward = "in the backward of what is " if node.meta.get(BACKWARD) else ""
    return f"{node.target} {backward}{node_place(node).phrase}"


def _refusal(text: str, difference: Difference[fx.Node] | None) -> ExportMismatchError:
    node = None if difference is None else difference.place
    return ExportMismatchError(
        f"{text}; write that in another way",
        operator=None if node is None else str(node.target),
        location=None if node is None else node_place(node).line or None,
    )
