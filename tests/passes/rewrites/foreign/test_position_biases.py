from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_stays,
    expanded,
    one_node,
)

HEADS = 3


def _model(
    buckets: int, length: int, largest: int, both: int
) -> tuple[onnx.ModelProto, list[Any], Any]:
    """Return a model, its operands, and the table ``[buckets, heads]`` that they hold column by column."""
    table = numbers(buckets, HEADS)
    stored = np.ascontiguousarray(table.T).reshape(buckets, HEADS)
    operands = [stored, np.array([length]), np.array([length])]
    proto = one_node(
        MICROSOFT, "RelativePositionBias", operands, ["y"], (1, 2),
        max_distance=largest, is_bidirectional=both,
    )  # fmt: skip
    return proto, operands, table


def test_near_positions_have_a_bucket_each() -> None:
    proto, operands, table = _model(8, 2, 16, 1)
    # the key before, the same, the key behind: half of the buckets are for those
    expected = table[[[0, 5], [1, 0]]].transpose(2, 0, 1)[None]
    assert_computes(proto, operands, expected, rtol=0, atol=0)


def test_where_one_bucket_is_of_a_single_distance_the_next_is_of_the_nearest_positions() -> None:
    proto, operands, table = _model(6, 3, 2, 1)
    # 3 buckets each way: the same position, the nearest, and all from the largest distance on
    expected = table[[[0, 4, 5], [1, 0, 4], [2, 1, 0]]].transpose(2, 0, 1)[None]
    assert_computes(proto, operands, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("both", "places"),
    [
        # Of 32 buckets, half are for keys behind, and half of each half for one distance.
        (1, {-128: 15, -64: 14, -32: 12, -16: 10, -8: 8, -7: 7, -1: 1, 0: 0}),
        (1, {1: 17, 7: 23, 8: 24, 16: 26, 32: 28, 64: 30, 128: 31}),
        # 16 of one distance each, and 16 up to 128: every doubling is a third of them.
        (0, {-128: 31, -15: 15, -16: 16, -32: 21, -64: 26, -1: 1, 0: 0, 1: 0, 100: 0}),
    ],
)
def test_far_positions_share_buckets(both: int, places: dict[int, int]) -> None:
    proto, operands, table = _model(32, 130, 128, both)
    model, _ = expanded(proto)
    (bias,) = run_onnxruntime(ir.to_proto(model).SerializeToString(), operands[:1])
    for distance, bucket in places.items():
        query = 129 if distance < 0 else 0
        np.testing.assert_array_equal(bias[0, :, query, query + distance], table[bucket])


@pytest.mark.slow
@pytest.mark.parametrize("both", [0, 1])
@pytest.mark.parametrize(
    ("buckets", "length", "largest"), [(32, 200, 128), (8, 40, 16), (32, 600, 512)]
)
def test_buckets_are_those_of_transformers(
    both: int, buckets: int, length: int, largest: int
) -> None:
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    proto, operands, table = _model(buckets, length, largest, both)
    steps = torch.arange(length)
    places = T5Attention._relative_position_bucket(
        steps[None, :] - steps[:, None], bool(both), buckets, largest
    )
    expected = np.ascontiguousarray(table[places.numpy()].transpose(2, 0, 1)[None])
    assert_computes(proto, operands, expected, rtol=0, atol=0)


def test_distances_that_fill_no_bucket_stay() -> None:
    assert_stays(_model(32, 4, 8, 1)[0], "and distance of 8 make none")
