"""Steps of runs that reduce nothing: the next reduction tells whether they were the same on all replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samba_onnx.errors import UsageError
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.reducing import GradientReduction
from tests.runtime.replicas import LR, W1, W2, open_replicas, reduction, run, together, two_layers

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 4, 8)).astype(np.float32)
DY = RNG.standard_normal((2, 4, 3)).astype(np.float32)

UNTOLD = (
    r"^optimizers stepped with different hyperparameters in a run that reduced no gradients, so"
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def gradients(device: Device, rank: int, how: GradientReduction) -> None:
    device.write("y__grad", DY[rank])
    run(device, X[rank], how, section_types=["FWD", "BCKWD", "REDUCE"])


def optimizer(device: Device, how: GradientReduction | None, rate: float) -> None:
    device.registers.apply({"lr": rate})
    run(device, None, how, section_types=["OPT"])
    device.registers.apply({"lr": float(LR)})


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("rates", [(0.25, 0.25), (0.25, 0.125)])
def test_the_next_reduction_tells_of_steps_that_told_nobody(
    stack: ExitStack, tmp_path: Path, rates: tuple[float, float], alone: bool
) -> None:
    how = reduction()
    replicas = open_replicas(stack, tmp_path, two_layers())

    def work(rank: int) -> Any:
        device, _ = replicas[rank]
        for _ in range(2):
            gradients(device, rank, how)
            optimizer(device, None if alone else how, rates[0])
        gradients(device, rank, how)
        optimizer(device, None if alone else how, rates[rank])
        if rates[0] == rates[1]:
            gradients(device, rank, how)
        else:
            with pytest.raises(UsageError, match=UNTOLD):
                gradients(device, rank, how)
            # They are equal again, and say so.
            device.load({"w1": W1, "w2": W2})
            gradients(device, rank, how)
        optimizer(device, how, rates[0])
        return device.read("w1")

    one, other = together([lambda rank=rank: work(rank) for rank in range(2)])  # type: ignore[misc]
    np.testing.assert_array_equal(one, other)


def test_runs_that_reduce_and_step_look_at_no_weights(stack: ExitStack, tmp_path: Path) -> None:
    """The next reduction compares what weights are only after steps that told nobody and differ."""
    how = reduction()
    replicas = open_replicas(stack, tmp_path, two_layers())

    def work(rank: int) -> None:
        device, member = replicas[rank]
        for number in range(3):
            device.write("y__grad", DY[rank])
            device.registers.apply({"lr": 0.5 / (number + 1)})
            run(device, X[rank], how)
            # What a run without optimizers would have stepped with is nobody's business.
            device.registers.apply({"lr": 0.125 * (1 + rank)})
            run(device, X[rank], how, section_types=["FWD", "BCKWD"])
            device.registers.apply({"lr": 0.25})
            gradients(device, rank, how)
            optimizer(device, how, 0.25)
        assert not member.meeting.votes

    together([lambda rank=rank: work(rank) for rank in range(2)])  # type: ignore[misc]
