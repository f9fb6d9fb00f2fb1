"""Softmax and its gradients, against torch's own kernels."""

from __future__ import annotations

import pytest
import torch

from tests.export.operators.harness import check_operator

aten = torch.ops.aten


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * 3


SHAPES = [((), 0), ((7,), 0), ((3, 5), -1), ((3, 5), 0), ((2, 3, 4, 5), 1), ((2, 3, 4, 5), 3)]
every_shape = pytest.mark.parametrize(("shape", "axis"), SHAPES)
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


@every_shape
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(shape: tuple[int, ...], axis: int, dtype: torch.dtype) -> None:
    value = normal(*shape).to(dtype)
    for overload in (aten._softmax.default, aten._log_softmax.default):
        check_operator(overload, value, axis, False)
    for overload in (
        aten.softmax.int,
        aten.log_softmax.int,
        aten.special_softmax.default,
        aten._safe_softmax.default,
    ):
        check_operator(overload, value, axis)
        check_operator(overload, value, axis, torch.float32)


@every_shape
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_backward(shape: tuple[int, ...], axis: int, dtype: torch.dtype) -> None:
    value, gradient = normal(*shape).to(dtype), (normal(*shape) + 1).to(dtype)
    for forward, backward in (
        (aten._softmax, aten._softmax_backward_data),
        (aten._log_softmax, aten._log_softmax_backward_data),
    ):
        output = forward.default(value, axis, False)
        check_operator(backward.default, gradient, output, axis, dtype)


def test_what_is_masked_everywhere_gets_nothing() -> None:
    value = normal(3, 4)
    value[1] = -torch.inf
    value[2, 1:] = -torch.inf
    check_operator(aten._safe_softmax.default, value, -1)
