"""How a value lies on several RDUs, and what reshaping makes of that."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from samba_onnx.pef.sharding import AxisSplit

__all__ = [
    "PARTIAL",
    "WHOLE",
    "Shape",
    "Sharding",
    "blocks",
    "even",
    "indices",
    "is_partition",
    "length",
    "local_shape",
    "ranges_of",
    "reshaped",
    "shifted",
]

Shape: TypeAlias = tuple[int, ...]
_MOST_PLACES: Final = 1 << 24
"""Axes that are reshaped together are looked at element by element up to this size."""


@dataclass(frozen=True)
class Sharding:
    """How a value lies on the RDUs: whole on each, in shards, or as summands of one sum."""

    axes: tuple[AxisSplit, ...] = ()
    """Axes that are cut, in order."""
    partial: bool = False
    """Whether each RDU has a summand of the value, of its full shape."""

    def of(self, axis: int) -> AxisSplit | None:
        """Return how an axis is cut; None where each RDU has all of it."""
        return next((split for split in self.axes if split.axis == axis), None)


WHOLE: Final = Sharding()
PARTIAL: Final = Sharding(partial=True)


def even(axis: int, size: int, parts: int, rdus: int) -> AxisSplit:
    """Return an axis in equal parts, each on as many neighbouring RDUs.

    Args:
        axis: The axis.
        size: Its size, a multiple of ``parts``.
        parts: Number of parts, a divisor of ``rdus``.
        rdus: Number of RDUs.
    """
    return blocks(axis, ((size, parts),), rdus)


def blocks(axis: int, sizes: Sequence[tuple[int, int]], rdus: int) -> AxisSplit:
    """Return an axis of several blocks, of each of which every RDU has a part.

    Args:
        axis: The axis.
        sizes: Size of every block and number of its parts; all parts of a block are equal.
        rdus: Number of RDUs, a multiple of the numbers of parts.
    """
    ranges: list[tuple[int, ...]] = []
    for rdu in range(rdus):
        mine: list[int] = []
        start = 0
        for size, parts in sizes:
            # Where there are fewer parts than RDUs, neighbours have the same part.
            step, place = size // parts, rdu // (rdus // parts)
            mine += [start + place * step, start + (place + 1) * step]
            start += size
        ranges.append(tuple(mine))
    # In one form only: how values lie is compared by ranges.
    return AxisSplit(axis, tuple(_joined(each) for each in ranges))


def indices(split: AxisSplit, rdu: int) -> np.ndarray:
    """Return the places along the axis that an RDU holds, in its order."""
    flat = split.ranges[rdu]
    return np.concatenate([np.arange(a, b) for a, b in zip(flat[::2], flat[1::2], strict=True)])


def length(split: AxisSplit) -> int:
    """Return how many places along the axis each RDU holds."""
    # Every RDU holds as many: all of them run one program.
    flat = split.ranges[0]
    return sum(flat[1::2]) - sum(flat[::2])


def ranges_of(places: np.ndarray) -> tuple[int, ...]:
    """Return places along an axis as starts and ends of ranges."""
    # No place is one empty range: a split states at least one for each RDU.
    if not len(places):
        return (0, 0)
    ends = np.flatnonzero(np.diff(places) != 1)
    starts = places[np.concatenate([[0], ends + 1])]
    stops = places[np.concatenate([ends, [len(places) - 1]])] + 1
    return tuple(int(x) for pair in zip(starts, stops, strict=True) for x in pair)


def _joined(flat: tuple[int, ...]) -> tuple[int, ...]:
    """Return ranges with neighbours as one."""
    result: list[int] = []
    for start, stop in zip(flat[::2], flat[1::2], strict=True):
        if result and result[-1] == start:
            result[-1] = stop
        else:
            result += [start, stop]
    return tuple(result)


def is_partition(split: AxisSplit, size: int) -> bool:
    """Return whether each place along an axis of that size is on exactly one RDU."""
    spans = sorted(
        span for flat in split.ranges for span in zip(flat[::2], flat[1::2], strict=True)
    )
    ends = [0, *(end for _, end in spans)]
    return ends[-1] == size and all(
        start == end for (start, _), end in zip(spans, ends, strict=False)
    )


def shifted(split: AxisSplit, axis: int) -> AxisSplit:
    """Return the same cut of another axis."""
    return AxisSplit(axis, split.ranges)


def local_shape(shape: Shape, sharding: Sharding) -> Shape:
    """Return the shape that each RDU has of a value.

    Args:
        shape: Shape of the whole.
        sharding: How it lies on the RDUs.
    """
    sizes = list(shape)
    for split in sharding.axes:
        sizes[split.axis] = length(split)
    return tuple(sizes)


# Every layer of a model reshapes as the one before it did.
@functools.lru_cache(maxsize=4096)
def reshaped(sharding: Sharding, before: Shape, after: Shape) -> Sharding | None:
    """Return how a value lies on the RDUs when each of them reshapes what it has.

    Args:
        sharding: How it lies before; no sum.
        before: Shape of the whole before.
        after: Shape of the whole behind.

    Returns:
        The sharding behind; None where what an RDU has is no block of the new shape.
    """
    # Without elements, sizes do not tell which axes hold the same ones.
    if 0 in before:
        return None
    axes: list[AxisSplit] = []
    for old, new in _groups(before, after):
        splits = {axis: sharding.of(axis) for axis in old}
        # Axes that are whole before are whole behind, whatever becomes of them.
        if not any(splits.values()):
            continue
        if math.prod(before[axis] for axis in old) > _MOST_PLACES:
            return None
        found = _regrouped(
            [before[axis] for axis in old],
            [splits[axis] for axis in old],
            [after[axis] for axis in new],
        )
        if found is None:
            return None
        axes += [AxisSplit(new[place], ranges) for place, ranges in found]
    return Sharding(tuple(axes))


def _groups(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """Return the smallest groups of neighbouring axes that hold the same elements."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        old, new = [i], [j]
        left, right = before[i], after[j]
        # The side with fewer elements takes in its next axis, until both hold the same ones.
        while left != right:
            if left < right:
                i += 1
                old.append(i)
                left *= before[i]
            else:
                j += 1
                new.append(j)
                right *= after[j]
        groups.append((old, new))
        i, j = i + 1, j + 1
    if groups:  # axes of size 1 at the end
        groups[-1][0].extend(range(i, len(before)))
        groups[-1][1].extend(range(j, len(after)))
    return groups


