"""Random words in numpy, bit for bit those that nodes for onnxruntime make."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from samba_onnx.runtime.engine.lowerings import random_words as constants

Words = npt.NDArray[np.uint32]


def random_words(size: int, seed: int, stream: int) -> Words:
    """Return even words with uniform upper bits, of the shape ``(size,)``.

    Args:
        size: How many.
        seed: The seed of the step, an int32.
        stream: Number of the place that draws.
    """
    rows, columns = constants.grid(size)
    # Words wrap around, which numpy would warn of.
    with np.errstate(over="ignore"):
        start = np.uint32(seed & constants.LAST_WORD) * np.uint32(constants.SEED_STEP)
        start += constants.words([stream, 0], 1)[0]
        counters = start + np.arange(rows * columns, dtype=np.uint32) * np.uint32(constants.WEYL)
        words = _hashed(counters)
        by_seed, by_stream = constants.multipliers(stream)
        lanes = np.uint32(seed & constants.LAST_WORD) * by_seed + by_stream
        values = lanes.reshape(-1, 1) * words
    return np.asarray(values.reshape(-1)[:size])


def _hashed(words: Words) -> Words:
    words = words ^ (words >> np.uint32(constants.FIRST_SHIFT))
    words = words * np.uint32(constants.MULTIPLIER)
    return np.asarray(words ^ (words >> np.uint32(constants.SECOND_SHIFT)), np.uint32)
