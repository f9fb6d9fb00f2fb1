"""What modes plan apart, and where there is nothing to overlap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from samba_onnx.pef import gradients
from samba_onnx.pef.gradients import gradient_buckets
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.plans import _reduction_place
from samba_onnx.runtime.reducing import ReductionMode
from samba_onnx.runtime.reduction_plans import ReductionPlan, ReductionPlanner, reduction_place
from samba_onnx.runtime.requests import run_request
from samba_onnx.runtime.schedule import GraphSchedule
from tests.runtime.building import Plan, build, section
from tests.runtime.replicas import two_layers


def planned(
    folder: Path, mode: ReductionMode, program: Plan | None = None
) -> tuple[list[tuple[int, ...]], ReductionPlan]:
    """Return the calls of each step of a whole run, and what it does with gradients."""
    with build(folder, program or two_layers()) as pef:
        graph = pef.manifest.graphs[0]
        schedule = GraphSchedule(pef.manifest, graph)
    planner = ReductionPlanner(schedule, gradient_buckets(pef.manifest, graph))
    steps = planner.ordered(schedule.steps(merge=True, cuts=planner.cuts(graph.calls)), mode)
    place = reduction_place([step.stages[0].type for step in steps], None)
    plan = planner.plan(steps, mode, place)
    assert plan is not None
    return [step.calls for step in steps], plan


def test_modes_are_one_where_all_gradients_are_complete_at_the_end_of_the_backward(
    tmp_path: Path,
) -> None:
    """Both gradients are one bucket: no mode can begin its reduction before, or step without it."""
    normal, inorder, optimal = (planned(tmp_path, mode) for mode in ReductionMode)
    assert normal == inorder
    assert optimal == normal
    assert list(normal[1].starts) == [2]
    assert normal[1].waits == {2: frozenset({0})}


def test_modes_that_overlap_begin_as_soon_as_a_bucket_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 0)
    normal, inorder, optimal = (planned(tmp_path, mode) for mode in ReductionMode)
    assert normal[0] == inorder[0]
    assert {step: len(starts) for step, starts in normal[1].starts.items()} == {3: 2}
    assert {step: len(starts) for step, starts in inorder[1].starts.items()} == {2: 1, 3: 1}
    assert inorder[1].waits == normal[1].waits == {3: frozenset({0, 1})}
    assert optimal[1].starts == inorder[1].starts
    assert optimal[1].waits == {3: frozenset({0}), 4: frozenset({1})}


def test_a_request_by_ids_or_calls_asks_for_no_reduction(tmp_path: Path) -> None:
    with build(tmp_path, two_layers()) as pef:
        steps = GraphSchedule(pef.manifest, pef.manifest.graphs[0]).steps(merge=False)
    types = [step.stages[0].type for step in steps]
    whole, named = reduction_place(types, None), ["BCKWD", "REDUCE"]
    assert whole is not None
    for selection, place in (
        ({}, whole),
        ({"section_ids": [0, 1]}, None),
        ({"from_call": 1}, None),
        ({"until_call": 2}, None),
        ({"section_types": named}, reduction_place(types, named)),
        ({"section_types": ["FWD"]}, None),
        ({"section_types": named, "from_call": 1}, reduction_place(types, named)),
    ):
        request = run_request(None, None, None, **selection)  # type: ignore[arg-type]
        assert _reduction_place(request, steps) == place


FORWARD, GRADIENT_2, GRADIENT_1, STEP_1, STEP_2 = range(5)
"""Calls of a program of two layers."""


@pytest.mark.parametrize(
    ("calls", "reads", "uses_own", "updates"),
    [
        ((FORWARD, GRADIENT_2, GRADIENT_1), "", False, False),
        ((STEP_1, STEP_2), "w1 w2", False, True),
        ((STEP_2, FORWARD), "w2", False, True),
        ((FORWARD, GRADIENT_2, GRADIENT_1, STEP_1, STEP_2), "", True, True),
        ((FORWARD, GRADIENT_1, STEP_1, STEP_2), "w2", True, True),
    ],
)
def test_what_a_run_alone_uses_is_its_own_or_what_is_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calls: tuple[int, ...],
    reads: str,
    uses_own: bool,
    updates: bool,
) -> None:
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 0)
    with build(tmp_path, two_layers()) as pef:
        graph = pef.manifest.graphs[0]
        schedule = GraphSchedule(pef.manifest, graph)
    planner = ReductionPlanner(schedule, gradient_buckets(pef.manifest, graph))
    steps = {step.calls[0]: step for step in schedule.steps(merge=False)}
    plan = planner.plan([steps[call] for call in calls], None, None)
    assert plan is not None
    assert plan.reads == {f"{name}__grad" for name in reads.split()}
    assert (plan.uses_own, plan.updates) == (uses_own, updates)
    assert not plan.starts


def test_a_gradient_that_a_run_sets_to_zero_is_none_of_earlier_runs(tmp_path: Path) -> None:
    with build(tmp_path, two_layers(accumulates=True)) as pef:
        graph = pef.manifest.graphs[0]
        schedule = GraphSchedule(pef.manifest, graph)
    planner = ReductionPlanner(schedule, gradient_buckets(pef.manifest, graph))
    kinds = (SectionType.ZEROGRAD, SectionType.OPT)
    steps = [step for step in schedule.steps(merge=False) if step.stages[0].type in kinds]
    plan = planner.plan(steps, None, None)
    assert plan is not None
    assert not plan.reads
    assert not plan.left


def test_where_reduce_comes_in_what_was_asked_for() -> None:
    kinds = [SectionType.FWD, SectionType.BCKWD, SectionType.BCKWD, SectionType.OPT]
    # In a set it has its place in the schedule, behind all of BCKWD; in a list behind what is before it.
    assert reduction_place(kinds, {"REDUCE", "BCKWD", "FWD", "OPT"}) == 3
    assert reduction_place(kinds, ["FWD", "REDUCE", "BCKWD", "OPT"]) == 1
    assert reduction_place(kinds, ["FWD", "BCKWD", "REDUCE", "OPT"]) == 3
    assert reduction_place([SectionType.OPT], ["REDUCE", "OPT"]) == 0


def test_an_optimizer_without_gradients_waits_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that only counts its steps."""
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 0)
    program = two_layers()
    counts = section("c (float lr) => (float lr2) { lr2 = Mul(lr, lr) }", type=SectionType.OPT)
    program = replace(program, pieces=[*program.pieces, counts])
    normal, _, optimal = (planned(tmp_path, mode, program) for mode in ReductionMode)
    assert normal[0][-3:] == [(STEP_1,), (STEP_2,), (5,)]
    assert optimal[0][-3:] == [(5,), (STEP_2,), (STEP_1,)]
    assert optimal[1].waits == {4: frozenset({0}), 5: frozenset({1})}


@pytest.mark.parametrize("name", ["w2", "tied"])
def test_optimizers_keep_the_order_in_which_they_depend_on_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also where one writes in place, under another name, what the one before reads."""
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 0)
    program = two_layers()
    *others, _, last = program.pieces
    reads = section(
        f"o (float[8,8] w1, float[8,8] w1__grad, float[8,3] {name}, float lr) => (float[8,8] w1__updated) "
        f"{{ s = ReduceSum<keepdims=0>({name}) t = Mul(s, lr) d = Mul(w1__grad, t) w1__updated = Sub(w1, d) }}",
        type=SectionType.OPT,
    )
    program = replace(
        program,
        pieces=[*others, reads, last],
        shared={**program.shared, "tied": "w2"},
        kinds={**program.kinds, "tied": SymbolKind.WEIGHT},
    )
    optimal = planned(tmp_path, ReductionMode.OPTIMAL, program)
    assert optimal[0][-2:] == [(STEP_1,), (STEP_2,)]
    assert optimal[1].waits == {3: frozenset({1}), 4: frozenset({0})}
