"""Modelled steps of replicas, against times that are added up by hand and against what the runtime executes."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_onnx.errors import UsageError
from samba_onnx.passes.timing.schedule_time import run_time
from samba_onnx.pef import gradients
from samba_onnx.pef.gradients import reduction_transfers
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.stage_records import SectionTime
from samba_onnx.report.times import modelled_time
from samba_onnx.runtime.reducing import ReductionMode
from samba_onnx.tools.plan.step_model import StepModel
from tests.runtime.building import FROM, INPUT, OUTPUT, TO, Plan, build, section
from tests.runtime.replicas import two_layers

FORWARD, BACKWARD_2, BACKWARD_1, OPT_1, OPT_2 = 2e-3, 3e-3, 4e-3, 5e-4, 7e-4
TIMES = (FORWARD, BACKWARD_2, BACKWARD_1, OPT_1, OPT_2)
NORMAL, INORDER, OPTIMAL = ReductionMode
EXACT = 1e-12
"""Of sums of a few times, in another order."""


def manifest_of(folder: Path, plan: Plan) -> Manifest:
    for piece, seconds in zip(plan.pieces, TIMES, strict=True):
        piece.seconds = seconds
    with ExitStack() as stack:
        manifest = stack.enter_context(build(folder, plan)).manifest
    # The built plan models no copies: the test says what there is.
    link = {"rdu_link_bytes_per_second": 1e5, "rdu_link_latency_seconds": 1e-5}
    return dataclasses.replace(manifest, target=dataclasses.replace(manifest.target, **link))


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """Two layers, each with a bucket: 24 numbers of w2, then 64 of w1."""
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 0)
    return manifest_of(tmp_path, two_layers())


def copies(manifest: Manifest) -> float:
    return sum(copy.seconds for copy in manifest.graphs[0].run_transfers)


def rings(replicas: int) -> tuple[float, float]:
    """The time of the reductions of w2 and of w1."""

    def ring(numbers: int) -> float:
        return 2 * (replicas - 1) * (1e-5 + 4 * -(-numbers // replicas) / 1e5)

    return ring(24), ring(64)


@pytest.mark.parametrize("replicas", [2, 3, 64])
def test_steps_are_what_sections_and_reductions_take_by_hand(
    manifest: Manifest, replicas: int
) -> None:
    model, (second, first) = StepModel(manifest, manifest.graphs[0]), rings(replicas)
    alone = sum(TIMES) + copies(manifest)
    steps = {mode: model.step(replicas, mode) for mode in ReductionMode}
    assert steps[NORMAL].seconds == pytest.approx(alone + first + second, rel=EXACT)
    # w2's gradient is there before the backward of the first layer, which goes on meanwhile.
    reduced = max(BACKWARD_1, second) + first
    before = FORWARD + BACKWARD_2 + copies(manifest)
    assert steps[INORDER].seconds == pytest.approx(before + reduced + OPT_1 + OPT_2, rel=EXACT)
    # The optimizer of w2 runs while w1's gradient is reduced.
    early = max(BACKWARD_1, second)
    late = max(early + OPT_2, reduced) + OPT_1
    assert steps[OPTIMAL].seconds == pytest.approx(before + late, rel=EXACT)
    for step in steps.values():
        assert step.reduction_seconds == pytest.approx(first + second, rel=EXACT)
        assert step.seconds == pytest.approx(alone + step.waiting_seconds, rel=EXACT)
        assert step.efficiency == pytest.approx(alone / step.seconds, rel=EXACT)


@pytest.mark.parametrize("on_rdu", [True, False])
def test_reductions_take_what_the_ledger_enters(manifest: Manifest, on_rdu: bool) -> None:
    (graph,) = manifest.graphs
    step = StepModel(manifest, graph).step(5, NORMAL, on_rdu=on_rdu)
    moves = reduction_transfers(manifest, graph, 5, on_rdu=on_rdu)
    assert step.reduction_seconds == pytest.approx(sum(m.seconds for m in moves), rel=EXACT)


def test_one_replica_reduces_nothing(manifest: Manifest) -> None:
    for mode in ReductionMode:
        step = StepModel(manifest, manifest.graphs[0]).step(1, mode)
        assert (step.reduction_seconds, step.waiting_seconds, step.efficiency) == (0, 0, 1)
        assert step.seconds == pytest.approx(sum(TIMES) + copies(manifest), rel=EXACT)


def test_clipping_waits_for_all_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm of all gradients lets no optimizer begin early."""
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 0)
    plan = two_layers(clips=True)
    with ExitStack() as stack:
        manifest = stack.enter_context(build(tmp_path, plan)).manifest
    model = StepModel(manifest, manifest.graphs[0])
    assert model.step(4, OPTIMAL) == dataclasses.replace(model.step(4, INORDER), mode=OPTIMAL)


