"""Normalisations and their gradients, against torch's own kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from samba_onnx.errors import ModelError
from tests.export.operators.harness import check_operator

aten = torch.ops.aten


def normal(*shape: int, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) + shift


def positive(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) + 0.5


SHAPES = [(8, 3), (4, 3, 7), (2, 5, 6, 7), (2, 3, 4, 3, 5)]
every_shape = pytest.mark.parametrize("shape", SHAPES)
with_or_without = pytest.mark.parametrize("affine", [True, False])


def affine_of(channels: int, affine: bool) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    return (positive(channels), normal(channels)) if affine else (None, None)


@every_shape
@with_or_without
def test_batch_norm_by_running_statistics(shape: tuple[int, ...], affine: bool) -> None:
    channels = shape[1]
    operands = (normal(*shape), *affine_of(channels, affine), normal(channels), positive(channels))
    check_operator(aten.batch_norm.default, *operands, False, 0.1, 1e-5, False)
    check_operator(aten._native_batch_norm_legit_no_training.default, *operands, 0.1, 1e-5)
    check_operator(aten._native_batch_norm_legit.default, *operands, False, 0.1, 1e-5)
    check_operator(aten._native_batch_norm_legit_functional.default, *operands, False, 0.1, 1e-5)


@every_shape
@with_or_without
@pytest.mark.parametrize(("momentum", "epsilon"), [(0.1, 1e-5), (0.3, 1e-2), (1.0, 1e-3)])
def test_batch_norm_by_the_batch(
    shape: tuple[int, ...], affine: bool, momentum: float, epsilon: float
) -> None:
    channels = shape[1]
    value, pair = normal(*shape, shift=3.0), affine_of(channels, affine)
    running = normal(channels), positive(channels)
    training = (True, momentum, epsilon)
    check_operator(
        aten._native_batch_norm_legit_functional.default, value, *pair, *running, *training
    )
    check_operator(aten._native_batch_norm_legit.no_stats, value, *pair, *training)
    check_operator(aten.native_batch_norm.default, value, *pair, None, None, *training)
    check_operator(aten.batch_norm.default, value, *pair, None, None, *training, False)


@every_shape
@with_or_without
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mask", [[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
def test_batch_norm_backward(
    shape: tuple[int, ...], affine: bool, training: bool, mask: list[int]
) -> None:
    channels = shape[1]
    value, (weight, bias) = normal(*shape, shift=2.0), affine_of(channels, affine)
    running = normal(channels), positive(channels)
    _, mean, inverse = aten.native_batch_norm(value, weight, bias, None, None, True, 0.1, 1e-5)
    wanted = [bool(flag) and (affine or index == 0) for index, flag in enumerate(mask)]
    if not any(wanted):
        pytest.skip("there is no weight that could have a gradient")
    check_operator(
        aten.native_batch_norm_backward.default,
        normal(*shape).flip(0),
        value,
        weight,
        *running,
        mean if training else None,
        inverse if training else None,
        training,
        1e-5,
        wanted,
    )


def test_statistics_that_would_change_in_place_are_refused() -> None:
    operands = (normal(4, 3), None, None, normal(3), positive(3), True, 0.1, 1e-5)
    with pytest.raises(ModelError, match="functional"):
        check_operator(aten._native_batch_norm_legit.default, *operands)


@pytest.mark.parametrize(
    ("shape", "inner"), [((4, 6), 1), ((2, 3, 5), 1), ((2, 3, 5), 2), ((2, 3, 4, 5), 3), ((7,), 1)]
)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_layer_norm(
    shape: tuple[int, ...], inner: int, weighted: bool, biased: bool, dtype: torch.dtype
) -> None:
    last = shape[-inner:]
    value = normal(*shape, shift=1.0).to(dtype)
    weight = positive(*last).to(dtype) if weighted else None
    bias = normal(*last).to(dtype) if biased else None
    operands = (value, list(last), weight, bias, 1e-3)
    # ONNX keeps epsilon in float32, and the statistics of float64 values too.
    whole, native = (1e-9, 1e-6) if dtype == torch.float64 else (None, None)
    check_operator(aten.layer_norm.default, *operands, tolerance=whole)
    check_operator(aten.native_layer_norm.default, *operands, tolerance=native)
    _, mean, inverse = aten.native_layer_norm(*operands)
    check_operator(
        aten.native_layer_norm_backward.default,
        normal(*shape).flip(0).to(dtype),
        value,
        list(last),
        mean,
        inverse,
        weight,
        bias,
        [True, weighted, biased],
    )


@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 6), 3), ((3, 6, 5), 1), ((2, 6, 4, 3), 2), ((2, 4, 3, 2, 5), 4)]
)
@with_or_without
def test_group_norm(shape: tuple[int, ...], groups: int, affine: bool) -> None:
    batch, channels = shape[:2]
    plane = normal(*shape).numel() // batch // channels
    value, (weight, bias) = normal(*shape, shift=1.0), affine_of(channels, affine)
    check_operator(aten.group_norm.default, value, groups, weight, bias, 1e-4)
    rest = (batch, channels, plane, groups)
    check_operator(aten.native_group_norm.default, value, weight, bias, *rest, 1e-4)
    _, mean, inverse = aten.native_group_norm(value, weight, bias, *rest, 1e-4)
    check_operator(
        aten.native_group_norm_backward.default,
        normal(*shape).flip(0),
        value,
        mean,
        inverse,
        weight,
        *rest,
        [True, affine, affine],
    )


@pytest.mark.parametrize("shape", SHAPES[1:])
@with_or_without
def test_instance_norm(shape: tuple[int, ...], affine: bool) -> None:
    channels = shape[1]
    value, pair = normal(*shape), affine_of(channels, affine)
    rest = (0.1, 1e-5, False)
    check_operator(aten.instance_norm.default, value, *pair, None, None, True, *rest)
    running = normal(channels), positive(channels)
    check_operator(aten.instance_norm.default, value, *pair, *running, False, *rest)


@pytest.mark.parametrize(("shape", "inner"), [((4, 6), 1), ((2, 3, 5), 2), ((2, 3, 4, 5), 1)])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("epsilon", [None, 1e-2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rms_norm(
    shape: tuple[int, ...], inner: int, weighted: bool, epsilon: float | None, dtype: torch.dtype
) -> None:
    value, last = normal(*shape).to(dtype), list(shape[-inner:])
    weight = positive(*last).to(dtype) if weighted else None
    check_operator(aten.rms_norm.default, value, last, weight, epsilon)
    check_operator(aten._fused_rms_norm.default, value, last, weight, epsilon)
    _, inverse = aten._fused_rms_norm(value, last, weight, epsilon)
    gradient = normal(*shape).flip(0).to(dtype)
    leaves = [item.requires_grad_() for item in (value, weight) if item is not None]
    result = torch.rms_norm(value, last, weight, epsilon)
    expected: list[Any] = [*torch.autograd.grad(result, leaves, gradient), None][:2]
    check_operator(
        aten._fused_rms_norm_backward.default,
        gradient,
        value,
        last,
        inverse,
        weight,
        [True, weighted],
        expected=expected,
    )


def test_bfloat16() -> None:
    value, gradient = normal(4, 3, 5, 5).bfloat16(), normal(4, 3, 5, 5).flip(0).bfloat16()
    pair = positive(3), normal(3)
    running = normal(3), positive(3)
    check_operator(
        aten._native_batch_norm_legit_functional.default, value, *pair, *running, True, 0.1, 1e-5
    )
    _, mean, inverse = aten.native_batch_norm(value, *pair, None, None, True, 0.1, 1e-5)
    check_operator(
        aten.native_batch_norm_backward.default,
        gradient,
        value,
        pair[0],
        None,
        None,
        mean,
        inverse,
        True,
        1e-5,
        [True, True, True],
    )