def _regrouped(
    old: Sequence[int], splits: Sequence[AxisSplit | None], new: Sequence[int]
) -> list[tuple[int, tuple[tuple[int, ...], ...]]] | None:
    """Return the cuts of new axes, by their place in the group; None where there are none."""
    rdus = next(len(split.ranges) for split in splits if split is not None)
    held: list[list[np.ndarray]] = []
    for rdu in range(rdus):
        places = [
            np.arange(size) if split is None else indices(split, rdu)
            for size, split in zip(old, splits, strict=True)
        ]
        axes = _as_block(_flat(places, old), new)
        if axes is None:
            return None
        held.append(axes)
    cuts = []
    for place, size in enumerate(new):
        mine = [axes[place] for axes in held]
        # All RDUs run one program, whose values have one shape.
        if len({len(each) for each in mine}) > 1:
            return None
        # An axis of which every RDU has all, in order, is not cut.
        if any(len(each) != size or (each != np.arange(size)).any() for each in mine):
            cuts.append((place, tuple(ranges_of(each) for each in mine)))
    return cuts


def _flat(places: Iterable[np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    """Return the places of a block in the flattened axes, in the order of the block."""
    total = np.zeros(1, np.int64)
    for each, size in zip(places, sizes, strict=True):
        total = (total[:, None] * size + each[None, :]).reshape(-1)
    return total


def _as_block(flat: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray] | None:
    """Return the places along each axis that make these flat places; None if no block does."""
    axes: list[np.ndarray] = []
    for coordinate in np.unravel_index(flat, tuple(sizes)):
        # In the order in which they come first: places of several blocks need not ascend.
        _, first = np.unique(coordinate, return_index=True)
        axes.append(coordinate[np.sort(first)])
    # Only a full block in this order is what an RDU gets by reshaping its own elements.
    if math.prod(len(axis) for axis in axes) != len(flat) or (_flat(axes, sizes) != flat).any():
        return None
    return axes
