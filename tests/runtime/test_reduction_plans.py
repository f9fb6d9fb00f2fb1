"""What modes plan apart, and where there is nothing to overlap."""

from __future__ import annotations

from pathlib import Path

import pytest

from samba_onnx.pef import gradients
from samba_onnx.pef.gradients import gradient_buckets
from samba_onnx.runtime.plans import _reduction_place
from samba_onnx.runtime.reducing import ReductionMode
from samba_onnx.runtime.reduction_plans import ReductionPlan, ReductionPlanner, reduction_place
from samba_onnx.runtime.requests import run_request
from samba_onnx.runtime.schedule import GraphSchedule
from tests.runtime.building import build
from tests.runtime.replicas import two_layers


def planned(folder: Path, mode: ReductionMode) -> tuple[list[tuple[int, ...]], ReductionPlan]:
    """Return the calls of each step of a whole run, and what it does with gradients."""
    with build(folder, two_layers()) as pef:
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
