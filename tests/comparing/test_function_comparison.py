"""What a PEF computes as a function: when that is compared, and how coarse the device is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from samba_onnx.comparing import function_comparison
from samba_onnx.comparing.expectations import ChosenTolerances, Expectation
from samba_onnx.comparing.function_comparison import coarseness, compare_functions
from samba_onnx.facts.tolerances import COARSER
from samba_onnx.runtime import exact_graphs
from samba_onnx.runtime.engine.lowerings import bfloat16

ONE = np.ones(2, np.float32)
WIDE = Expectation({"y": ONE, "z": ONE}, {"y": ONE})
LIMITS = ChosenTolerances()
NOTHING: Any = None


def exact(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[Any]:
    """Let a graph answer so, or not at all; return what is asked of it."""
    asked: list[Any] = []

    def run(inputs: Any) -> Any:
        asked.append(inputs)
        return answer

    graph = None if answer == "refused" else SimpleNamespace(run=run)
    monkeypatch.setattr(exact_graphs, "open_exact", lambda pef, graph_, engine: graph)
    return asked


def test_each_run_is_compared_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = exact(monkeypatch, {"y": ONE * 1.01, "z": ONE * 9})
    runs = {"one": ({"x": 1}, WIDE), "two": ({"x": 2}, WIDE)}
    compared = compare_functions(NOTHING, NOTHING, runs, LIMITS, NOTHING)
    assert asked == [{"x": 1}, {"x": 2}]
    assert list(compared) == [f"{run}, in float32 without rounding" for run in ("one", "two")]
    for run, outputs in compared.items():
        assert [(output.name, output.run, output.passed) for output in outputs] == [
            ("y", run, False)
        ]


def test_what_cannot_be_computed_so_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = exact(monkeypatch, {"y": ONE})
    plain = Expectation({"y": ONE})
    runs = {"one": ({}, WIDE), "two": ({}, plain)}
    assert compare_functions(NOTHING, NOTHING, runs, LIMITS, NOTHING) == {}
    assert not asked
    for answer in (None, "refused"):
        exact(monkeypatch, answer)
        assert compare_functions(NOTHING, NOTHING, {"one": ({}, WIDE)}, LIMITS, NOTHING) == {}


@pytest.mark.parametrize(
    ("step", "modified", "is_own", "rounds", "times"),
    [
        ("ReplaceFloat16", True, True, True, COARSER),
        ("ReplaceFloat16", True, True, False, 1.0),
        ("ReplaceFloat16", False, True, True, 1.0),
        ("FoldConstants", True, True, True, 1.0),
        ("FoldConstants", True, False, True, COARSER),
        ("FoldConstants", True, False, False, 1.0),
    ],
)
def test_a_device_is_coarser_where_it_rounds_to_bfloat16_what_the_model_does_not(
    step: str,
    modified: bool,
    is_own: bool,
    rounds: bool,
    times: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = [
        SimpleNamespace(name="Other", modified=True),
        SimpleNamespace(name=step, modified=modified),
    ]
    manifest = SimpleNamespace(passes=passes, metadata={})
    pef: Any = SimpleNamespace(manifest=manifest, stage_model=lambda stage: stage)
    graph: Any = SimpleNamespace(calls=[SimpleNamespace(stage=stage) for stage in (0, 1, 1)])
    precision = SimpleNamespace(is_own=is_own)
    monkeypatch.setattr(function_comparison, "stored_precision", lambda metadata: precision)
    monkeypatch.setattr(bfloat16, "uses_bfloat16", lambda model: rounds and model == 1)
    assert coarseness(pef, graph) == times
