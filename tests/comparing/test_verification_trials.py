"""What a verification runs, on what, and whose tolerances judge it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.comparing import trials, verification
from samba_onnx.comparing.expectations import ChosenTolerances, Expectation
from samba_onnx.comparing.trials import DeviceOptions, ExpectedRun, Verification
from samba_onnx.comparing.verification import (
    compare,
    run_original,
    self_test,
    verify,
    verify_results,
)
from samba_onnx.errors import ExecutionError, UsageError
from samba_onnx.runtime.engine import evaluation

Calls = dict[str, tuple[Any, ...]]
GRAPHS = tuple(SimpleNamespace(name=name, outputs=("y",), calls=()) for name in ("first", "second"))


def pef_of(graphs: tuple[Any, ...] = GRAPHS, **more: Any) -> Any:
    return SimpleNamespace(
        path="m.pef",
        manifest=SimpleNamespace(graphs=graphs, sections=(), **{"fixed_inputs": (), **more}),
    )


class Opened(NamedTuple):
    """An original that was opened, with what it was opened by."""

    options: DeviceOptions
    source: str
    departure: str


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Let PEFs be what is given, and note what trials are compared and how."""
    calls: Calls = {}

    @contextlib.contextmanager
    def opened(pef: Any) -> Iterator[Any]:
        yield pef

    def compare_trials(*arguments: Any) -> Verification:
        calls["compared"] = arguments
        return Verification("x", (), 0.0, 0.0)

    monkeypatch.setattr(verification, "_opened", opened)
    monkeypatch.setattr(verification, "compare_trials", compare_trials)
    return calls


def test_a_model_is_run_as_the_pef_is(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = SimpleNamespace(model="ir", source=lambda model: f"source of {model}")
    monkeypatch.setattr(verification, "load_model", lambda model: loaded)
    monkeypatch.setattr(verification, "_refuse_other_model", lambda pef, model: None)
    monkeypatch.setattr(
        trials.DeviceOptions,
        "open_original",
        lambda self, source: Opened(self, source, departure="a departure"),
    )
    monkeypatch.setattr(verification, "_trials", lambda *arguments: arguments)
    monkeypatch.setattr(verification, "other_version", lambda pef, loaded: "another version")
    pef = pef_of()
    result = verify("model", pef)
    assert result.other_version == "another version"
    default = DeviceOptions(None, "onnxruntime", ())
    assert result.departure == "a departure"
    original = Opened(default, "source of model", "a departure")
    expected = (pef, (pef, original, "ir", None, 0), "original", ChosenTolerances(), default)
    assert calls["compared"] == expected
    inputs = {"x": 1}
    options = DeviceOptions(3, "reference", ["lib"])
    verify("model", pef, inputs=inputs, seed=5, rtol=0.5, atol=0.25, threads=3, engine="reference", custom_ops=["lib"])  # fmt: skip
    original = Opened(options, "source of model", "a departure")
    limits = ChosenTolerances(0.5, 0.25)
    assert calls["compared"] == (pef, (pef, original, "ir", inputs, 5), "original", limits, options)


def test_a_sample_is_run_on_its_graph(calls: Calls) -> None:
    sample = SimpleNamespace(graph="second", runs=2, depth=7, rtol=0.5, atol=0.25)
    pef = pef_of(reference=sample)
    for kind in ("inputs", "outputs", "wide"):
        setattr(pef, f"reference_{kind}", lambda run, kind=kind: {kind: run})
    self_test(pef, rtol=0.125, threads=2, engine="reference", custom_ops=["lib"])
    given, runs, against, limits, options = calls["compared"]
    assert (given, against) == (pef, "sample")
    assert runs == [
        ExpectedRun(
            f"run {run} of the sample",
            GRAPHS[1],  # type: ignore[arg-type]
            {"inputs": run},
            Expectation({"outputs": run}, {"wide": run}, 7),
        )
        for run in (0, 1)
    ]
    assert (limits.rtol, limits.atol, limits.defaults) == (0.125, None, (0.5, 0.25))
    assert options == DeviceOptions(2, "reference", ["lib"])
    self_test(pef, atol=0.5)
    assert calls["compared"][3].atol == 0.5
    assert calls["compared"][3].plain() == (0.5, 0.5)
    with pytest.raises(UsageError, match=r"^m\.pef carries no reference sample: verify it"):
        self_test(pef_of(reference=None))


def test_results_of_others_are_those_of_the_first_graph(calls: Calls) -> None:
    pef, limits = pef_of(), ChosenTolerances(0.5)
    verify_results(pef, "a run", {"x": 1}, {"y": 2}, against="torch", limits=limits, threads=2)
    trial = ExpectedRun("a run", GRAPHS[0], {"x": 1}, Expectation({"y": 2}))  # type: ignore[arg-type]
    options = DeviceOptions(2, "onnxruntime", ())
    assert calls["compared"] == (pef, [trial], "torch", limits, options)


def test_an_original_runs_on_the_engine_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "evaluate_original", lambda *args, **options: (args, options))
    result: Any = run_original("model", {"x": 1}, engine="reference", threads=2)
    assert result == (("model", {"x": 1}), {"engine": "reference", "threads": 2})