def test_overlap_never_takes_longer(manifest: Manifest) -> None:
    seconds = st.floats(0, 1)

    @settings(max_examples=50, deadline=None)
    @given(times=st.tuples(*[seconds] * 5), rate=st.floats(10, 1e6), replicas=st.integers(2, 2000))
    def check(times: tuple[float, ...], rate: float, replicas: int) -> None:
        sections = tuple(
            dataclasses.replace(one, seconds=time)
            for one, time in zip(manifest.sections, times, strict=True)
        )
        target = dataclasses.replace(manifest.target, rdu_link_bytes_per_second=rate)
        changed = dataclasses.replace(manifest, sections=sections, target=target)
        model = StepModel(changed, changed.graphs[0])
        normal, inorder, optimal = (model.step(replicas, mode).seconds for mode in ReductionMode)
        assert optimal <= inorder * (1 + EXACT)
        assert inorder <= normal * (1 + EXACT)

    check()


def test_what_does_not_train_is_refused(tmp_path: Path) -> None:
    plan = Plan(
        [section("f (float[4,8] x) => (float[4,8] y) { y = Relu(x) }")],
        ["x"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 0)],
    )
    with ExitStack() as stack:
        manifest = stack.enter_context(build(tmp_path, plan)).manifest
    with pytest.raises(UsageError, match="computes no gradients of weights"):
        StepModel(manifest, manifest.graphs[0])


def test_a_looped_launch_is_left_out_of_every_step(manifest: Manifest) -> None:
    """Each section but the first is looped: only that one has a launch of its own."""
    times = [SectionTime(launch=1e-3 * (n == 0), compute=one) for n, one in enumerate(TIMES)]
    sections = tuple(
        dataclasses.replace(section, time=time, seconds=time.seconds)
        for section, time in zip(manifest.sections, times, strict=True)
    )
    looped = dataclasses.replace(manifest, sections=sections)
    model = StepModel(looped, looped.graphs[0])
    alone = sum(TIMES) + 1e-3 + copies(looped)
    assert model.step(1, NORMAL).seconds == pytest.approx(alone, rel=EXACT)
    assert modelled_time(looped, looped.graphs).total_seconds == pytest.approx(alone, rel=EXACT)
    step = model.step(64, OPTIMAL)
    assert step.seconds == pytest.approx(alone + step.waiting_seconds, rel=EXACT)


def test_launches_and_copies_of_a_spatial_run_count_once(manifest: Manifest) -> None:
    sections = tuple(
        dataclasses.replace(one, time=SectionTime(launch=0.25, compute=one.seconds))
        for one in manifest.sections
    )
    sections = tuple(dataclasses.replace(one, seconds=0.25 + one.seconds) for one in sections)
    graph = dataclasses.replace(manifest.graphs[0], spatial_batches=3)
    spatial = dataclasses.replace(manifest, sections=sections, graphs=(graph,))
    time, model = run_time(spatial, graph), StepModel(spatial, graph)
    assert time.launch == 0.25 * len(TIMES)
    assert time.residents > 0
    alone = 3 * sum(TIMES) + time.launch + time.residents + copies(spatial)
    assert model.step(1, NORMAL).seconds == pytest.approx(alone, rel=EXACT)
    assert modelled_time(spatial, spatial.graphs).total_seconds == pytest.approx(alone, rel=EXACT)
    for mode in ReductionMode:
        step = model.step(8, mode)
        assert step.seconds == pytest.approx(alone + step.waiting_seconds, rel=EXACT)
