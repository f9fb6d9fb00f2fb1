from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    expanded,
    one_node,
    refusal,
)

BATCH, LENGTH, HEADS, SIZE, PAST = 2, 5, 3, 4, 3
WIDTH = HEADS * SIZE
TOTAL = PAST + LENGTH
SOURCE = numbers(BATCH, LENGTH, 6)
WEIGHTS, BIAS = numbers(6, 3 * WIDTH, seed=1), numbers(3 * WIDTH, seed=2)
CACHE = numbers(2, BATCH, HEADS, PAST, SIZE, seed=3)


def raw_mask(*shape: int) -> np.ndarray:
    """Return a mask that shows every query something."""
    mask = (np.random.default_rng(7).random(shape) < 0.7).astype(np.int32)
    mask[..., 0] = 1
    return mask


@pytest.mark.parametrize(
    ("operands", "attributes"),
    [
        ([SOURCE, WEIGHTS, BIAS], {}),
        ([SOURCE, WEIGHTS, BIAS], {"unidirectional": 1, "scale": 0.3}),
        ([SOURCE, WEIGHTS, BIAS, np.array([5, 3], np.int32)], {}),
        ([SOURCE, WEIGHTS, BIAS, raw_mask(BATCH, LENGTH)], {"mask_filter_value": -0.5}),
        ([SOURCE, WEIGHTS, BIAS, raw_mask(BATCH, LENGTH, LENGTH)], {"unidirectional": 1}),
        ([SOURCE, WEIGHTS, BIAS, raw_mask(BATCH, TOTAL), CACHE], {"unidirectional": 1}),
        ([SOURCE, WEIGHTS, BIAS, None, CACHE], {}),
        ([SOURCE, WEIGHTS, BIAS, None, None, numbers(1, HEADS, LENGTH, LENGTH, seed=5)], {}),
        ([SOURCE, numbers(6, 32), numbers(32), None], {"qkv_hidden_sizes": [12, 12, 8], "num_heads": 2}),
    ],
)  # fmt: skip
def test_attention_to_itself(operands: list[Any], attributes: dict[str, Any]) -> None:
    cached = len(operands) > 4 and operands[4] is not None
    outputs = ["y", "present"] if cached else ["y"]
    attributes = {"num_heads": HEADS} | attributes
    proto = one_node(MICROSOFT, "Attention", operands, outputs, constants=(1, 2), **attributes)
    assert_expands(proto, operands)


def test_a_mask_of_first_positions_stays() -> None:
    mask = np.array([5, 3, 0, 1], np.int32)
    operands = [SOURCE, WEIGHTS, BIAS, mask]
    proto = one_node(MICROSOFT, "Attention", operands, ["y"], constants=(1, 2), num_heads=HEADS)
    model, notes = expanded(proto)
    assert [node.op_type for node in model.graph] == ["Attention"]
    assert "its mask states first positions of rows, too" in " ".join(notes)


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (np.array([5, 3, 0, 1], np.int32), "its mask states first positions of rows, too"),
        (raw_mask(BATCH, 4), "its mask is not over 5 positions"),
        (raw_mask(BATCH, LENGTH, 4), "its mask is not over 5 positions"),
        (raw_mask(BATCH, 4, LENGTH), "its mask is not over 5 positions"),
        (raw_mask(BATCH, 1, LENGTH, LENGTH), "its mask has 4 dimensions"),
    ],
)
def test_masks_of_another_form_stay(mask: np.ndarray, reason: str) -> None:
    operands = [SOURCE, WEIGHTS, BIAS, mask]
    assert refusal(one_node(MICROSOFT, "Attention", operands, ["y"], num_heads=HEADS)) == reason


@pytest.mark.parametrize("name", ["do_rotary", "past_present_share_buffer"])
def test_attention_that_turns_or_shares_stays(name: str) -> None:
    operands = [SOURCE, WEIGHTS, BIAS]
    for value in (0, 1):
        proto = one_node(MICROSOFT, "Attention", operands, ["y"], num_heads=HEADS, **{name: value})
        if value:
            assert refusal(proto) == f"its attribute {name} is 1, not 0"
        else:
            assert_expands(proto, operands)


QUERY, KEY, VALUE = (numbers(BATCH, LENGTH, WIDTH, seed=seed) for seed in (1, 2, 3))
OTHER_KEY, OTHER_VALUE = numbers(BATCH, 7, WIDTH, seed=4), numbers(BATCH, 7, 6, seed=5)
PAST_KEY, PAST_VALUE = (numbers(BATCH, HEADS, PAST, SIZE, seed=seed) for seed in (6, 7))