@pytest.mark.parametrize(("options", "passed"), [({}, False), ({"coarser": 8.0}, True), ({"rtol": 0.1}, True), ({"atol": 0.1}, True)])  # fmt: skip
def test_values_are_compared_by_roundings_of_their_type_or_as_asked(
    options: dict[str, float], passed: bool
) -> None:
    one = np.ones(4, np.float32)
    assert (
        compare({"y": one * np.float32(1.01)}, {"y": one}, against="x", **options).passed == passed
    )


class Original:
    """Answers what it was asked, and refuses integers beyond 1."""

    def with_feeds(self, constants: Any) -> Any:
        assert constants == {}
        return self

    def run_otherwise(self, inputs: Any, *, wide: bool = False) -> Any:
        return ()

    def run(self, inputs: Any) -> Any:
        if inputs["i"].max() > 1:
            raise ExecutionError("no such row")
        return {"y": inputs["i"]}

    def run_wide(self, inputs: Any) -> Any:
        return {"wide": inputs["i"]}


class Sizes:
    """Graphs of several sizes, or of one."""

    def __init__(self, manifest: Any) -> None:
        self.several = len(manifest.graphs) > 1

    def __bool__(self) -> bool:
        return self.several

    def fitting(self, inputs: Any) -> Any:
        return GRAPHS[1]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let inputs be the seed where there are no ranges, and what the ranges say."""

    class Ranges:
        def or_else(self, other: Any) -> Any:
            return other

    def random_inputs(specs: Any, seed: int, ranges: Any = None) -> Any:
        assert specs.startswith("specs of ")
        highest = 1 if ranges is None else RANGES[ranges]
        return {"i": np.array([highest]), "seed": seed, "specs": specs}

    monkeypatch.setattr(verification, "random_inputs", random_inputs)
    monkeypatch.setattr(verification, "input_ranges", lambda graph: Ranges())
    monkeypatch.setattr(verification, "pef_ranges", lambda pef, graph: graph.name)
    monkeypatch.setattr(verification, "input_specs", lambda pef, graph: f"specs of {graph.name}")
    monkeypatch.setattr(verification, "rounding_depth", lambda model: 4)
    monkeypatch.setattr(verification, "output_steps", lambda model: {"y": 0.5})
    monkeypatch.setattr(verification, "SizedGraphs", Sizes)
    return verification._trials


RANGES = {"first": 0, "second": 9}
MODEL: Any = SimpleNamespace(graph=None)
ORIGINAL: Any = Original()


def test_every_graph_of_several_sizes_is_run_on_several_inputs(drawn: Any) -> None:
    runs = drawn(pef_of(), ORIGINAL, MODEL, None, 5)
    own = [f"first, seed {seed}" for seed in (5, 6, 7)]
    plain = [f"second, seed {seed}, integers 0 and 1" for seed in (5, 6, 7)]
    assert [run.name for run in runs] == [*own, *plain]
    assert [run.graph.name for run in runs] == ["first"] * 3 + ["second"] * 3
    assert [run.inputs["seed"] for run in runs] == [5, 6, 7] * 2
    assert [run.inputs["specs"] for run in runs] == ["specs of first"] * 3 + ["specs of second"] * 3
    for run in runs:
        highest = run.inputs["i"]
        assert run.expected == Expectation({"y": highest}, {"wide": highest}, 4, {"y": 0.5})
    assert [int(run.inputs["i"][0]) for run in runs] == [0] * 3 + [1] * 3


def test_the_only_graph_has_no_name(drawn: Any) -> None:
    runs = drawn(pef_of(GRAPHS[:1]), ORIGINAL, MODEL, None, 0)
    assert [run.name for run in runs] == ["seed 0", "seed 1", "seed 2"]


def test_without_sizes_the_first_graph_is_run(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a PEF that trains, whose others are not the model's."""
    monkeypatch.setattr(verification, "SizedGraphs", lambda manifest: ())
    runs = drawn(pef_of(), ORIGINAL, MODEL, None, 0)
    assert [run.graph.name for run in runs] == ["first"] * 3
    (run,) = drawn(pef_of(), ORIGINAL, MODEL, {"i": np.array([1])}, 0)
    assert run.graph.name == "first"


def test_inputs_that_are_given_choose_the_graph(drawn: Any) -> None:
    inputs = {"i": np.array([1])}
    for graphs, name in ((GRAPHS, "second"), (GRAPHS[:1], "first")):
        (run,) = drawn(pef_of(graphs), ORIGINAL, MODEL, inputs, 5)
        assert (run.name, run.graph.name, run.inputs) == ("the inputs given", name, inputs)


def test_a_model_with_other_outputs_is_refused() -> None:
    x = ir.val("x", ir.DataType.FLOAT, (2,))
    outputs = [ir.val(name, ir.DataType.FLOAT, (2,)) for name in "yz"]
    nodes = [ir.node("Abs", [x], outputs=[output]) for output in outputs]
    graphs = (
        SimpleNamespace(name="first", outputs=("y",)),
        SimpleNamespace(name="n", outputs=("z",)),
    )

    def model(*names: str) -> Any:
        chosen = [output for output in outputs if output.name in names]
        return SimpleNamespace(graph=SimpleNamespace(outputs=chosen, inputs=[x], nodes=nodes))

    verification._refuse_other_model(pef_of(graphs), model("y"))
    with pytest.raises(UsageError, match=r"m\.pef has outputs \['y'\], the model has \['z'\]"):
        verification._refuse_other_model(pef_of(graphs), model("z"))
