from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_expands,
    expanded,
    one_node,
    refusal,
)

BATCH, HEADS, GROUPS, SIZE = 2, 4, 2, 16
ANGLES = np.outer(np.arange(32), 1 / 10 ** np.arange(SIZE // 2)).astype(np.float32)
TABLES = [np.cos(ANGLES), np.sin(ANGLES)]


def operands(
    length: int, room: int, total: int, *, last: list[int], packed: bool = False
) -> list[Any]:
    """Return the inputs of a run with ``length`` new positions and a cache with room for ``room``."""
    if packed:
        new: list[Any] = [numbers(BATCH, length, (HEADS + 2 * GROUPS) * SIZE), None, None]
    else:
        new = [numbers(BATCH, length, HEADS * SIZE)]
        new += [numbers(BATCH, length, GROUPS * SIZE, seed=seed) for seed in (1, 2)]
    caches = [numbers(BATCH, GROUPS, room, SIZE, seed=seed) for seed in (3, 4)]
    return [*new, *caches, np.array(last, np.int32), np.array(total, np.int32)]


def held(inputs: list[Any], valid: int, **attributes: Any) -> ir.Model:
    """Compare where the operator defines what it returns: cached positions up to the shortest row."""
    proto = one_node(
        MICROSOFT, "GroupQueryAttention", inputs, ["y", "k", "v"], constants=(6,),
        num_heads=HEADS, kv_num_heads=GROUPS, **attributes,
    )  # fmt: skip
    part = (slice(None), slice(None), slice(0, valid))
    return assert_expands(proto, inputs, valid={1: part, 2: part})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"scale": 0.1}, {"softcap": 2.0}, {"local_window_size": 3}, {"local_window_size": 1}],
)
def test_one_more_position(packed: bool, attributes: dict[str, Any]) -> None:
    held(operands(1, 6, 7, last=[6, 6], packed=packed), 7, **attributes)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_positions_are_rotated(packed: bool, interleaved: int) -> None:
    inputs = [*operands(1, 6, 7, last=[6, 6], packed=packed), *TABLES]
    held(inputs, 7, do_rotary=1, rotary_interleaved=interleaved)


def test_rows_have_lengths_of_their_own() -> None:
    held([*operands(1, 6, 7, last=[4, 6]), *TABLES], 5, do_rotary=1)


@pytest.mark.parametrize("window", [-1, 2])
def test_a_first_run_fills_the_cache(window: int) -> None:
    held([*operands(5, 0, 5, last=[4, 4]), *TABLES], 5, do_rotary=1, local_window_size=window)


def test_a_first_run_without_a_cache_returns_what_it_was_given() -> None:
    inputs = operands(5, 0, 5, last=[4, 4])
    inputs[3:5] = [None, None]
    model = held(inputs, 5)
    assert "ScatterND" not in {node.op_type for node in model.graph}


def test_positions_that_are_stated_are_rotated_as_such() -> None:
    inputs = [*operands(2, 4, 6, last=[5, 5]), *TABLES, np.array([[9, 3], [0, 20]])]
    first = [array[:1] if array is not None and array.ndim > 1 else array for array in inputs]
    first[5], first[7:9] = np.array([5], np.int32), TABLES
    held(first, 6, do_rotary=1)


def test_a_cache_with_room_keeps_its_size() -> None:
    held(operands(1, 16, 7, last=[6, 6]), 7)


@pytest.mark.parametrize("window", [-1, 3])
def test_several_new_positions_see_only_earlier_ones(window: int) -> None:
    inputs = [
        array[:1] if array is not None and array.ndim > 1 else array
        for array in operands(3, 4, 7, last=[6])
    ]
    held([*inputs, *TABLES], 7, do_rotary=1, local_window_size=window)


def test_a_length_that_is_not_constant_stays() -> None:
    inputs = operands(1, 6, 7, last=[6, 6])
    proto = one_node(
        MICROSOFT,
        "GroupQueryAttention",
        inputs,
        ["y", "k", "v"],
        num_heads=HEADS,
        kv_num_heads=GROUPS,
    )
    model, notes = expanded(proto)
    assert [node.op_type for node in model.graph] == ["GroupQueryAttention"]
    assert "its total length 'x6' is not constant" in " ".join(notes)


def test_a_window_without_positions_stays() -> None:
    """There onnxruntime's result is zero, which no softmax gives."""
    proto = one_node(
        MICROSOFT, "GroupQueryAttention", operands(1, 6, 7, last=[6, 6]), ["y", "k", "v"], (6,),
        num_heads=HEADS, kv_num_heads=GROUPS, local_window_size=0,
    )  # fmt: skip
    assert refusal(proto) == "its window has no positions"
