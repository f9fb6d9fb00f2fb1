"""Replicas end up alike, as if one device had seen all batches; and the ledger has what that moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samba_onnx.errors import AnomalyError, UsageError
from samba_onnx.pef import gradients
from samba_onnx.pef.gradients import reduction_transfers
from samba_onnx.pef.manifest import Cause, Direction
from samba_onnx.program.kinds import SectionType
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.replica_notes import NOTE_NUMBERS
from samba_onnx.runtime.requests import run_request
from tests.runtime.replicas import (
    LR,
    W1,
    W2,
    Member,
    open_replicas,
    reduction,
    run,
    three_scales,
    together,
    two_layers,
)

STEPS = 4
RNG = np.random.default_rng(11)
X = RNG.standard_normal((STEPS, 3, 4, 8)).astype(np.float32)
DY = RNG.standard_normal((STEPS, 3, 4, 3)).astype(np.float32)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
"""Sums of 12 products of numbers around 1 in float32, over four steps, in two orders."""
MODES = ("normal", "inorder", "optimal")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def buckets_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 0)


def joined(replicas: int, *, clips: bool = False) -> tuple[Any, Any]:
    """The weights of one process on all batches, in double precision."""
    w1, w2 = W1.astype(np.float64), W2.astype(np.float64)
    for step in range(STEPS):
        x, dy = X[step, :replicas].reshape(-1, 8), DY[step, :replicas].reshape(-1, 3)
        g2, g1 = (x @ w1).T @ dy / replicas, x.T @ (dy @ w2.T) / replicas
        scale = LR / np.sqrt((g1**2).sum() + (g2**2).sum()) if clips else LR
        w1, w2 = w1 - scale * g1, w2 - scale * g2
    return w1, w2


def trained(
    stack: ExitStack,
    folder: Path,
    plan: Any,
    step: Callable[[Device, int, int], None],
    size: int = 2,
) -> list[tuple[Device, Member]]:
    """Let replicas train, each with a batch of its own."""
    replicas = open_replicas(stack, folder, plan, size)

    def work(rank: int) -> None:
        device, _ = replicas[rank]
        for number in range(STEPS):
            device.write("y__grad", DY[number, rank])
            step(device, number, rank)

    together([lambda rank=rank: work(rank) for rank in range(size)])  # type: ignore[misc]
    return replicas


def weights(device: Device) -> tuple[Any, Any]:
    return device.read("w1"), device.read("w2")


def reduced(device: Device, number: int = -1) -> list[Any]:
    return [move for move in device.ledger.run(number) if move.cause is Cause.REDUCE]


@pytest.mark.parametrize("clips", [False, True], ids=["plain", "clipped"])
@pytest.mark.parametrize("size", [2, 3])
def test_all_modes_are_one_process_on_all_batches(
    stack: ExitStack, tmp_path: Path, buckets_of_one: None, clips: bool, size: int
) -> None:
    plan, seen = two_layers(clips=clips), list[Any]()
    for mode in MODES:
        for on_rdu in (True, False):
            how = reduction(mode, on_rdu=on_rdu, replicas=size)
            replicas = trained(
                stack,
                tmp_path / f"{mode}{on_rdu}",
                plan,
                lambda device, number, rank, how=how: run(device, X[number, rank], how),  # type: ignore[misc]
                size,
            )
            manifest = replicas[0][0]._pef.manifest
            expected = reduction_transfers(manifest, manifest.graphs[0], size, on_rdu=on_rdu)
            assert len(expected) == (2 if on_rdu else 4)
            for device, _ in replicas:
                seen.append(weights(device))
                assert all(reduced(device, n) == list(expected) for n in range(STEPS))
                moves = [one for one in device.ledger.transfers if one.cause is Cause.REDUCE]
                assert len(moves) == STEPS * len(expected)
                # The first run found out what the others repeat.
                assert any(one.replay is not None for one in device.runs._runs.values())
    for pair in seen:
        for got, first, exact in zip(pair, seen[0], joined(size, clips=clips), strict=True):
            np.testing.assert_array_equal(got, first)
            np.testing.assert_allclose(got, exact, **CLOSE)


def test_what_overlaps(stack: ExitStack, tmp_path: Path, buckets_of_one: None) -> None:
    """The first bucket is that of the second layer, whose gradient is there first."""
    orders = {}
    for mode in MODES:
        replicas = open_replicas(stack, tmp_path / mode, two_layers())
        (device, _), _ = replicas
        plan = device.prepare(run_request(None, ["x"], [], reduction=reduction(mode))).plan
        kinds = [step.stages[0].type.value for step, _ in plan.steps]
        assert kinds == ["FWD", "BCKWD", "BCKWD", "OPT", "OPT"]
        assert plan.reductions is not None
        starts = {
            n: [start.bucket.symbols for start in some]
            for n, some in plan.reductions.starts.items()
        }
        orders[mode] = (
            starts,
            {number: sorted(some) for number, some in plan.reductions.waits.items()},
            [step.outputs[0] for step, _ in plan.steps[3:]],
        )
    schedule = ["w1__updated", "w2__updated"]
    both = [("w2__grad",), ("w1__grad",)]
    early = {2: [("w2__grad",)], 3: [("w1__grad",)]}
    assert orders["normal"] == ({3: both}, {3: [0, 1]}, schedule)
    assert orders["inorder"] == (early, {3: [0, 1]}, schedule)
    assert orders["optimal"] == (early, {3: [0], 4: [1]}, schedule[::-1])


def test_one_bucket_is_one_array_in_device_memory(stack: ExitStack, tmp_path: Path) -> None:
    replicas = trained(
        stack,
        tmp_path,
        two_layers(),
        lambda device, number, rank: run(device, X[number, rank], reduction("inorder")),
    )
    for (device, member), twin in zip(replicas, replicas[::-1], strict=True):
        # w2's 24 numbers fill up to a multiple of 64 bytes, and behind the gradients is what replicas
        # tell each other of themselves; none of that is accounted for.
        assert member.sizes == [32 + 64 + NOTE_NUMBERS] * STEPS
        assert [(move.symbol, move.bytes) for move in reduced(device)] == [("gradients[0]", 352)]
        np.testing.assert_array_equal(weights(device)[0], weights(twin[0])[0])
        np.testing.assert_allclose(weights(device)[0], joined(2)[0], **CLOSE)


@pytest.mark.parametrize("clips", [False, True])
def test_sections_apart_reduce_when_they_are_needed(
    stack: ExitStack, tmp_path: Path, clips: bool
) -> None:
    how = reduction()

    def step(device: Device, number: int, rank: int) -> None:
        run(device, X[number, rank], how, section_types=["FWD", "BCKWD"])
        assert reduced(device) == []
        run(device, None, how, section_types=["gradnorm", "opt"] if clips else ["opt"])
        assert len(reduced(device)) == 1

    for device, member in trained(stack, tmp_path, two_layers(clips=clips), step):
        assert len(member.sizes) == STEPS
        for got, exact in zip(weights(device), joined(2, clips=clips), strict=True):
            np.testing.assert_allclose(got, exact, **CLOSE)
        # What was reduced is not reduced again: this replica has nobody to do it with.
        run(device, None, how, section_types=["GRADNORM", "OPT"] if clips else ["OPT"])
        run(device, None, how, section_types=["REDUCE"])
        assert reduced(device) == []


def test_reduce_is_where_it_is_asked_for(stack: ExitStack, tmp_path: Path) -> None:
    how = reduction(on_rdu=False)

    def step(device: Device, number: int, rank: int) -> None:
        run(device, X[number, rank], how, section_types=("fwd", "bckwd", "reduce"))
        assert len(reduced(device)) == 4
        # Gradients that all replicas share may be used by each on its own.
        run(device, None, None, section_ids=[3, 4])

    for device, member in trained(stack, tmp_path, two_layers(), step):
        np.testing.assert_allclose(weights(device)[1], joined(2)[1], **CLOSE)
        assert member.votes == 0  # nobody had to compare weights


def test_what_was_reduced_already_is_not_sent_again(stack: ExitStack, tmp_path: Path) -> None:
    """Of a bucket only the gradient travels that a section wrote since."""
    how = reduction()

    def step(device: Device, number: int, rank: int) -> None:
        run(device, X[number, rank], how, section_types=["FWD", "BCKWD", "REDUCE"])
        run(device, X[number, rank], how, section_ids=[0, 1])
        run(device, None, how, section_types=["REDUCE"])
        assert [(move.symbol, move.bytes) for move in reduced(device)] == [
            ("gradients[0]", W2.nbytes)
        ]

    for device, member in trained(stack, tmp_path, two_layers(), step):
        assert member.sizes[1::2] == [W2.size] * STEPS
        x, dy = X[-1, :2].reshape(-1, 8), DY[-1, :2].reshape(-1, 3)
        np.testing.assert_allclose(device.read("w2__grad"), (x @ W1).T @ dy / 2, **CLOSE)
        np.testing.assert_allclose(device.read("w1__grad"), x.T @ (dy @ W2.T) / 2, **CLOSE)


@pytest.mark.parametrize("on_rdu", [True, False])
def test_gradients_that_lie_apart_in_a_bucket_are_all_reduced(
    stack: ExitStack, tmp_path: Path, on_rdu: bool
) -> None:
    how, names = reduction(on_rdu=on_rdu), ("w1", "w2", "w3")
    values = dict.fromkeys(names, np.ones(8, np.float32))
    replicas = open_replicas(stack, tmp_path, three_scales(), weights=values)
    dy = RNG.standard_normal((2, 2, 4, 8)).astype(np.float32)

    def work(rank: int) -> None:
        device, member = replicas[rank]
        device.write("y__grad", dy[0, rank])
        run(device, X[0, rank], how, section_types=["FWD", "BCKWD", "REDUCE"])
        device.write("y__grad", dy[1, rank])
        run(device, X[0, rank], how, section_ids=[0, 1, 3])
        run(device, None, how, section_types=["REDUCE"])
        # The last of the bucket has what replicas tell each other behind it.
        assert member.sizes[1:] == [8, 8 + NOTE_NUMBERS]

    together([lambda rank=rank: work(rank) for rank in range(2)])  # type: ignore[misc]
    means = [(X[0, :2] * dy[step]).sum(1).mean(0) for step in (0, 1)]
    for device, _ in replicas:
        for name, mean in zip(names, (means[1], means[0], means[1]), strict=True):
            np.testing.assert_allclose(device.read(f"{name}__grad"), mean, **CLOSE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("second", ["float", "double"])
def test_a_bucket_waits_for_the_last_of_its_gradients(
    stack: ExitStack, tmp_path: Path, mode: str, second: str
) -> None:
    """That of another type is complete while one of the first type is still to come."""
    how, names = reduction(mode), ("w1", "w2", "w3")
    types = ("float32", "float64" if second == "double" else "float32", "float32")
    values = {name: np.ones(8, kind) for name, kind in zip(names, types, strict=True)}
    replicas = open_replicas(stack, tmp_path, three_scales(second), weights=values)
    dy = RNG.standard_normal((2, 4, 8)).astype(np.float32)

    def work(rank: int) -> int:
        device, member = replicas[rank]
        device.write("y__grad", dy[rank])
        run(device, X[0, rank], how, section_types=["FWD", "BCKWD", "REDUCE"])
        return len(member.sizes)

    buckets = len(set(types))
    sent = together([lambda rank=rank: work(rank) for rank in range(2)])  # type: ignore[misc]
    assert sent == [buckets, buckets]
    mean = (X[0, :2] * dy).sum(1).mean(0)
    for device, _ in replicas:
        for name in names:
            np.testing.assert_allclose(device.read(f"{name}__grad"), mean, **CLOSE)


def test_an_optimizer_reduces_what_it_reads_though_nobody_asked(
    stack: ExitStack, tmp_path: Path
) -> None:
    how = reduction()
    kinds = ["FWD", "BCKWD", "OPT"]
    replicas = trained(
        stack,
        tmp_path,
        two_layers(),
        lambda device, number, rank: run(device, X[number, rank], how, section_types=kinds),
    )
    for device, _ in replicas:
        assert len(reduced(device)) == 1
        np.testing.assert_allclose(weights(device)[0], joined(2)[0], **CLOSE)


def test_gradients_add_up_before_they_are_sent(stack: ExitStack, tmp_path: Path) -> None:
    """Four batches of each replica, one step: as a single batch of all of them."""
    how = reduction("inorder")

    def step(device: Device, number: int, rank: int) -> None:
        if number == 0:
            run(device, None, how, section_types=["ZEROGRAD"])
        run(device, X[number, rank], how, section_types=["FWD", "BCKWD"])
        assert reduced(device) == []
        if number == STEPS - 1:
            run(device, None, how, section_types=["OPT"])

    x, dy = X[:, :2].reshape(-1, 8).astype(float), DY[:, :2].reshape(-1, 3).astype(float)
    w1 = W1 - LR * (x.T @ (dy @ W2.T.astype(float))) / 2
    w2 = W2 - LR * ((x @ W1.astype(float)).T @ dy) / 2
    for device, member in trained(stack, tmp_path, two_layers(accumulates=True), step):
        assert len(member.sizes) == 1
        # 32 products are added up here, four steps in one.
        np.testing.assert_allclose(weights(device)[0], w1, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(weights(device)[1], w2, rtol=1e-4, atol=1e-4)


def test_replicas_do_not_part_ways_in_silence(stack: ExitStack, tmp_path: Path) -> None:
    """What a run of several left unreduced is not used by one alone."""
    (device, _), _ = open_replicas(stack, tmp_path, two_layers())
    device.write("y__grad", DY[0, 0])
    run(device, X[0, 0], reduction(), section_types=["FWD", "BCKWD"])
    before = weights(device)
    with pytest.raises(UsageError, match="'w1__grad', and left it unreduced"):
        run(device, None, None, section_types=["OPT"])
    np.testing.assert_array_equal(weights(device)[0], before[0])
    # A whole step of its own is what was asked for.
    run(device, X[0, 0], None)
    run(device, None, None, section_types=["OPT"])
    device.reductions.reducer = None
    with pytest.raises(UsageError, match="the device knows no others"):
        run(device, X[0, 0], reduction())


def test_what_a_replayed_run_of_several_left_is_not_used_by_one(
    stack: ExitStack, tmp_path: Path
) -> None:
    (device, _), _ = open_replicas(stack, tmp_path, two_layers())
    device.write("y__grad", DY[0, 0])
    kinds = ["FWD", "BCKWD"]
    request = run_request(None, ["x"], ["y"], reduction=reduction(), section_types=kinds)
    for _ in range(3):
        is_replayed = device.runs.ready(request) is not None
        run(device, X[0, 0], reduction(), section_types=kinds)
        with pytest.raises(UsageError, match="'w1__grad', and left it unreduced"):
            run(device, None, None, section_types=["OPT"])
        run(device, X[0, 0], None)
    assert is_replayed


def test_each_gradient_that_several_left_is_remembered(stack: ExitStack, tmp_path: Path) -> None:
    (device, _), _ = open_replicas(stack, tmp_path, two_layers())
    device.write("y__grad", DY[0, 0])
    run(device, X[0, 0], reduction(), section_ids=[0, 1])
    with pytest.raises(UsageError, match="'w2__grad', and left it unreduced"):
        run(device, None, None, section_types=["OPT"])
    run(device, None, reduction(), section_ids=[2])
    for section, name in ((3, "w1"), (4, "w2")):
        with pytest.raises(UsageError, match=f"'{name}__grad', and left it unreduced"):
            run(device, None, None, section_ids=[section])


def test_what_a_failed_run_of_several_wrote_is_left_unreduced(
    stack: ExitStack, tmp_path: Path, buckets_of_one: None
) -> None:
    """And it makes nobody forget what was left before."""
    how = reduction()
    replicas = open_replicas(stack, tmp_path, two_layers())

    def work(rank: int) -> list[int]:
        device, member = replicas[rank]
        device.write("y__grad", DY[0, rank])
        run(device, X[0, rank], how, section_ids=[0, 2])
        device.write("y__grad", DY[0, rank] * np.nan)
        request = run_request(None, [], [], single=True, reduction=how, section_ids=[1])
        with pytest.raises(AnomalyError, match="w2__grad"):
            device.execute(device.prepare(request), {})
        for section, name in ((3, "w1"), (4, "w2")):
            with pytest.raises(UsageError, match=f"'{name}__grad', and left it unreduced"):
                run(device, None, None, section_ids=[section])
        run(device, None, how, section_types=["REDUCE"])
        return member.sizes

    sizes = together([lambda rank=rank: work(rank) for rank in range(2)])  # type: ignore[misc]
    both = [W2.size + NOTE_NUMBERS, W1.size + NOTE_NUMBERS]
    assert sizes == [both, both]


@pytest.mark.parametrize("before", [0, 1, 3], ids=["first", "second", "replayed"])
def test_a_run_that_succeeds_where_it_failed_before_leaves_nothing_unreduced(
    stack: ExitStack, tmp_path: Path, before: int
) -> None:
    """The step behind it sends no gradient again, and is one of all replicas."""
    how, kinds = reduction(), ["FWD", "BCKWD", "REDUCE"]
    replicas = open_replicas(stack, tmp_path, two_layers())

    def work(rank: int) -> None:
        device, member = replicas[rank]
        device.write("y__grad", DY[0, rank])
        for _ in range(before):
            run(device, X[0, rank], how, section_types=kinds)
        member.fails_at = len(member.sizes)
        with pytest.raises(ConnectionError):
            run(device, X[0, rank], how, section_types=kinds)
        run(device, X[0, rank], how, section_types=kinds)
        sent = len(member.sizes)
        run(device, None, how, section_types=["OPT"])
        assert len(member.sizes) == sent
        assert reduced(device) == []

    together([lambda rank=rank: work(rank) for rank in range(2)])  # type: ignore[misc]
    x, dy = X[0, :2].reshape(-1, 8), DY[0, :2].reshape(-1, 3)
    w1, w2 = W1 - LR * x.T @ (dy @ W2.T) / 2, W2 - LR * (x @ W1).T @ dy / 2
    for device, _ in replicas:
        for mine, exact in zip(weights(device), (w1, w2), strict=True):
            np.testing.assert_allclose(mine, exact, **CLOSE)


def test_a_device_alone_moves_nothing(stack: ExitStack, tmp_path: Path) -> None:
    (device, member), _ = open_replicas(stack, tmp_path, two_layers())
    device.write("y__grad", DY[0, 0])
    run(device, X[0, 0], None)
    run(device, None, None, section_types=["REDUCE"])
    run(device, X[0, 0], reduction(), section_types=["FWD"])
    assert member.events == []
    assert reduced(device, 0) == reduced(device, 2) == []
    np.testing.assert_allclose(
        device.read("w2"), W2 - LR * ((X[0, 0] @ W1).T @ DY[0, 0]), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("on_rdu", [True, False])
def test_gradients_of_fallbacks_are_reduced_on_the_device(
    stack: ExitStack, tmp_path: Path, on_rdu: bool
) -> None:
    """The host computed a gradient and wants it again: what it knew of it is not what was reduced."""
    plan = two_layers()
    plan = replace(plan, pieces=[replace(p, on_rdu=p.type is SectionType.FWD) for p in plan.pieces])
    how = reduction(on_rdu=on_rdu)
    replicas = trained(
        stack, tmp_path, plan, lambda device, number, rank: run(device, X[number, rank], how)
    )
    for device, _ in replicas:
        for got, exact in zip(weights(device), joined(2), strict=True):
            np.testing.assert_allclose(got, exact, **CLOSE)
        manifest = device._pef.manifest
        expected = reduction_transfers(manifest, manifest.graphs[0], 2, on_rdu=on_rdu)
        assert reduced(device) == list(expected)
        again = [
            move.symbol
            for move in device.ledger.run()
            if move.cause is Cause.FALLBACK and move.direction is Direction.RDU_TO_HOST
        ]
        assert {"w1__grad", "w2__grad"} <= set(again)


def test_a_failing_section_is_not_hidden_by_a_reduction(stack: ExitStack, tmp_path: Path) -> None:
    (device, member), _ = open_replicas(stack, tmp_path, two_layers())
    device.write("y__grad", DY[0, 0] * np.nan)
    request = run_request(None, ["x"], [], single=True, reduction=reduction("inorder"))
    with pytest.raises(AnomalyError, match="w2__grad"):
        device.execute(device.prepare(request), {"x": X[0, 0]})
    assert member.events == []


@pytest.mark.parametrize("steps", ["same", "some", "different"])
def test_steps_of_replicas_alone_are_noticed(stack: ExitStack, tmp_path: Path, steps: str) -> None:
    how = reduction("inorder")
    messages = {
        "some": "^the program wrote weights to the devices of some replicas, and not of others, so",
        "different": "^the program wrote different weights to the devices of replicas, so",
    }

    def step(device: Device, number: int, rank: int) -> None:
        if number == 2:
            data = 0 if steps == "same" else rank
            device.write("y__grad", DY[number, data])
            if rank or steps != "some":
                run(device, X[number, data], None)
            if steps != "same":
                with pytest.raises(UsageError, match=messages[steps]):
                    run(device, X[number, rank], how)
        elif number < 2 or steps == "same":
            run(device, X[number, rank], how)

    (one, _), (other, _) = trained(stack, tmp_path, two_layers(), step)
    for mine, others in zip(weights(one), weights(other), strict=True):
        assert np.array_equal(mine, others) == (steps == "same")


@pytest.mark.parametrize("alone", [False, True], ids=["whole", "optimizer alone"])
@pytest.mark.parametrize("fails_at", [1, 7], ids=["long way", "replayed"])
def test_what_a_failed_run_began_is_over_before_the_next_one(
    stack: ExitStack, tmp_path: Path, buckets_of_one: None, fails_at: int, alone: bool
) -> None:
    """All replicas catch an error after a bucket began; nobody steps with what one alone has."""
    how = reduction("inorder")

    def step(device: Device, number: int, rank: int) -> None:
        member: Any = device.reductions.reducer
        if number == fails_at // 2:
            member.fails_at = fails_at
            ready = device.runs.ready(run_request(None, ["x"], ["y"], reduction=how))
            assert (ready is not None) == (number > 0)
            with pytest.raises(ConnectionError):
                run(device, X[number, rank], how)
            assert member.events[-1] == f"start {fails_at - 1}"
            if alone:
                with pytest.raises(UsageError, match="and left it unreduced"):
                    run(device, None, None, section_types=["OPT"])
                run(device, None, how, section_types=["OPT"])
        run(device, X[number, rank], how)

    (one, member), (other, _) = trained(stack, tmp_path, two_layers(), step)
    waits = [event for event in member.events if "wait" in event]
    assert waits == [f"wait {number}" for number in range(len(member.sizes))]
    assert member.events.index(f"wait {fails_at - 1}") < member.events.index(f"start {fails_at}")
    for mine, others, exact in zip(weights(one), weights(other), joined(2), strict=True):
        np.testing.assert_array_equal(mine, others)
        if not alone:
            np.testing.assert_allclose(mine, exact, **CLOSE)


@pytest.mark.parametrize("on_rdu", [True, False])
@pytest.mark.parametrize("writes", ["same", "some", "different"])
def test_weights_that_the_host_writes_must_be_those_of_all(
    stack: ExitStack, tmp_path: Path, on_rdu: bool, writes: str
) -> None:
    """All replicas notice it together, before any of them makes a step."""
    how = reduction("optimal", on_rdu=on_rdu)
    messages = {
        "some": "to the devices of some replicas, and not of others",
        "different": "different weights to the devices of replicas",
    }

    def step(device: Device, number: int, rank: int) -> None:
        if number == 2 and (rank == 0 or writes != "some"):
            new = W1 * (1 + rank * (writes == "different"))
            device.load({"w1": new}) if rank else device.write("w1", new)
        if number < 2 or writes == "same":
            run(device, X[number, rank], how)
            return
        before = weights(device)
        with pytest.raises(UsageError, match=messages[writes]):
            run(device, X[number, rank], how)
        np.testing.assert_array_equal(weights(device)[0], before[0])
        np.testing.assert_array_equal(weights(device)[1], before[1])

    replicas = trained(stack, tmp_path, two_layers(), step)
    if writes == "same":
        (one, _), (other, _) = replicas
        np.testing.assert_array_equal(weights(one)[0], weights(other)[0])


@pytest.mark.parametrize("on_rdu", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_optimizers_must_step_alike(
    stack: ExitStack, tmp_path: Path, buckets_of_one: None, mode: str, on_rdu: bool
) -> None:
    """A learning rate of one replica alone is told to all of them, before any of them steps."""
    how = reduction(mode, on_rdu=on_rdu, replicas=3)
    rates = [{}, {"lr": 0.25}, {"lr": 0.25 + 1e-7}, {"lr": 0.125}]

    def step(device: Device, number: int, rank: int) -> None:
        # The third step has one learning rate on replica 1, and another on the others.
        device.registers.apply(rates[number if rank == 1 or number != 2 else 1])
        if number != 2:
            run(device, X[number, rank], how)
            return
        before = weights(device)
        with pytest.raises(UsageError, match=r"hyperparameter 'lr' is 0\.25\S* on this replica"):
            run(device, X[number, rank], how)
        np.testing.assert_array_equal(weights(device)[0], before[0])
        np.testing.assert_array_equal(weights(device)[1], before[1])

    replicas = trained(stack, tmp_path, two_layers(), step, size=3)
    for device, _ in replicas[1:]:
        np.testing.assert_array_equal(weights(device)[0], weights(replicas[0][0])[0])
