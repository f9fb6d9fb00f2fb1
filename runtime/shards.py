"""The part of a whole value that each of several RDUs holds, and the whole of all parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from samba_onnx.pef.sharding import AxisSplit, Sharded
from samba_onnx.runtime.elements import Array

__all__ = ["assembled", "shard_of"]


def shard_of(array: Array, sharded: Sharded | None, rdu: int) -> Array:
    """Return what one RDU holds of a value.

    Args:
        array: The whole value.
        sharded: How it is cut; None for one that is whole on every RDU.
        rdu: Number of the RDU.

    Returns:
        The array itself if it is not cut; a contiguous copy of the shard otherwise.
    """
    if sharded is None:
        return array
    for split in sharded.axes:
        array = np.take(array, _places(split, rdu), axis=split.axis)
    return np.ascontiguousarray(array)


def assembled(shards: Sequence[Array], sharded: Sharded | None) -> Array:
    """Return the whole of what the RDUs hold.

    Args:
        shards: One array per RDU, in their order.
        sharded: How the value is cut; None for one that is whole on every RDU, of which the first one's is
            taken.
    """
    if sharded is None:
        return shards[0]
    # By the same indices as ``shard_of`` takes them, so that each is the inverse of the other.
    whole = np.empty(sharded.shape, shards[0].dtype)
    for rdu, shard in enumerate(shards):
        places = [np.arange(size) for size in sharded.shape]
        for split in sharded.axes:
            places[split.axis] = _places(split, rdu)
        whole[np.ix_(*places)] = shard
    return whole


def _places(split: AxisSplit, rdu: int) -> Array:
    flat = split.ranges[rdu]
    return np.concatenate([np.arange(a, b) for a, b in zip(flat[::2], flat[1::2], strict=True)])
