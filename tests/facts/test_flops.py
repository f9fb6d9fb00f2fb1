"""Counts against counts that were made another way: torch's own, and loops that add them up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from samba_onnx.facts.flops import NodeShapes, Shape
from samba_onnx.facts.operators import facts


def count(
    name: str, *inputs: Shape | None, output: Shape, domain: str = "", **attributes: Any
) -> int:
    row = facts(name, domain)
    assert row is not None
    return row.flops.count(NodeShapes(inputs, (output,), attributes))


def torchs(function: Any, *shapes: Shape, **arguments: Any) -> tuple[int, Shape]:
    """Return what torch counts, and the shape of the result."""
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    with FlopCounterMode(display=False) as counter:
        result = function(*tensors, **arguments)
    return counter.get_total_flops(), tuple(result.shape)


@pytest.mark.parametrize("shapes", [((5, 7), (7, 3)), ((2, 4, 5, 7), (2, 4, 7, 3))])
def test_matmul(shapes: tuple[Shape, Shape]) -> None:
    expected, output = torchs(torch.matmul, *shapes)
    assert count("MatMul", *shapes, output=output) == expected
    assert count("MatMulInteger", *shapes, output=output) == expected


def test_gemm() -> None:
    expected, output = torchs(torch.matmul, (5, 7), (7, 3))
    assert count("Gemm", (5, 7), (7, 3), output=output) == expected
    assert count("Gemm", (7, 5), (7, 3), output=output, transA=1) == expected
    assert count("Gemm", (5, 7), (7, 3), (3,), output=output) == expected + 5 * 3


@pytest.mark.parametrize(
    ("weight", "groups", "stride"), [((6, 4, 3, 3), 1, 1), ((6, 2, 3, 3), 2, 2)]
)
def test_conv(weight: Shape, groups: int, stride: int) -> None:
    expected, output = torchs(
        torch.nn.functional.conv2d, (2, 4, 9, 9), weight, groups=groups, stride=stride
    )
    assert count("Conv", (2, 4, 9, 9), weight, output=output, group=groups) == expected


def test_conv_transpose() -> None:
    expected, output = torchs(
        torch.nn.functional.conv_transpose2d, (2, 4, 5, 5), (4, 3, 2, 2), stride=2
    )
    assert count("ConvTranspose", (2, 4, 5, 5), (4, 3, 2, 2), output=output) == expected


def test_attention() -> None:
    query, key, value = (2, 4, 6, 8), (2, 4, 5, 8), (2, 4, 5, 8)
    products = (
        torchs(torch.matmul, query, (2, 4, 8, 5))[0] + torchs(torch.matmul, (2, 4, 6, 5), value)[0]
    )
    softmax = 5 * 2 * 4 * 6 * 5
    assert count("Attention", query, key, value, output=query) == products + softmax


def test_einsum() -> None:
    expected, output = torchs(lambda a, b: torch.einsum("bij,bjk->bik", a, b), (2, 3, 5), (2, 5, 7))
    equation = "bij,bjk->bik"
    assert count("Einsum", (2, 3, 5), (2, 5, 7), output=output, equation=equation) == expected


def test_top_k_finds_each_elements_place_by_bisection() -> None:
    rows, length, best = 3, 37, 5
    compares = 0
    for _ in range(rows * length):
        places = best + 1  # before, between and behind those that are known
        while places > 1:
            places -= places // 2  # the worse half stays
            compares += 1
    assert count("TopK", (rows, length), (1,), output=(rows, best), axis=-1) == compares
    assert count("TopK", (length, rows), (1,), output=(best, rows), axis=0) == compares
    assert count("TopK", (4, 8), (1,), output=(4, 1)) == 4 * 8


def test_shrink() -> None:
    operations = 0
    for _ in np.ndindex(3, 5):
        operations += 1  # is it beyond the threshold?
        operations += 1  # add or subtract the bias
    assert count("Shrink", (3, 5), output=(3, 5)) == operations


def test_swiglu_is_its_parts() -> None:
    shape = (3, 5)
    parts = count("Swish", shape, output=shape) + count("Mul", shape, shape, output=shape)
    assert count("SwiGLU", shape, shape, output=shape) == parts
    sigmoid = count("Sigmoid", shape, output=shape)
    assert count("Swish", shape, output=shape) == sigmoid + count("Mul", output=shape)


def test_dropout_mask_is_a_hash_and_a_compare() -> None:
    add, shift, exclusive_or, product, compare = 1, 2, 2, 2, 1
    per_element = add + shift + exclusive_or + product + compare
    counted = count("DropoutMask", (), (), output=(4, 6), domain="samba")
    assert counted == 24 * per_element


@pytest.mark.parametrize("name", ["ScatterElements", "ScatterND"])
def test_a_scatter_computes_where_it_reduces(name: str) -> None:
    shapes: tuple[Shape, ...] = ((8, 4), (3, 4), (3, 4))
    assert count(name, *shapes, output=(8, 4)) == 0
    assert count(name, *shapes, output=(8, 4), reduction="none") == 0
    data, updates = np.zeros((8, 4)), np.ones((3, 4))
    np.add.at(data, np.array([1, 1, 2]), updates)
    assert count(name, *shapes, output=(8, 4), reduction="add") == data.sum()


@pytest.mark.parametrize(
    ("rule", "update"), [("linear", 2), ("gated", 3), ("delta", 4), ("gated_delta", 5)]
)
def test_linear_attention_adds_up_over_tokens(rule: str, update: int) -> None:
    batch, length, heads, key_heads, width, depth = 2, 5, 4, 2, 3, 6
    operations = 0
    for _ in range(batch * length):
        operations += key_heads * width * depth * update
        operations += heads * width * depth * 2  # what the query reads
    counted = count(
        "LinearAttention",
        (batch, length, heads * width),
        (batch, length, key_heads * width),
        (batch, length, key_heads * depth),
        output=(batch, length, heads * depth),
        q_num_heads=heads,
        kv_num_heads=key_heads,
        update_rule=rule,
    )
    assert counted == operations


def test_a_determinant_is_an_elimination() -> None:
    size = 40
    operations = 0
    for pivot in range(size):
        left = size - 1 - pivot
        operations += left + 2 * left * left
    assert count("Det", (3, size, size), output=(3,)) == pytest.approx(3 * operations, rel=0.05)


def test_dropout_copies_unless_it_may_train() -> None:
    assert count("Dropout", (3, 5), output=(3, 5)) == 0
    assert count("Dropout", (3, 5), (), output=(3, 5)) == 0
    assert count("Dropout", (3, 5), None, (), output=(3, 5)) == 2 * 15


def test_batch_normalization_computes_its_statistics_in_training() -> None:
    shape = (4, 3, 5)
    operations = 0
    for _ in np.ndindex(shape):
        operations += 1  # sum
        operations += 3  # subtract the mean, square, sum
    inference = count("BatchNormalization", shape, output=shape)
    assert count("BatchNormalization", shape, output=shape, training_mode=1) == (
        inference + operations
    )
    assert inference == 4 * 60
