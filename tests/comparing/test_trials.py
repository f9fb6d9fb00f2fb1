"""Runs of a PEF: on which device, in which way, and what is compared with what."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from samba_onnx.comparing import trials
from samba_onnx.comparing.expectations import ChosenTolerances, Expectation
from samba_onnx.comparing.trials import DeviceOptions, ExpectedRun, compare_trials
from samba_onnx.runtime import accounting, parallel_device

ONE = np.ones(2, np.float32)
FIRST: Any = SimpleNamespace(name="first")
SECOND: Any = SimpleNamespace(name="second")
PEF: Any = SimpleNamespace(manifest=SimpleNamespace(graphs=(FIRST, SECOND)))
LIMITS = ChosenTolerances(0.25, 0.125)


def trial(name: str, graph: Any, size: float = 1.0) -> ExpectedRun:
    return ExpectedRun(name, graph, {"x": ONE * size}, Expectation({"y": ONE * size}))


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Note what devices are opened and run, what is checked and what computes functions."""
    notes: dict[str, list[Any]] = {"opened": [], "ran": [], "planned": [], "functions": []}

    @contextlib.contextmanager
    def open_device(pef: Any, **options: Any) -> Iterator[Any]:
        notes["opened"].append(options)

        def run(inputs: Any, *, graph: str) -> Any:
            notes["ran"].append(graph)
            return {"y": inputs["x"] * 1.01}

        yield SimpleNamespace(ledger=f"ledger {len(notes['opened'])}", run=run)

    def functions(pef: Any, graph: Any, runs: Any, limits: Any, engine: Any) -> Any:
        notes["functions"].append((graph.name, list(runs), limits, engine))
        return {f"{name}, as a function": () for name in runs}

    def plain_engine(name: str, settings: Any) -> Any:
        return name, settings.threads, settings.custom_ops

    monkeypatch.setattr(parallel_device, "open_device", open_device)
    monkeypatch.setattr(accounting, "check_plan", lambda *call: notes["planned"].append(call))
    monkeypatch.setattr(trials, "coarseness", lambda pef, graph: 8.0 if graph is SECOND else 1.0)
    monkeypatch.setattr(trials, "compare_functions", functions)
    monkeypatch.setattr(trials, "make_engine", plain_engine)
    return notes


def test_every_graph_runs_in_both_ways_to_keep_weights(notes: dict[str, list[Any]]) -> None:
    runs = [trial("a", FIRST), trial("b", SECOND), trial("c", FIRST)]
    result = compare_trials(PEF, runs, "original", LIMITS, DeviceOptions(3, "onnxruntime", ()))
    assert [options["prepack"] for options in notes["opened"]] == [False, False, True, True]
    for options in notes["opened"]:
        assert (options["engine"], options["threads"], options["custom_ops"]) == (
            "onnxruntime",
            3,
            (),
        )
    assert notes["ran"] == ["first", "first", "second"] * 2
    plans = [(ledger, graph.name) for ledger, graph, graphs in notes["planned"]]
    assert plans == [
        *(("ledger 1", "first"), ("ledger 1", "first"), ("ledger 2", "second")),
        *(("ledger 3", "first"), ("ledger 3", "first"), ("ledger 4", "second")),
    ]
    assert all(graphs is PEF.manifest.graphs for *_, graphs in notes["planned"])
    engine = ("onnxruntime", 3, ())
    assert notes["functions"] == [
        ("first", ["a", "c"], LIMITS, engine),
        ("second", ["b"], LIMITS, engine),
    ]
    ways = ("weights mapped", "weights prepacked")
    names = [f"{name}, {way}" for way in ways for name in "acb"]
    assert result.runs == (*names, *(f"{name}, as a function" for name in "acb"))
    assert (result.against, result.engine) == ("original", "onnxruntime")
    assert (result.rtol, result.atol) == (0.25, 0.125)


def test_the_reference_engine_has_one_way_to_keep_weights(notes: dict[str, list[Any]]) -> None:
    options = DeviceOptions(None, "reference", ())
    result = compare_trials(PEF, [trial("a", FIRST)], "sample", LIMITS, options)
    assert [one["prepack"] for one in notes["opened"]] == [False]
    assert result.runs == ("a, weights mapped", "a, as a function")
    assert (result.against, result.engine) == ("sample", "reference")


def test_libraries_reach_the_device(notes: dict[str, list[Any]], tmp_path: Any) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"")
    options = DeviceOptions(None, "reference", [library])
    compare_trials(PEF, [trial("a", FIRST)], "sample", LIMITS, options)
    assert notes["opened"][0]["custom_ops"] == [library]
    assert notes["functions"][0][3][2]


@pytest.mark.parametrize(("graph", "passed"), [(FIRST, False), (SECOND, True)])
def test_a_graph_in_bfloat16_may_be_off_by_its_roundings(
    graph: Any, passed: bool, notes: dict[str, list[Any]]
) -> None:
    options = DeviceOptions(None, "onnxruntime", ())
    result = compare_trials(PEF, [trial("a", graph)], "original", ChosenTolerances(), options)
    (output,) = result.outputs
    assert output.run == "a, weights mapped"
    assert output.passed == passed
