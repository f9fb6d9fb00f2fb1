"""Poolings and their gradients, against torch's own kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.export.operators.harness import check_operator

aten = torch.ops.aten


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


# shape, kernel, stride, padding, dilation
WINDOWS: list[tuple[tuple[int, ...], list[int], list[int], list[int], list[int]]] = [
    ((2, 3, 8, 6), [2, 2], [], [0], [1]),
    ((2, 3, 9, 7), [2, 2], [2, 2], [0, 0], [1, 1]),
    ((2, 3, 10, 9), [3], [2], [1], [1]),
    ((3, 9, 11), [3, 2], [1, 2], [1, 1], [1, 1]),
    ((2, 3, 9, 11), [2, 3], [3, 4], [1, 1], [1, 1]),
    ((2, 3, 8, 9), [5, 4], [3, 2], [2, 2], [1, 1]),
    ((2, 3, 12, 13), [3, 2], [2, 3], [1, 1], [2, 3]),
    ((2, 3, 11, 12), [3, 3], [1, 1], [1, 0], [2, 2]),
    ((1, 2, 11, 12), [2, 2], [3, 3], [1, 1], [4, 3]),
    ((2, 2, 6, 5, 7), [2, 2, 2], [], [0], [1]),
    ((2, 2, 7, 5, 8), [3, 2, 3], [2, 1, 2], [1, 0, 1], [1, 1, 1]),
    ((2, 7, 5, 8), [3, 2, 3], [2, 2, 3], [1, 1, 1], [1, 2, 1]),
]
WINDOWS_1D: list[tuple[tuple[int, ...], list[int], list[int], list[int], list[int]]] = [
    ((2, 3, 9), [3], [], [0], [1]),
    ((2, 3, 10), [3], [2], [1], [1]),
    ((3, 11), [2], [3], [1], [1]),
    ((2, 3, 12), [3], [2], [1], [2]),
]

every_window = pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "dilation"), WINDOWS
)
every_window_1d = pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "dilation"), WINDOWS_1D
)
ceil_or_floor = pytest.mark.parametrize("ceil_mode", [False, True])


def rank_of(shape: tuple[int, ...], kernel: list[int]) -> int:
    return len(kernel) if len(kernel) > 1 else len(shape) - 2


def overload(template: str, rank: int) -> Any:
    return getattr(aten, template.format(rank)).default


@every_window
@ceil_or_floor
def test_max_pool(
    shape: tuple[int, ...],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> None:
    rank, value = rank_of(shape, kernel), normal(*shape)
    rest = (kernel, stride, padding, dilation, ceil_mode)
    check_operator(overload("max_pool{}d", rank), value, *rest)
    found = overload("max_pool{}d_with_indices", rank)
    check_operator(found, value, *rest)
    pooled, indices = found(value, *rest)
    gradient = normal(*pooled.shape)
    backward = overload("max_pool{}d_with_indices_backward", rank)
    check_operator(backward, gradient, value, *rest, indices)


@every_window_1d
@ceil_or_floor
def test_max_pool_of_one_axis(
    shape: tuple[int, ...],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> None:
    rest = (kernel, stride, padding, dilation, ceil_mode)
    check_operator(aten.max_pool1d.default, normal(*shape), *rest)
    check_operator(aten.max_pool1d_with_indices.default, normal(*shape), *rest)


def test_the_first_of_equal_elements_is_found() -> None:
    value = torch.zeros(1, 2, 6, 6)
    check_operator(aten.max_pool2d_with_indices.default, value, [3, 3], [2, 2], [1, 1])
    check_operator(aten.adaptive_max_pool2d.default, value, [4, 5])


@every_window
@ceil_or_floor
@pytest.mark.parametrize("divisor", [None, 3])
def test_average_pool(
    shape: tuple[int, ...],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    divisor: int | None,
) -> None:
    rank, value = rank_of(shape, kernel), normal(*shape)
    forward, backward = overload("avg_pool{}d", rank), overload("avg_pool{}d_backward", rank)
    for count_include_pad in (True, False):
        rest = (kernel, stride, padding, ceil_mode, count_include_pad, divisor)
        check_operator(forward, value, *rest)
        gradient = normal(*forward(value, *rest).shape)
        check_operator(backward, gradient, value, *rest)


@every_window_1d
@ceil_or_floor
def test_average_pool_of_one_axis(
    shape: tuple[int, ...],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> None:
    for count_include_pad in (True, False):
        rest = (kernel, stride, padding, ceil_mode, count_include_pad)
        check_operator(aten.avg_pool1d.default, normal(*shape), *rest)


ADAPTIVE = [
    ((2, 3, 8, 6), [4, 3]),
    ((2, 3, 7, 5), [1, 1]),
    ((2, 3, 7, 5), [3, 2]),
    ((3, 7, 5), [7, 1]),
    ((2, 3, 5, 4), [7, 6]),
    ((2, 2, 6, 4, 8), [3, 2, 4]),
    ((2, 2, 5, 7, 6), [3, 4, 6]),
    ((2, 5, 7, 6), [2, 1, 5]),
]


@pytest.mark.parametrize(("shape", "outputs"), ADAPTIVE)
def test_adaptive_pools(shape: tuple[int, ...], outputs: list[int]) -> None:
    rank, value = len(outputs), normal(*shape)
    gradient = normal(*shape[:-rank], *outputs)
    check_operator(overload("adaptive_avg_pool{}d", rank), value, outputs)
    check_operator(overload("_adaptive_avg_pool{}d", rank), value, outputs)
    check_operator(overload("_adaptive_avg_pool{}d_backward", rank), gradient, value)
    found = overload("adaptive_max_pool{}d", rank)
    check_operator(found, value, outputs)
    indices = found(value, outputs)[1]
    check_operator(overload("adaptive_max_pool{}d_backward", rank), gradient, value, indices)


@pytest.mark.parametrize("shape", [(2, 3, 8), (3, 7)])
@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_adaptive_pools_of_one_axis(shape: tuple[int, ...], count: int) -> None:
    check_operator(aten.adaptive_avg_pool1d.default, normal(*shape), [count])
    check_operator(aten.adaptive_max_pool1d.default, normal(*shape), [count])


def test_bfloat16() -> None:
    value = normal(2, 3, 9, 8).bfloat16()
    check_operator(aten.max_pool2d_with_indices.default, value, [3, 3], [2, 2], [1, 1])
    check_operator(aten.avg_pool2d.default, value, [3, 3], [2, 2], [1, 1])
    gradient = normal(2, 3, 5, 4).bfloat16()
    check_operator(aten._adaptive_avg_pool2d_backward.default, gradient, value)
