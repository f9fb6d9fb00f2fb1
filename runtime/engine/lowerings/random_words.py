"""Random 32-bit words in operators that onnxruntime has, the same ones for a seed on every machine.

A counter goes through a hash of the kind of lowbias32: multiply, exchange upper and lower bits,
multiply. Shifts and exclusive ors take four times as long as products in onnxruntime, so each word
serves eight values: the last product is made with eight multipliers, and whoever reads the values looks
at their upper bits only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import onnx

from samba_onnx.runtime.engine.lowerings.nodes import Nodes

LANES = 8
"""Values that share a word."""
_LONGEST_ROW = 4096
"""Counters are sums of a row's and a column's share, which are kept as constants."""
# The step between counters, 2**32 by the golden ratio: it is odd, so that no counter comes twice.
WEYL = 0x9E3779B9
# Multiplier and shifts are those with which lowbias32 begins.
MULTIPLIER = 0x7FEB352D
# Odd as well, so that every seed has another first counter.
SEED_STEP = 0x85EBCA6B
FIRST_SHIFT, SECOND_SHIFT = 16, 15
LAST_WORD = 2**32 - 1
MOST_VALUES = 2**33
"""Of one drawing, so that every counter differs from the others with room to spare."""


class RandomWords:
    """The nodes that make the words of one seed and stream."""

    def __init__(self, nodes: Nodes, seed: str, stream: int) -> None:
        """Begin.

        Args:
            nodes: Where nodes are added.
            seed: Name of the seed, an int32 without dimensions.
            stream: Number of the place that draws; places with one seed draw different words.
        """
        self._nodes = nodes
        self._stream = stream
        self._seed = nodes.make("Cast", [seed], to=onnx.TensorProto.UINT32)

    def make(self, size: int) -> str:
        """Return the name of uint32 values of the shape ``(LANES, *grid(size))``, ``size`` or some more.

        All are even, and their upper bits are uniform and independent.

        Args:
            size: How many are needed.
        """
        return self._lanes(self._hashed(self._counters(*grid(size))))

    def _counters(self, rows: int, columns: int) -> str:
        """Return distinct words, which begin elsewhere for every seed and stream."""
        (start,) = words([self._stream, 0], 1)
        step = self._nodes.make("Mul", [self._seed, self._nodes.constant(np.uint32(SEED_STEP))])
        across = np.arange(columns, dtype=np.uint32) * np.uint32(WEYL)
        down = np.arange(rows, dtype=np.uint32) * np.uint32(columns * WEYL % 2**32) + start
        first = self._nodes.make("Add", [step, self._nodes.constant(down[:, None])])
        return self._nodes.make("Add", [first, self._nodes.constant(across)])

    def _hashed(self, words: str) -> str:
        words = self._fold(words, FIRST_SHIFT)
        words = self._nodes.make("Mul", [words, self._nodes.constant(np.uint32(MULTIPLIER))])
        return self._fold(words, SECOND_SHIFT)

    def _fold(self, words: str, distance: int) -> str:
        by = self._nodes.constant(np.uint32(distance))
        upper = self._nodes.make("BitShift", [words, by], direction="RIGHT")
        return self._nodes.make("BitwiseXor", [words, upper])

    def _lanes(self, words: str) -> str:
        """Multiply every word by eight multipliers, which differ by seed and stream.

        They are even, so that no product is the last word.
        """
        by_seed, by_stream = multipliers(self._stream)
        scaled = self._nodes.make("Mul", [self._seed, self._nodes.constant(by_seed[:, None, None])])
        factors = self._nodes.make("Add", [scaled, self._nodes.constant(by_stream[:, None, None])])
        return self._nodes.make("Mul", [words, factors])


def grid(size: int) -> tuple[int, int]:
    """Return in how many rows and columns words lie.

    Args:
        size: Number of values that are drawn.
    """
    count = max(-(-size // LANES), 1)
    rows = -(-count // _LONGEST_ROW)
    return rows, -(-count // rows)


def shape_first(nodes: Nodes, values: str, shape: Sequence[int], result: str = "") -> str:
    """Add nodes that give the first of some values a shape, and return the result's name.

    Args:
        nodes: Where nodes are added.
        values: A name; of the shape that ``RandomWords.make`` returns for as many values.
        shape: Sizes of the result.
        result: Name of the result; a new one by default.
    """
    size = math.prod(shape)
    rows, columns = grid(size)
    if rows * columns * LANES != size:
        flat = nodes.make("Reshape", [values, nodes.integers(-1)])
        values = nodes.make("Slice", [flat, nodes.integers(0), nodes.integers(size)])
    # Without values a zero among the sizes is one, and not the size of what is reshaped.
    zeros = {"allowzero": 1} if not size else {}
    return nodes.make("Reshape", [values, nodes.integers(*shape)], result=result, **zeros)


def multipliers(stream: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return the eight multipliers of words: what the seed is multiplied by, and what is added.

    Args:
        stream: Number of the place that draws.
    """
    # A product with a multiple of 4 leaves the lowest bits of the stream's own share: 2.
    by_seed = words([0, 1], LANES) & ~np.uint32(3)
    by_stream = words([stream, 2], LANES) & ~np.uint32(3) | np.uint32(2)
    return by_seed, by_stream


def words(key: Iterable[int], count: int) -> npt.NDArray[np.uint32]:
    """Return constant words, the same ones for a key on every machine."""
    words = [word & (2**32 - 1) for word in key]
    return np.random.SeedSequence(words).generate_state(count).astype(np.uint32)
