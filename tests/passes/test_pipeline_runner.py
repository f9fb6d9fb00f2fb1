"""How the passes are run one by one: what is skipped, recorded, passed on and inherited."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.errors import InternalError, UsageError
from samba_onnx.facts.versions import OPSET
from samba_onnx.passes import pipeline
from samba_onnx.passes.order import PassContext, PassEntry, PipelineOptions
from samba_onnx.passes.pipeline import PipelineResult, run_pipeline
from samba_onnx.passes.rewrites.refusals import ReasonedPass, Refusal
from samba_onnx.passes.watching import PassStep
from tests.passes.rewrites.applying import KnowsAll, parse
from tests.passes.rewrites.legalisation.legalising import TARGET, Everything

TEXT = "g (float[2] x) => (float[2] y) { a = Relu (x)  y = Neg (a) }"
Change = Callable[[ir.Model], bool | None]


class FirstPass(ReasonedPass):
    """Does what a test wants."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        return ir.passes.PassResult(model, modified=bool(self.change(model)))


class SecondPass(FirstPass):
    """Another pass, by its name."""


def entry(kind: type[FirstPass], change: Change, *notes: str) -> PassEntry:
    def make(context: PassContext) -> ir.passes.PassBase:
        made = kind(change)
        made.notes.extend(notes)
        return made

    return PassEntry(make)


def ran(monkeypatch: pytest.MonkeyPatch, *entries: PassEntry) -> PipelineResult:
    monkeypatch.setattr(pipeline, "RUNNING", entries)
    return run_pipeline(parse(TEXT), KnowsAll())


def repeated(*entries: PassEntry) -> list[PassEntry]:
    return [replace(one, repetition=1) for one in entries]


def nothing(model: ir.Model) -> bool:
    return False


def add_node(model: ir.Model) -> bool:
    """Put a Neg before the output, without metadata."""
    last = model.graph[-1]
    new = ir.Node("", "Neg", [last.inputs[0]], name="new")
    new.outputs[0].name = "new"
    model.graph.insert_before(last, new)
    last.replace_input_with(0, new.outputs[0])
    return True