@pytest.mark.parametrize(
    ("operands", "outputs", "attributes"),
    [
        ([QUERY, KEY, VALUE], ["y"], {}),
        ([QUERY, KEY, VALUE, BIAS], ["y"], {"scale": 0.5}),
        ([QUERY, KEY, VALUE], ["y"], {"unidirectional": 1}),
        ([QUERY, OTHER_KEY, OTHER_VALUE], ["y"], {}),
        ([QUERY, OTHER_KEY, OTHER_VALUE, None, raw_mask(BATCH, 7)], ["y"], {}),
        ([QUERY, KEY, VALUE, None, np.array([2, 5], np.int32)], ["y"], {}),
        ([QUERY, KEY, VALUE, None, None, numbers(BATCH, 1, LENGTH, LENGTH)], ["y"], {}),
        ([QUERY, KEY, VALUE, BIAS, None, None, PAST_KEY, PAST_VALUE], ["y", "k", "v"], {"unidirectional": 1}),
        ([QUERY, numbers(BATCH, HEADS, 7, SIZE), numbers(BATCH, HEADS, 7, SIZE, seed=9)], ["y"], {}),
        ([QUERY, KEY, VALUE], ["y", "k", "v"], {}),
    ],
)  # fmt: skip
def test_attention_to_others(
    operands: list[Any], outputs: list[str], attributes: dict[str, Any]
) -> None:
    proto = one_node(
        MICROSOFT, "MultiHeadAttention", operands, outputs, num_heads=HEADS, **attributes
    )
    assert_expands(proto, operands)


def test_packed_heads_stay() -> None:
    operands = [numbers(BATCH, LENGTH, HEADS, 3, SIZE)]
    proto = one_node(MICROSOFT, "MultiHeadAttention", operands, ["y"], num_heads=HEADS)
    model, notes = expanded(proto)
    assert [node.op_type for node in model.graph] == ["MultiHeadAttention"]
    assert "its input 1 is left out" in " ".join(notes)


def test_keys_and_values_in_one_tensor_stay() -> None:
    operands = [QUERY, numbers(BATCH, LENGTH, HEADS, 2, SIZE), VALUE]
    proto = one_node(MICROSOFT, "MultiHeadAttention", operands, ["y"], num_heads=HEADS)
    assert refusal(proto) == "its queries, keys and values are packed into one tensor"


def test_a_cache_counts_where_nobody_asks_for_it_behind() -> None:
    # Without its other outputs onnxruntime's kernel reads beyond the end of the new keys in place of the cache.
    operands = [QUERY, KEY, VALUE, None, None, None, PAST_KEY, PAST_VALUE]
    whole = one_node(MICROSOFT, "MultiHeadAttention", operands, ["y", "k", "v"], num_heads=HEADS)
    inputs = [array for array in operands if array is not None]
    expected = run_onnxruntime(whole.SerializeToString(), inputs)[0]
    proto = one_node(MICROSOFT, "MultiHeadAttention", operands, ["y"], num_heads=HEADS)
    assert_computes(proto, operands, expected)


def test_a_bias_of_keys_that_are_split_already_stays() -> None:
    keys = numbers(BATCH, HEADS, 7, SIZE)
    operands = [QUERY, keys, keys, BIAS]
    proto = one_node(MICROSOFT, "MultiHeadAttention", operands, ["y"], num_heads=HEADS)
    assert refusal(proto) == "it adds a bias to keys of a cache"


@pytest.mark.parametrize(
    ("mask", "cached", "per_column", "attributes"),
    [
        (None, False, False, {}),
        (raw_mask(BATCH, LENGTH), False, True, {"mask_filter_value": -1000.0}),
        (None, True, True, {"unidirectional": 1}),
    ],
)
def test_attention_with_data_and_weights_of_integers(
    mask: Any, cached: bool, per_column: bool, attributes: dict[str, Any]
) -> None:
    generator = np.random.default_rng(0)
    data = generator.integers(0, 256, (BATCH, LENGTH, 6)).astype(np.uint8)
    weights = generator.integers(-128, 128, (6, 3 * WIDTH)).astype(np.int8)
    columns = 3 * WIDTH if per_column else 1
    scales = (0.005 + 0.01 * generator.random(columns)).astype(np.float32)
    zeros = np.zeros(columns, np.int8)
    operands = [
        data, weights, BIAS, np.array(0.02, np.float32), scales if per_column else scales[0], mask,
        np.array(128, np.uint8), zeros if per_column else zeros[0], CACHE if cached else None,
    ]  # fmt: skip
    proto = one_node(
        MICROSOFT, "QAttention", operands, ["y", "present"] if cached else ["y"],
        constants=(1, 2, 3, 4, 6, 7), num_heads=HEADS, **attributes,
    )  # fmt: skip
    # integers are multiplied there, the numbers that they stand for here
    assert_expands(proto, operands, rtol=1e-4, atol=1e-5)
