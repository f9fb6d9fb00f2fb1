"""What is said of a mismatch, and when a closer look decides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn

from samba_onnx.comparing.eager import mismatches
from samba_onnx.comparing.eager.mismatches import _Evidence, compared
from samba_onnx.comparing.judge import Verdict
from samba_onnx.comparing.walk import Difference
from samba_onnx.errors import ExecutionError, ExportMismatchError
from samba_onnx.export.differentiation.recording import BACKWARD
from samba_onnx.facts.tolerances import TIMES_ALLOWED

TRACE = 'File "mine.py", line 7, in forward\n    y = x.exp()\n'
GRAPH: Any = "a graph"


def node(*, backward: bool = False, trace: str = TRACE) -> fx.Node:
    graph = fx.Graph()
    one = graph.call_function(torch.ops.aten.exp.default, (graph.placeholder("x"),))
    one.meta = {"stack_trace": trace, BACKWARD: backward}
    return one


def verdict(
    of_allowed: float = 100.0, name: str = "y", extent: str = "it is off", *, coarse: bool = False
) -> Verdict:
    numbers = (0.5, 0.5, 1, 1)
    passed, found = of_allowed <= 1, {"of_allowed": of_allowed, "extent": extent}
    return Verdict(name, "float32", (1,), *numbers, passed=passed, coarse=coarse, **found)  # type: ignore[arg-type]


DIFFERENCE = Difference((node(),), verdict(50.0, "0", "it is off by 0.25"))
PROOF = _Evidence(GRAPH, None, True, True)


@pytest.fixture
def runs() -> Any:
    module = nn.BatchNorm1d(2)
    captured = SimpleNamespace(updates=("running_mean", "running_var", "elsewhere"))
    members = {"norm__running_mean": "running_mean"}
    return SimpleNamespace(
        module=module, exported=SimpleNamespace(captured=captured, members=members)
    )


def look(
    monkeypatch: pytest.MonkeyPatch, runs: Any, verdicts: tuple[Verdict, ...], evidence: _Evidence
) -> int:
    """Return how often a closer look was taken at a judgement."""
    looks: list[Any] = []

    def closer(asked: Any) -> _Evidence:
        looks.append(asked)
        return evidence

    monkeypatch.setattr(mismatches, "judge", lambda ours, asked: verdicts)
    monkeypatch.setattr(mismatches, "_evidence", closer)
    assert compared({}, {}, runs) == {one.name: 0.5 for one in verdicts}
    assert looks in ([], [runs])
    return len(looks)


def refused(
    monkeypatch: pytest.MonkeyPatch, runs: Any, verdicts: tuple[Verdict, ...], evidence: _Evidence
) -> ExportMismatchError:
    with pytest.raises(ExportMismatchError) as caught:
        look(monkeypatch, runs, verdicts, evidence)
    return caught.value


def test_what_agrees_needs_no_closer_look(monkeypatch: pytest.MonkeyPatch, runs: Any) -> None:
    assert look(monkeypatch, runs, (verdict(0.0),), _Evidence()) == 0


def test_a_small_excess_is_torchs_luck_if_all_else_is_right(
    monkeypatch: pytest.MonkeyPatch, runs: Any
) -> None:
    monkeypatch.setattr(mismatches, "first_difference", lambda graph: None)
    small = (verdict(TIMES_ALLOWED), verdict(2.0, "z"))
    assert look(monkeypatch, runs, small, PROOF) == 1
    for evidence in (_Evidence(GRAPH, None, True, None), _Evidence(GRAPH, is_faithful=True)):
        assert "output 'y'" in str(refused(monkeypatch, runs, small, evidence))


def test_a_large_excess_is_refused_whatever_else_is_right(
    monkeypatch: pytest.MonkeyPatch, runs: Any
) -> None:
    monkeypatch.setattr(mismatches, "first_difference", lambda graph: None)
    for several in ((verdict(),), (verdict(2.0), verdict(100.0, "z"))):
        error = refused(monkeypatch, runs, several, PROOF)
        assert str(error) == (
            "output 'y' of the exported graph differs from what BatchNorm1d computes in torch: it is "
            "off; each operator by itself computes what torch does; write that in another way"
        )
        assert (error.operator, error.location) == (None, None)


def test_a_coarse_result_is_looked_at_closely(monkeypatch: pytest.MonkeyPatch, runs: Any) -> None:
    coarse = (verdict(0.5, coarse=True),)
    for fine in (PROOF, _Evidence(), _Evidence(GRAPH, None, True, None)):
        assert look(monkeypatch, runs, coarse, fine) == 1
    error = refused(monkeypatch, runs, coarse, _Evidence(GRAPH, DIFFERENCE))
    assert str(error) == (
        "aten.exp.default at mine.py:7 in the exported graph differs from what BatchNorm1d computes in "
        "torch: it is off by 0.25; write that in another way"
    )
    assert (error.operator, error.location) == ("aten.exp.default", "mine.py:7")
    error = refused(monkeypatch, runs, coarse, _Evidence(GRAPH, None, True, False))
    assert str(error) == (
        "what was captured of BatchNorm1d computes something else in float64 than torch does; write "
        "that in another way"
    )


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (_Evidence(GRAPH, DIFFERENCE), "; the first operator that differs is aten.exp.default at mine.py:7"),
        (_Evidence(GRAPH, is_faithful=False), "; what was captured of it differs in float64 already"),
        (_Evidence(GRAPH, is_faithful=True), ""),
        (_Evidence(), ""),
    ],
    ids=["an operator", "not faithful", "not translated", "nothing"],
)  # fmt: skip
def test_a_mismatch_is_explained(
    evidence: _Evidence, words: str, monkeypatch: pytest.MonkeyPatch, runs: Any
) -> None:
    error = refused(monkeypatch, runs, (verdict(),), evidence)
    text = str(error).removeprefix(
        "output 'y' of the exported graph differs from what BatchNorm1d computes in torch: it is off"
    )
    assert text == f"{words}; write that in another way"
    named = evidence.difference is not None
    assert error.operator == ("aten.exp.default" if named else None)
    assert error.location == ("mine.py:7" if named else None)


def test_where_no_number_is_wrong_a_choice_among_equals_may_be(
    monkeypatch: pytest.MonkeyPatch, runs: Any
) -> None:
    asked: list[Any] = []

    def first_difference(graph: Any) -> Difference[fx.Node]:
        asked.append(graph)
        return DIFFERENCE

    monkeypatch.setattr(mismatches, "first_difference", first_difference)
    error = refused(monkeypatch, runs, (verdict(),), PROOF)
    assert error.operator == "aten.exp.default"
    assert asked == [GRAPH]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("y", "output 'y'"),
        ("m__w__grad", "the gradient of 'm__w'"),
        ("m__w__updated", "the new value of 'm__w'"),
    ],
)
def test_results_have_the_users_names(
    name: str, title: str, monkeypatch: pytest.MonkeyPatch, runs: Any
) -> None:
    error = refused(monkeypatch, runs, (verdict(name=name),), _Evidence())
    assert str(error).startswith(f"{title} of the exported graph differs")


def test_places_are_lines_of_the_user() -> None:
    assert mismatches._where(node()) == "aten.exp.default at mine.py:7"
    backward = mismatches._where(node(backward=True))
    assert backward == "aten.exp.default in the backward of what is at mine.py:7"
    assert mismatches._where(node(trace="")) == "aten.exp.default in the model"


def test_what_the_program_does_not_know_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, runs: Any
) -> None:
    judged: list[dict[str, Any]] = []

    def judge(ours: dict[str, Any], asked: Any) -> tuple[Verdict, ...]:
        judged.append(ours)
        return ()

    monkeypatch.setattr(mismatches, "judge", judge)
    values = {"y": np.array(1.0), "w__grad__updated": np.array(2.0), "v__written": np.array(3.0)}
    names = ("y", "w__grad", "v__updated", "running_var__updated", "running_mean__updated", "z")
    compared(values | {"v": np.array(9.0)}, dict.fromkeys(names, np.array(0.0)), runs)
    (ours,) = judged
    assert (ours["y"], ours["w__grad"], ours["v__updated"]) == (1, 2, 3)
    assert ours["running_var__updated"].tolist() == [1.0, 1.0]
    assert ours["running_mean__updated"] is None  # the program knows it under another name
    assert ours["z"] is None


@pytest.mark.parametrize(
    ("difference", "faithful"), [(DIFFERENCE, None), (None, True), (None, False), (None, None)]
)
def test_the_closer_look(
    difference: Difference[fx.Node] | None,
    faithful: bool | None,
    monkeypatch: pytest.MonkeyPatch,
    runs: Any,
) -> None:
    asked: list[Any] = []

    def first_difference(graph: Any, **options: Any) -> Difference[fx.Node] | None:
        asked.append((graph, options))
        return difference

    monkeypatch.setattr(mismatches, "captured_graph", lambda asked: GRAPH)
    monkeypatch.setattr(mismatches, "first_difference", first_difference)
    monkeypatch.setattr(mismatches, "is_faithful", lambda graph, asked: faithful)
    found = mismatches._evidence(runs)
    assert found == _Evidence(GRAPH, difference, difference is None, faithful)
    assert asked == [(GRAPH, {"whole_numbers": False})]


def test_a_closer_look_that_the_engine_or_nobody_can_take(
    monkeypatch: pytest.MonkeyPatch, runs: Any
) -> None:
    def first_difference(graph: Any, **options: Any) -> Difference[fx.Node] | None:
        raise ExecutionError("so many outputs")

    monkeypatch.setattr(mismatches, "captured_graph", lambda asked: GRAPH)
    monkeypatch.setattr(mismatches, "first_difference", first_difference)
    monkeypatch.setattr(mismatches, "is_faithful", lambda graph, asked: True)
    assert mismatches._evidence(runs) == _Evidence(GRAPH, None, False, True)
    monkeypatch.setattr(mismatches, "captured_graph", lambda asked: None)
    assert mismatches._evidence(runs) == _Evidence()
