"""``samba::DropoutMask`` in numpy, bit for bit the mask that its lowering for onnxruntime makes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

from samba_onnx.facts.domains import SAMBA_DOMAIN
from samba_onnx.runtime.engine.lowerings import dropout_masks as masks

Words = npt.NDArray[np.uint32]


class DropoutMask(OpRun):
    """The operator, found by its name and domain."""

    op_domain = SAMBA_DOMAIN

    def _run(
        self, rate: Any, seed: Any, shape: list[int] | None = None, stream: int = 0
    ) -> tuple[npt.NDArray[np.bool_]]:
        """Return which values are kept.

        Args:
            rate: Share of values to drop, a float32 without dimensions.
            seed: An int32 without dimensions.
            shape: The shape of the mask.
            stream: Number of the dropout in the program.
        """
        return (dropout_mask(np.float32(rate), int(seed), shape or [], stream),)


def dropout_mask(
    rate: np.float32, seed: int, shape: list[int], stream: int
) -> npt.NDArray[np.bool_]:
    """Return a mask that is true where a value is kept.

    Args:
        rate: Share of values to drop.
        seed: The seed of the step.
        shape: The shape of the mask.
        stream: Number of the dropout in the program.
    """
    size = math.prod(shape)
    rows, columns = masks.grid(size)
    with np.errstate(over="ignore"):
        start = np.uint32(seed & masks.LAST_WORD) * np.uint32(masks.SEED_STEP)
        start += masks.words([stream, 0], 1)[0]
        counters = start + np.arange(rows * columns, dtype=np.uint32) * np.uint32(masks.WEYL)
        words = _hashed(counters)
        by_seed, by_stream = masks.multipliers(stream)
        lanes = np.uint32(seed & masks.LAST_WORD) * by_seed + by_stream
        values = lanes.reshape(-1, 1) * words
    threshold = min(int(np.float32(rate) * np.float32(2**32)), masks.LAST_WORD)
    mask = values.reshape(-1)[:size] >= np.uint32(threshold)
    return np.asarray(mask.reshape(shape))


def _hashed(words: Words) -> Words:
    words = words ^ (words >> np.uint32(masks.FIRST_SHIFT))
    words = words * np.uint32(masks.MULTIPLIER)
    return np.asarray(words ^ (words >> np.uint32(masks.SECOND_SHIFT)), np.uint32)
