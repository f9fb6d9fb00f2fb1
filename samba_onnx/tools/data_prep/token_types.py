"""What a token is to training, and arrays of tokens with all that is known of each."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int32]

NO_CATEGORY = -1
"""The category of a token whose article has none, and of padding."""

DATASETS = ("input_ids", "token_type_ids", "category_ids")
"""Names of the planes of a token array, in their order; the last one only where there are categories."""


class TokenType(enum.IntEnum):
    """What a token is, by its number in ``token_type_ids``."""

    PROMPT = 0
    COMPLETION = 1
    PADDING = 2
    SEPARATOR = 3


@dataclass(frozen=True)
class Articles:
    """Tokens of several articles, one article after the other."""

    planes: Integers
    """(planes, tokens): ids, types and, where there are categories, the category of every token."""
    lengths: npt.NDArray[np.int64]
    """Tokens of each article; their sum is the number of tokens."""
