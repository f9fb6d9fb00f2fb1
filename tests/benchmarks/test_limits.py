"""What a machine can do at most: the arithmetic of limits, and what is counted of a step."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from benchmarks.machine import Machine, Work, processor
from benchmarks.table import Row, markdown, records
from benchmarks.work import _counted


def test_a_limit_is_what_takes_longer() -> None:
    machine = Machine(flops=100.0, bandwidth=10.0)
    assert Work(flops=200.0, bytes=10.0).seconds(machine) == pytest.approx(2.0)
    assert Work(flops=200.0, bytes=30.0).seconds(machine) == pytest.approx(3.0)


def test_a_row_says_how_far_each_side_is_from_the_limit() -> None:
    row = Row("a step", "eager torch", 0.5, 0.8, seconds=6.0, limit=1.5)
    assert row.of_limit == (2.0, 4.0)
    assert "| 0.5x | ≤ 0.8x | 2, 4 | met " in markdown([row])
    (record,) = json.loads(json.dumps(records([row])))
    assert record["times_the_limit"] == [2.0, 4.0]
    assert record["what"] == "a step"


@pytest.mark.parametrize(
    "row",
    [
        Row("peak memory", "eager torch", 0.9),
        Row("a step", "torch.compile", None, seconds=1.0, limit=1.0),
    ],
    ids=["no limit", "failed"],
)
def test_a_row_without_a_limit_says_nothing_of_it(row: Row) -> None:
    assert row.of_limit is None
    assert records([row])[0]["times_the_limit"] is None


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_convolution_and_its_gradients_are_three_times_its_operations(
    kind: type[nn.Conv2d | nn.ConvTranspose2d], groups: int
) -> None:
    layer = kind(8, 12, 3, groups=groups, bias=False)
    data = torch.randn(2, 8, 6, 5, requires_grad=True)

    def step() -> None:
        layer(data).sum().backward()

    positions = 6 * 5 if kind is nn.ConvTranspose2d else 4 * 3
    assert _counted(step) == 3 * 2 * (2 * positions) * 8 * 12 * 9 / groups


def test_the_processor_has_a_name() -> None:
    assert processor().strip(", ")
