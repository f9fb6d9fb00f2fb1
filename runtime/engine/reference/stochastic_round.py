"""``samba::StochasticRound`` in numpy, by the bits of the numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

from samba_onnx.facts.domains import SAMBA_DOMAIN
from samba_onnx.runtime.engine.reference.random_words import random_words

Floats = npt.NDArray[np.float32]
_LOWER: int = 0xFFFF
"""Bits of float32 that bfloat16 lacks."""


class StochasticRound(OpRun):
    """The operator, found by its name and domain."""

    op_domain = SAMBA_DOMAIN

    def _run(self, value: Floats, seed: Any, stream: int = 0) -> tuple[Floats]:
        """Return numbers of bfloat16, in float32.

        Args:
            value: What is rounded, float32.
            seed: An int32 without dimensions.
            stream: Number of the rounding in the program.
        """
        return (stochastic_round(value, int(seed), stream),)


def stochastic_round(value: Floats, seed: int, stream: int) -> Floats:
    """Return for each number one of its neighbours in bfloat16, as the operator chooses it.

    Args:
        value: What is rounded.
        seed: The seed of the step.
        stream: Number of the rounding in the program.
    """
    value = np.asarray(value, np.float32)
    near = value.astype(ml_dtypes.bfloat16).astype(np.float32)
    bits = value.view(np.uint32)
    below = bits & np.uint32(0xFFFF ^ 0xFFFFFFFF)
    above = (below + np.uint32(_LOWER + 1)).view(np.float32)
    # The part of the way from the nearest neighbour to the other one, in 65536ths.
    part = (bits & np.uint32(_LOWER)).astype(np.int64)
    went_down = near.view(np.uint32) == below
    far = np.where(went_down, above, below.view(np.float32))
    way = np.where(went_down, part, 65536 - part)
    random = random_words(value.size, seed, stream).reshape(value.shape) >> np.uint32(16)
    moves = np.isfinite(near) & np.isfinite(far) & (part > 0) & (random < way)
    return np.asarray(np.where(moves, far, near), np.float32)
