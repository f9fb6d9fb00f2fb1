from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.normalizations import simplified_layer_normalization
from tests.passes.rewrites.applying import numbers, parse
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    expanded,
    one_node,
)

VALUE, SKIP = numbers(2, 3, 8), numbers(2, 3, 8, seed=1)
SCALE, SHIFT, BIAS = numbers(8, seed=2), numbers(8, seed=3), numbers(8, seed=4)


@pytest.mark.parametrize(
    ("operands", "outputs"),
    [
        ([VALUE, SKIP, SCALE, SHIFT, BIAS], ["y", "", "", "total"]),
        ([VALUE, SKIP, SCALE], ["y"]),
        ([VALUE, SKIP, SCALE, None, BIAS], ["y"]),
    ],
)
def test_layer_normalization_of_a_sum(operands: list[Any], outputs: list[str]) -> None:
    proto = one_node(MICROSOFT, "SkipLayerNormalization", operands, outputs, epsilon=1e-3)
    assert_expands(proto, operands)


@pytest.mark.parametrize("bias", [[], [BIAS]])
def test_root_mean_square_normalization_of_a_sum(bias: list[Any]) -> None:
    operands = [VALUE, SKIP, SCALE, *bias]
    outputs = ["y", "", "", "total"]
    proto = one_node(MICROSOFT, "SkipSimplifiedLayerNormalization", operands, outputs, epsilon=1e-5)
    assert_expands(proto, operands)


@pytest.mark.parametrize(
    ("domain", "operator", "addends"),
    [
        (MICROSOFT, "SkipLayerNormalization", 2),
        (MICROSOFT, "SkipSimplifiedLayerNormalization", 2),
        ("", "SimplifiedLayerNormalization", 1),
    ],
)
@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-6])
def test_what_is_added_to_a_variance_unless_stated(
    domain: str, operator: str, addends: int, size: float
) -> None:
    """Of numbers whose variance is near one of the defaults, 1e-5 and 1e-12, or between them."""
    operands = [*(np.float32(size) * array for array in (VALUE, SKIP)[:addends]), SCALE]
    assert_expands(one_node(domain, operator, operands, ["y"]), operands)


@pytest.mark.parametrize("axis", [-1, 1, 2, -2])
def test_root_mean_square_normalization_in_the_default_domain(axis: int) -> None:
    operands = [VALUE, numbers(*VALUE.shape[axis:], seed=2)]
    proto = one_node("", "SimplifiedLayerNormalization", operands, ["y"], axis=axis, stash_type=1)
    assert_expands(proto, operands)


def test_half_precision_is_normalized_in_float32() -> None:
    operands = [(1000 * VALUE).astype(np.float16), SCALE.astype(np.float16)]  # squares are infinite
    proto = one_node("", "SimplifiedLayerNormalization", operands, ["y"], stash_type=1)
    # one rounding to the 11 bits of float16 on either side
    assert_expands(proto, operands, rtol=2e-3, atol=1e-3)


def test_over_the_last_axis_no_rank_is_needed() -> None:
    model = parse("""g (float x, float[8] s) => (float y) {
        y = com.microsoft.SimplifiedLayerNormalization (x, s)
    }""", imports=', "com.microsoft": 1')  # fmt: skip
    (node,) = model.graph
    assert simplified_layer_normalization(Draft(node)).producer() is not None


def test_a_mean_that_is_read_stays_with_its_node() -> None:
    operands = [VALUE, SKIP, SCALE]
    proto = one_node(MICROSOFT, "SkipLayerNormalization", operands, ["y", "mean"])
    model, notes = expanded(proto)
    assert [node.op_type for node in model.graph] == ["SkipLayerNormalization"]
    assert "its output 1 is not computed by the rule" in " ".join(notes)


IMAGE, GAIN, OFFSET = numbers(2, 8, 4, 4), numbers(8, seed=1), numbers(8, seed=2)


def _groups(image: Any, silu: int) -> Any:
    tensors = [torch.from_numpy(array) for array in (GAIN, OFFSET)]
    result = torch.nn.functional.group_norm(torch.from_numpy(image), 2, *tensors)
    return (torch.nn.functional.silu(result) if silu else result).numpy()


def _last(image: Any, last: int) -> Any:
    return np.ascontiguousarray(image.transpose(0, 2, 3, 1)) if last else image


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("silu", [0, 1])
def test_normalization_of_groups(last: int, silu: int) -> None:
    operands = [_last(IMAGE, last), GAIN, OFFSET]
    attributes = {"groups": 2, "activation": silu, "channels_last": last}
    proto = one_node(MICROSOFT, "GroupNorm", operands, ["y"], **attributes)
    assert_computes(proto, operands, _last(_groups(IMAGE, silu), last))


def test_channels_come_last_unless_told_otherwise() -> None:
    operands = [_last(IMAGE, 1), GAIN, OFFSET]
    proto = one_node(MICROSOFT, "GroupNorm", operands, ["y"], groups=2, activation=0)
    assert_computes(proto, operands, _last(_groups(IMAGE, 0), 1))


def test_groups_of_halves_are_normalized_in_float32_with_the_epsilon_that_is_stated() -> None:
    image = IMAGE.astype(np.float16)
    tensors = [torch.from_numpy(array) for array in (image.astype(np.float32), GAIN, OFFSET)]
    expected = torch.nn.functional.group_norm(tensors[0], 4, *tensors[1:], eps=0.5).numpy()
    attributes = {"groups": 4, "activation": 0, "channels_last": 0, "epsilon": 0.5}
    proto = one_node(MICROSOFT, "GroupNorm", [image, GAIN, OFFSET], ["y"], **attributes)
    # One rounding to the 11 bits of float16.
    assert_computes(proto, [image, GAIN, OFFSET], expected.astype(np.float16), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("last", "flat", "bias"), [(1, False, True), (1, True, False), (0, True, True)]
)
def test_normalization_of_groups_of_a_sum(last: int, flat: bool, bias: bool) -> None:
    skip = numbers(2, 8, 1, 1, seed=3) if flat else numbers(2, 8, 4, 4, seed=3)
    total = IMAGE + skip + (numbers(8, seed=4)[:, None, None] if bias else np.float32(0))
    operands = [_last(IMAGE, last), GAIN, OFFSET, skip[:, :, 0, 0] if flat else _last(skip, last)]
    operands += [numbers(8, seed=4)] if bias else []
    attributes = {"groups": 2, "activation": 1, "channels_last": last}
    proto = one_node(MICROSOFT, "SkipGroupNorm", operands, ["y", "total"], **attributes)
    assert_computes(proto, operands, _last(_groups(total, 1), last), _last(total, last))


def test_types_behind_operators_without_a_kernel_follow_from_what_they_become() -> None:
    proto = one_node(
        MICROSOFT, "GroupNorm", [IMAGE, GAIN, OFFSET], ["a"],
        groups=2, activation=0, channels_last=0,
    )  # fmt: skip
    for number, (before, after) in enumerate(("ab", "bc", "cd", "de")):
        node = proto.graph.node.add()
        node.CopyFrom(proto.graph.node[0])
        node.input[0], node.output[0], node.name = before, after, f"node{number}"
    proto.graph.output[0].name = "e"
    expected = IMAGE
    for _ in range(5):
        expected = _groups(expected, 0)
    assert_computes(proto, [IMAGE, GAIN, OFFSET], expected)
