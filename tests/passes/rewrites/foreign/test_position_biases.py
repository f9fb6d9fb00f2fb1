from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_stays,
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
