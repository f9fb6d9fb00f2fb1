"""Convolutions and their gradients, against torch's own kernels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from samba_onnx.passes.planning.placement import place
from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.node_work import node_flops
from tests.export.operators.harness import check_operator

aten = torch.ops.aten


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


# input, weight, stride, padding, dilation, transposed, output padding, groups
CONFIGURATIONS: dict[str, tuple[Any, ...]] = {
    "one axis": ((2, 3, 11), (4, 3, 3), [1], [0], [1], False, [0], 1),
    "one axis, strided, dilated": ((2, 3, 17), (4, 3, 4), [3], [2], [2], False, [0], 1),
    "one axis, grouped": ((3, 6, 12), (8, 3, 3), [2], [1], [1], False, [0], 2),
    "plain": ((2, 3, 9, 8), (5, 3, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "pointwise": ((2, 9, 6, 5), (4, 9, 1, 1), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "pointwise, strided": ((2, 9, 7, 6), (4, 9, 1, 1), [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
    "many channels": ((2, 32, 6, 7), (33, 32, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "many channels, strided": (
        (2, 32, 9, 8),
        (33, 32, 3, 3),
        [2, 2],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
    ),
    "many channels, holes": (
        (3, 32, 13, 12),
        (34, 32, 3, 2),
        [2, 3],
        [2, 1],
        [2, 3],
        False,
        [0, 0],
        1,
    ),
    "many positions": ((3, 17, 14, 13), (9, 17, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "large picture": ((1, 9, 48, 50), (3, 9, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "few channels, large kernel": (
        (2, 3, 21, 20),
        (8, 3, 7, 7),
        [2, 2],
        [3, 3],
        [1, 1],
        False,
        [0, 0],
        1,
    ),
    "uneven": ((2, 4, 13, 10), (6, 4, 3, 5), [3, 2], [0, 2], [2, 1], False, [0, 0], 1),
    "one number for all axes": ((2, 4, 8, 9), (6, 4, 3, 3), [2], [1], [1], False, [0], 1),
    "grouped": ((2, 6, 9, 9), (9, 2, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 3),
    "grouped, strided": ((2, 6, 10, 9), (9, 2, 3, 3), [2, 2], [1, 0], [1, 2], False, [0, 0], 3),
    "depthwise": ((2, 8, 9, 7), (8, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 8),
    "depthwise, strided": ((2, 8, 9, 8), (8, 1, 5, 3), [2, 2], [2, 1], [1, 1], False, [0, 0], 8),
    "depthwise, multiplied": ((2, 4, 9, 8), (8, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
    "three axes": ((2, 3, 6, 7, 5), (4, 3, 3, 2, 3), [1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1),
    "three axes, strided": (
        (2, 4, 7, 8, 9),
        (6, 2, 3, 3, 3),
        [2, 1, 3],
        [1, 0, 2],
        [1, 2, 1],
        False,
        [0] * 3,
        2,
    ),
    "three axes, many channels": (
        (2, 32, 4, 3, 5),
        (32, 32, 2, 3, 3),
        [1, 2, 2],
        [1, 1, 1],
        [1, 1, 1],
        False,
        [0] * 3,
        1,
    ),
    "transposed, one axis": ((2, 3, 7), (3, 5, 4), [2], [1], [1], True, [1], 1),
    "transposed": ((2, 9, 5, 6), (9, 10, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
    "transposed, uneven": ((2, 3, 5, 4), (3, 4, 3, 5), [3, 2], [0, 2], [2, 1], True, [2, 1], 1),
    "transposed, grouped": ((2, 6, 5, 4), (6, 2, 3, 3), [2, 1], [1, 1], [1, 1], True, [1, 0], 3),
    "transposed, depthwise": ((2, 6, 5, 4), (6, 1, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 1], 6),
    "transposed, padded for its holes": (
        (2, 3, 5, 4),
        (3, 4, 3, 3),
        [1, 2],
        [1, 0],
        [3, 3],
        True,
        [1, 2],
        1,
    ),
    "transposed, padded beyond all windows": (
        (2, 4, 5),
        (4, 3, 3),
        [1],
        [1],
        [3],
        True,
        [2],
        1,
    ),
    "transposed, padded within holes": ((2, 3, 5), (3, 4, 3), [1], [2], [3], True, [2], 1),
    "transposed, three axes": (
        (2, 3, 4, 3, 5),
        (3, 4, 3, 2, 3),
        [2, 1, 2],
        [1, 0, 1],
        [1] * 3,
        True,
        [1, 0, 0],
        1,
    ),
}

every_configuration = pytest.mark.parametrize(
    "configuration", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys()
)


def channels(weight: tuple[int, ...], transposed: bool, groups: int) -> int:
    return weight[1] * groups if transposed else weight[0]


@every_configuration
@pytest.mark.parametrize("biased", [True, False])
def test_convolution(configuration: tuple[Any, ...], biased: bool) -> None:
    data, weight, *rest = configuration
    bias = normal(channels(weight, rest[3], rest[5])) if biased else None
    check_operator(aten.convolution.default, normal(*data), normal(*weight), bias, *rest)


@every_configuration
def test_convolution_backward(configuration: tuple[Any, ...]) -> None:
    data, weight, *rest = configuration
    inputs = normal(*data), normal(*weight)
    output = aten.convolution(*inputs, None, *rest)
    model = check_operator(
        aten.convolution_backward.default,
        normal(*output.shape),
        *inputs,
        [channels(weight, rest[3], rest[5])],
        *rest,
        [True, True, True],
    )
    # In plain ONNX that the RDU's table names, and with two convolutions' work.
    assert not place(model, load_target("sn40l")).reasons
    convolutions = [node for node in model.graph if node.op_type.startswith("Conv")]
    assert len(convolutions) == 2
    assert all(node_flops(node) for node in convolutions)
    if len(data) < 5 and not rest[3]:
        work = 2 * math.prod(weight[1:]) * output.numel()
        assert [node_flops(node) for node in convolutions] == [work, work]


@pytest.mark.parametrize("mask", [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1]])
def test_gradients_that_nobody_wants_are_left_out(mask: list[int]) -> None:
    model = check_operator(
        aten.convolution_backward.default,
        normal(2, 4, 6, 6),
        normal(2, 3, 6, 6),
        normal(4, 3, 3, 3),
        [4],
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
        [bool(flag) for flag in mask],
    )
    assert len(model.graph.outputs) == sum(mask)


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_bfloat16(dtype: torch.dtype) -> None:
    data, weight, bias = (normal(*shape).to(dtype) for shape in ((2, 3, 9, 8), (5, 3, 3, 3), (5,)))
    rest = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    check_operator(aten.convolution.default, data, weight, bias, *rest)
    gradient = normal(2, 5, 9, 8).to(dtype)
    mask = [True, True, False]
    check_operator(aten.convolution_backward.default, gradient, data, weight, [5], *rest, mask)


@pytest.mark.parametrize(
    ("operator", "shape", "kernel"),
    [
        (aten.conv1d, (2, 4, 9), (6, 2, 4)),
        (aten.conv2d, (2, 4, 9, 8), (6, 2, 4, 3)),
        (aten.conv3d, (2, 4, 7, 6, 5), (6, 2, 2, 3, 4)),
    ],
)
@pytest.mark.parametrize("batched", [True, False])
def test_whole_forms(
    operator: Any, shape: tuple[int, ...], kernel: tuple[int, ...], batched: bool
) -> None:
    rank = len(shape) - 2
    data = normal(*shape) if batched else normal(*shape[1:])
    weight, bias = normal(*kernel), normal(6)
    check_operator(operator.default, data, weight, bias, [1] * rank, [2] * rank, [2] * rank, 2)
    check_operator(operator.padding, data, weight, bias, [1] * rank, "same", [3] * rank, 2)
    check_operator(operator.padding, data, weight, None, [2] * rank, "valid", [1] * rank, 2)


@pytest.mark.parametrize(
    ("overload", "shape", "kernel"),
    [
        (aten.conv_transpose1d.default, (2, 4, 9), (4, 3, 4)),
        (aten.conv_transpose2d.input, (2, 4, 9, 8), (4, 3, 4, 3)),
        (aten.conv_transpose3d.input, (2, 4, 4, 3, 5), (4, 3, 2, 3, 4)),
    ],
)
@pytest.mark.parametrize("batched", [True, False])
def test_whole_transposed_forms(
    overload: Any, shape: tuple[int, ...], kernel: tuple[int, ...], batched: bool
) -> None:
    rank = len(shape) - 2
    data = normal(*shape) if batched else normal(*shape[1:])
    weight, bias = normal(*kernel), normal(6)
    rest = ([3] * rank, [1] * rank, [2] * rank, 2, [2] * rank)
    check_operator(overload, data, weight, bias, *rest)