@pytest.mark.parametrize(("since", "runs"), [(0, True), (OPSET, True), (OPSET + 1, False)])
def test_what_writes_newer_nodes_leaves_out_older_models(
    since: int, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = replace(entry(FirstPass, add_node), since=since)
    assert bool(ran(monkeypatch, only).passes) == runs


def test_a_pass_is_not_run_again_until_something_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = entry(FirstPass, nothing), entry(SecondPass, add_node)
    result = ran(monkeypatch, first, first, second, first, first)
    assert [p.name for p in result.passes] == ["First", "Second", "First"]


def test_a_pass_that_changed_something_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ran(monkeypatch, entry(FirstPass, add_node), entry(FirstPass, add_node))
    assert [(p.name, p.nodes_before, p.nodes_after) for p in result.passes] == [
        ("First", 2, 3),
        ("First", 3, 4),
    ]


def test_a_pass_that_adds_nodes_has_changed_the_model_whatever_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(model: ir.Model) -> bool:
        return not add_node(model)

    rename = entry(SecondPass, lambda model: True)
    result = ran(monkeypatch, entry(FirstPass, silent), entry(FirstPass, nothing), rename)
    assert [p.modified for p in result.passes] == [True, False, True]


def test_the_last_word_of_a_pass_counts_and_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ran(
        monkeypatch,
        entry(FirstPass, add_node, "too early"),
        entry(SecondPass, nothing, "of the second"),
        entry(FirstPass, nothing, "late", "late", "later"),
    )
    assert result.notes == ("late", "later", "of the second")


@pytest.mark.parametrize("wrapped", [False, True], ids=["raised", "as the cause of another"])
def test_what_is_the_users_fault_is_told_as_it_is(
    wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = UsageError("such a dimension is not there")

    def fail(model: ir.Model) -> bool:
        if wrapped:
            raise ValueError("while running") from fault
        raise fault

    with pytest.raises(UsageError, match="such a dimension is not there"):
        ran(monkeypatch, entry(FirstPass, fail))


def test_a_failure_names_the_passes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: ir.Model) -> bool:
        raise ValueError("of all things")

    with pytest.raises(InternalError, match="First failed: of all things; passes before it: none;"):
        ran(monkeypatch, entry(FirstPass, fail))
    with pytest.raises(InternalError, match="before it: First, Second;"):
        ran(
            monkeypatch,
            entry(FirstPass, add_node),
            entry(SecondPass, nothing),
            entry(FirstPass, fail),
        )


def test_why_nodes_stayed_is_logged_for_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class TriesPass(FirstPass):
        def call(self, model: ir.Model) -> ir.passes.PassResult:
            self.refusals.applied(model.graph[0], Refusal("it is needed"))
            return ir.passes.PassResult(model, modified=False)

    with caplog.at_level(logging.DEBUG, "samba_onnx.passes.pipeline"):
        ran(monkeypatch, entry(TriesPass, nothing))
    assert "Tries left Relu 'a': it is needed" in caplog.text


def test_the_time_of_a_pass_is_part_of_the_time_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = time.perf_counter()
    result = ran(monkeypatch, entry(FirstPass, add_node), entry(SecondPass, add_node))
    whole = time.perf_counter() - begin
    assert all(summary.seconds > 0 for summary in result.passes)
    assert sum(summary.seconds for summary in result.passes) < whole


def test_a_repetition_runs_until_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [True, True, False, False]
    change = entry(FirstPass, lambda model: left.pop(0) and add_node(model))
    result = ran(monkeypatch, *repeated(change, entry(SecondPass, nothing)))
    assert [p.name for p in result.passes] == ["First", "Second", "First", "Second", "First"]


def test_a_repetition_ends_even_if_something_always_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = ran(monkeypatch, *repeated(entry(FirstPass, add_node)), entry(SecondPass, nothing))
    assert len(result.passes) == pipeline.MOST_ROUNDS + 1


class Watch:
    """Keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []
        self.models: set[int] = set()

    def see(self, step: PassStep) -> None:
        self.seen.append((step.name, step.binds_later))
        self.models.add(id(step.model))

    def finish(self) -> tuple[str, ...]:
        return (f"{len(self.seen)} seen",)


def test_whoever_watches_sees_what_changed_and_whether_sizes_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = iter([True, False, True, True])
    entries = [
        entry(FirstPass, lambda model: next(turns)),
        entry(SecondPass, lambda model: next(turns)),
        replace(entry(FirstPass, lambda model: next(turns)), static_inputs=True),
        entry(SecondPass, lambda model: next(turns)),
    ]
    monkeypatch.setattr(pipeline, "RUNNING", tuple(entries))
    watch, model = Watch(), parse(TEXT)
    result = run_pipeline(model, KnowsAll(), watch=watch)
    assert watch.seen == [("First", True), ("First", False), ("Second", False)]
    assert watch.models == {id(model)}
    assert result.notes == ("3 seen",)


def test_what_comes_behind_a_group_that_changed_nothing_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = ran(monkeypatch, *repeated(entry(FirstPass, nothing)), entry(SecondPass, nothing))
    assert [summary.name for summary in result.passes] == ["First", "Second"]


def test_the_chooser_is_asked_and_notes_follow_each_other() -> None:
    text = """g (float[n,4] x, float[k,4] d) => (float[?,?] y) <int64[4] p = {0, 1, 0, 1}, float[3,4] d>
    { h = Pad<mode="reflect">(x, p) e = ReduceSum<keepdims=0>(d) y = Add(h, e) }"""

    def model() -> ir.Model:
        read = parse(text.replace(", float[3,4] d>", ">"))
        value = read.graph.inputs[1]
        value.const_value = ir.tensor(np.ones((3, 4), np.float32), name="d")
        read.graph.register_initializer(value)
        return read

    plain, chosen = model(), model()
    run_pipeline(plain, TARGET)
    assert "Pad" in [node.op_type for node in plain.graph]
    result = run_pipeline(chosen, TARGET, PipelineOptions(assumed_size=1), chooser=Everything())
    assert "Pad" not in [node.op_type for node in chosen.graph]
    assert [tuple(value.shape or ()) for value in chosen.graph.inputs] == [(1, 4), (3, 4)]
    assumed, defaults = result.notes
    assert "n" in assumed
    assert "have defaults (d)" in defaults
