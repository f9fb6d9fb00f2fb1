"""How cut axes are reshaped, joined and taken apart: held against numpy on every place of small axes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from samba_onnx.passes.sharding import layouts
from samba_onnx.passes.sharding.layouts import (
    PARTIAL,
    WHOLE,
    Shape,
    Sharding,
    blocks,
    even,
    indices,
    is_partition,
    length,
    local_shape,
    ranges_of,
    reshaped,
)
from samba_onnx.pef.sharding import AxisSplit


def shard(array: np.ndarray, sharding: Sharding, rdu: int) -> np.ndarray:
    """Return what an RDU has of an array."""
    for split in sharding.axes:
        array = np.take(array, indices(split, rdu), axis=split.axis)
    return array


SHAPES: tuple[Shape, ...] = (
    (4, 6), (24,), (2, 12), (2, 2, 6), (4, 3, 2), (1, 24), (24, 1, 1), (4, 1, 6), (2, 3, 2, 2), (8, 3),
)  # fmt: skip


@pytest.mark.parametrize("before", SHAPES, ids=str)
@pytest.mark.parametrize("after", SHAPES, ids=str)
def test_shards_are_reshaped_where_numpy_agrees(before: Shape, after: Shape) -> None:
    whole = np.arange(24).reshape(before)
    for axis, parts in itertools.product(range(len(before)), (2, 4)):
        if before[axis] % parts:
            continue
        sharding = Sharding((even(axis, before[axis], parts, 4),))
        behind = reshaped(sharding, before, after)
        shards = [shard(whole, sharding, rdu) for rdu in range(4)]
        if behind is None:
            # Then no block of the new axes holds what an RDU has, in its order.
            assert any(not _is_block(each, whole.reshape(after)) for each in shards)
            continue
        local = local_shape(after, behind)
        assert behind.axes
        assert not behind.partial
        for rdu, each in enumerate(shards):
            np.testing.assert_array_equal(
                each.reshape(local), shard(whole.reshape(after), behind, rdu)
            )


def _is_block(shard: np.ndarray, whole: np.ndarray) -> bool:
    """Return whether elements are a block of an array whose elements are all different, in order."""
    places = [np.unique(each) for each in np.where(np.isin(whole, shard))]
    block = whole[np.ix_(*places)]
    return block.size == shard.size and bool((block.reshape(-1) == shard.reshape(-1)).all())


def test_two_axes_are_reshaped_together() -> None:
    sharding = Sharding((even(0, 4, 2, 4), AxisSplit(1, ((0, 3), (3, 6)) * 2)))
    assert reshaped(sharding, (4, 6), (2, 2, 6)) == Sharding(
        (even(0, 2, 2, 4), AxisSplit(2, ((0, 3), (3, 6)) * 2))
    )
    assert reshaped(sharding, (4, 6), (3, 8)) is None


def test_nothing_and_too_much_are_not_reshaped(monkeypatch: pytest.MonkeyPatch) -> None:
    sharding = Sharding((even(0, 4, 2, 2),))
    assert reshaped(sharding, (4, 0), (0, 4)) is None
    assert reshaped(WHOLE, (4, 5), (20,)) == WHOLE
    monkeypatch.setattr(layouts, "_MOST_PLACES", 28)
    reshaped.cache_clear()
    assert reshaped(sharding, (4, 7), (28,)) == Sharding((even(0, 28, 2, 2),))
    assert reshaped(sharding, (4, 8), (32,)) is None
    reshaped.cache_clear()


def test_blocks_give_each_rdu_a_part_of_each() -> None:
    split = blocks(1, ((8, 4), (4, 2), (2, 1)), 4)
    assert split == AxisSplit(
        1, ((0, 2, 8, 10, 12, 14), (2, 4, 8, 10, 12, 14), (4, 6, 10, 14), (6, 8, 10, 14))
    )
    assert even(0, 6, 3, 6).ranges == ((0, 2), (0, 2), (2, 4), (2, 4), (4, 6), (4, 6))
    assert blocks(0, ((4, 1), (2, 1)), 2).ranges == ((0, 6), (0, 6))


def test_places_are_ranges_and_back() -> None:
    places = np.array([0, 1, 2, 5, 7, 8])
    assert ranges_of(places) == (0, 3, 5, 6, 7, 9)
    assert ranges_of(np.array([], np.int64)) == (0, 0)
    assert ranges_of(np.array([4])) == (4, 5)
    split = AxisSplit(0, (ranges_of(places),))
    np.testing.assert_array_equal(indices(split, 0), places)
    assert length(split) == 6


@pytest.mark.parametrize(
    ("ranges", "size", "expected"),
    [
        (((0, 2), (2, 4)), 4, True),
        (((2, 4), (0, 2)), 4, True),
        (((0, 1, 2, 3), (1, 2, 3, 4)), 4, True),
        (((0, 2), (2, 4)), 5, False),
        (((1, 2), (2, 4)), 4, False),
        (((0, 2), (0, 2), (2, 4), (2, 4)), 4, False),
        (((0, 1), (2, 4)), 4, False),
    ],
)
def test_partition_has_each_place_once(
    ranges: tuple[tuple[int, ...], ...], size: int, expected: bool
) -> None:
    assert is_partition(AxisSplit(0, ranges), size) is expected


def test_sharding_knows_its_axes() -> None:
    sharding = Sharding((even(0, 4, 2, 2), even(2, 6, 2, 2)))
    assert sharding.of(2) == even(2, 6, 2, 2)
    assert sharding.of(1) is None
    assert local_shape((4, 5, 6), sharding) == (2, 5, 3)
    assert (PARTIAL.partial, WHOLE.partial) == (True, False)
