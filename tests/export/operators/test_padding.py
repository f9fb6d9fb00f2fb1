"""Padding and its gradients, against torch's own kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.export.operators.harness import check_operator

aten = torch.ops.aten


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


AMOUNTS: list[tuple[tuple[int, ...], list[int]]] = [
    ((2, 3, 7), [2, 1]),
    ((2, 3, 7), [0, 6]),
    ((3, 5), [4, 3]),
    ((2, 3, 6, 7), [1, 2, 3, 4]),
    ((2, 3, 6, 7), [0, 0, 5, 0]),
    ((3, 6, 7), [6, 6, 5, 5]),
    ((2, 3, 4, 5, 6), [1, 2, 3, 2, 0, 3]),
    ((3, 4, 5, 6), [5, 0, 0, 4, 1, 1]),
]

every_amount = pytest.mark.parametrize(("shape", "amounts"), AMOUNTS)


def named(name: str, amounts: Sequence[int], backward: bool = False) -> Any:
    packet = f"{name}_pad{len(amounts) // 2}d" + "_backward" * backward
    return getattr(aten, packet).default


@every_amount
@pytest.mark.parametrize("name", ["reflection", "replication"])
def test_borders_and_their_gradients(name: str, shape: tuple[int, ...], amounts: list[int]) -> None:
    value = normal(*shape)
    check_operator(named(name, amounts), value, amounts)
    padded = named(name, amounts)(value, amounts)
    check_operator(named(name, amounts, True), normal(*padded.shape), value, amounts)


@pytest.mark.parametrize("amounts", [[-1, 2, 3, -2], [3, -2, -1, -1]])
def test_taking_away(amounts: list[int]) -> None:
    value = normal(2, 3, 6, 7)
    check_operator(aten.constant_pad_nd.default, value, amounts, 0.5)
    check_operator(aten.replication_pad2d.default, value, amounts)
    padded = aten.replication_pad2d(value, amounts)
    check_operator(aten.replication_pad2d_backward.default, normal(*padded.shape), value, amounts)


@every_amount
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_constant(shape: tuple[int, ...], amounts: list[int], dtype: torch.dtype) -> None:
    value = (normal(*shape) * 3).to(dtype)
    check_operator(aten.constant_pad_nd.default, value, amounts)
    check_operator(aten.constant_pad_nd.default, value, amounts, 1)


def test_constant_over_batch_and_channels() -> None:
    check_operator(aten.constant_pad_nd.default, normal(2, 3, 4), [1, 0, 2, 1, 0, 3], -float("inf"))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@every_amount
def test_whole(mode: str, shape: tuple[int, ...], amounts: list[int]) -> None:
    spatial = len(amounts) // 2
    if mode == "circular" and len(shape) != spatial + 2:
        shape = (2, *shape)
    check_operator(aten.pad.default, normal(*shape), amounts, mode)
    if mode == "circular":
        check_operator(aten._pad_circular.default, normal(*shape), amounts)
    if mode == "constant":
        check_operator(aten.pad.default, normal(*shape), amounts, mode, 2.5)
