"""How the mini-batches of a spatially mapped graph lie in one value."""

from __future__ import annotations

from collections.abc import Sequence


def batched_shape(shape: Sequence[int], batches: int) -> tuple[int, ...]:
    """Return the shape of a value that holds mini-batches one after the other.

    Programs for SambaFlow concatenate the inputs of a spatial run along the first dimension. What
    has no dimension, as the mean loss of a mini-batch, becomes one number per mini-batch.

    Args:
        shape: Shape of one mini-batch.
        batches: How many there are.
    """
    if not shape:
        return (batches,)
    return (batches * shape[0], *shape[1:])
