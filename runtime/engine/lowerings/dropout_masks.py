"""``samba::DropoutMask`` in operators that onnxruntime has.

``DropoutMask(rate: float[], seed: int32[]) -> mask: bool[shape]`` is true where a value is kept,
with probability 1 - rate. The mask depends on seed, rate, the attributes ``shape`` and ``stream``,
and nothing else, so that forward and backward passes of a step can both make it.

A counter goes through a hash of the kind of lowbias32: multiply, exchange upper and lower bits,
multiply. Shifts and exclusive ors take four times as long as products in onnxruntime, so each word
serves eight values: the last product is made with eight multipliers, and compares look at its upper
bits only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import onnx

from samba_onnx.errors import PefFormatError
from samba_onnx.facts.domains import DROPOUT_MASK, SAMBA_DOMAIN
from samba_onnx.runtime.engine.lowerings.nodes import Nodes

LANES = 8
"""Values that share a word."""
_LONGEST_ROW = 4096
"""Counters are sums of a row's and a column's share, which are kept as constants."""
WEYL = 0x9E3779B9
MULTIPLIER = 0x7FEB352D
SEED_STEP = 0x85EBCA6B
FIRST_SHIFT, SECOND_SHIFT = 16, 15
LAST_WORD = 2**32 - 1
_MOST_VALUES = 2**33
"""Of one mask, so that every counter differs from the others with room to spare."""


def expand_dropout_masks(model: onnx.ModelProto) -> None:
    """Replace every ``samba::DropoutMask`` by operators of the default domain.

    Args:
        model: Is changed in place, subgraphs included; imports version 18 or newer of the default
            operator set if it has such a node.

    Raises:
        PefFormatError: A node has other inputs or attributes than the operator.
    """
    _expand(model.graph)
    opsets = [opset for opset in model.opset_import if opset.domain != SAMBA_DOMAIN]
    if len(opsets) != len(model.opset_import):
        del model.opset_import[:]
        model.opset_import.extend(opsets)


def _expand(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    _expand(inner)
    if not any(_is_mask(node) for node in graph.node):
        return
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.extend(_Mask(node).nodes() if _is_mask(node) else (node,))
    del graph.node[:]
    graph.node.extend(nodes)


def _is_mask(node: onnx.NodeProto) -> bool:
    return node.domain == SAMBA_DOMAIN and node.op_type == DROPOUT_MASK


class _Mask:
    """The nodes of one mask."""

    def __init__(self, node: onnx.NodeProto) -> None:
        attributes = {attribute.name: attribute for attribute in node.attribute}
        if len(node.input) != 2 or len(node.output) != 1 or set(attributes) != {"shape", "stream"}:
            raise PefFormatError(
                f"node {node.name!r} is no {SAMBA_DOMAIN}::{DROPOUT_MASK} of rate and seed with the "
                "attributes shape and stream; convert the model again"
            )
        shape = tuple(attributes["shape"].ints)
        if any(size < 0 for size in shape) or math.prod(shape) >= _MOST_VALUES:
            raise PefFormatError(f"node {node.name!r} makes a mask of the impossible shape {shape}")
        self._rate, seed = node.input
        self._result = node.output[0]
        self._shape = shape
        self._stream = attributes["stream"].i
        self._nodes = Nodes(self._result)
        self._seed = self._nodes.make("Cast", [seed], to=onnx.TensorProto.UINT32)

    def nodes(self) -> Iterator[onnx.NodeProto]:
        """Yield the nodes in an order in which they can run."""
        size = math.prod(self._shape)
        rows, columns = grid(size)
        hashed = self._lanes(self._hashed(self._counters(rows, columns)))
        mask = self._nodes.make("GreaterOrEqual", [hashed, self._threshold()])
        if rows * columns * LANES != size:
            flat = self._nodes.make("Reshape", [mask, self._nodes.constant(np.array([-1]))])
            bounds = [self._nodes.constant(np.array([bound])) for bound in (0, size)]
            mask = self._nodes.make("Slice", [flat, *bounds])
        shape = self._nodes.constant(np.array(self._shape, np.int64))
        self._nodes.make("Reshape", [mask, shape], result=self._result)
        yield from self._nodes.nodes

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

        They are even, so that no product reaches the threshold of rate 1.
        """
        by_seed, by_stream = multipliers(self._stream)
        scaled = self._nodes.make("Mul", [self._seed, self._nodes.constant(by_seed[:, None, None])])
        factors = self._nodes.make("Add", [scaled, self._nodes.constant(by_stream[:, None, None])])
        return self._nodes.make("Mul", [words, factors])

    def _threshold(self) -> str:
        """Return the word below which values are dropped: 0 at rate 0, the last one at rate 1."""
        scaled = self._nodes.make("Mul", [self._rate, self._nodes.constant(np.float32(2**32))])
        whole = self._nodes.make("Cast", [scaled], to=onnx.TensorProto.INT64)
        bounded = self._nodes.make("Min", [whole, self._nodes.constant(np.int64(LAST_WORD))])
        return self._nodes.make("Cast", [bounded], to=onnx.TensorProto.UINT32)


def grid(size: int) -> tuple[int, int]:
    """Return in how many rows and columns the words of a mask lie.

    Args:
        size: Number of values in the mask.
    """
    count = max(-(-size // LANES), 1)
    rows = -(-count // _LONGEST_ROW)
    return rows, -(-count // rows)


def multipliers(stream: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return the eight multipliers of words: what the seed is multiplied by, and what is added.

    Args:
        stream: Number of the dropout in the program.
    """
    # A product with a multiple of 4 leaves the lowest bits of the stream's own share: 2.
    by_seed = words([0, 1], LANES) & ~np.uint32(3)
    by_stream = words([stream, 2], LANES) & ~np.uint32(3) | np.uint32(2)
    return by_seed, by_stream


def words(key: Iterable[int], count: int) -> npt.NDArray[np.uint32]:
    """Return constant words, the same ones for a key on every machine."""
    words = [word & (2**32 - 1) for word in key]
    return np.random.SeedSequence(words).generate_state(count).astype(np.uint32)
