"""``samba::DropoutMask`` in numpy, bit for bit the mask that its lowering for onnxruntime makes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

from samba_onnx.facts.domains import SAMBA_DOMAIN
from samba_onnx.runtime.engine.lowerings import random_words as words
from samba_onnx.runtime.engine.reference.random_words import random_words


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
    values = random_words(math.prod(shape), seed, stream)
    threshold = min(int(np.float32(rate) * np.float32(2**32)), words.LAST_WORD)
    return np.asarray((values >= np.uint32(threshold)).reshape(shape))
