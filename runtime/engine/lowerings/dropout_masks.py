"""``samba::DropoutMask`` in operators that onnxruntime has.

``DropoutMask(rate: float[], seed: int32[]) -> mask: bool[shape]`` is true where a value is kept,
with probability 1 - rate. The mask depends on seed, rate, the attributes ``shape`` and ``stream``,
and nothing else, so that forward and backward passes of a step can both make it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx

from samba_onnx.errors import PefFormatError
from samba_onnx.facts.domains import DROPOUT_MASK, SAMBA_DOMAIN
from samba_onnx.runtime.engine.lowerings.nodes import Nodes, replace_own_operator
from samba_onnx.runtime.engine.lowerings.random_words import (
    LAST_WORD,
    MOST_VALUES,
    RandomWords,
    shape_first,
)


def expand_dropout_masks(model: onnx.ModelProto) -> None:
    """Replace every ``samba::DropoutMask`` by operators of the default domain.

    Args:
        model: Is changed in place, subgraphs included; imports version 18 or newer of the default
            operator set if it has such a node.

    Raises:
        PefFormatError: A node has other inputs or attributes than the operator.
    """
    replace_own_operator(model, DROPOUT_MASK, lambda node: _Mask(node).nodes())


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
        if any(size < 0 for size in shape) or math.prod(shape) >= MOST_VALUES:
            raise PefFormatError(f"node {node.name!r} makes a mask of the impossible shape {shape}")
        self._rate, self._seed = node.input
        self._result = node.output[0]
        self._shape = shape
        self._stream = attributes["stream"].i
        self._nodes = Nodes(self._result)

    def nodes(self) -> Iterator[onnx.NodeProto]:
        """Yield the nodes in an order in which they can run."""
        values = RandomWords(self._nodes, self._seed, self._stream).make(math.prod(self._shape))
        mask = self._nodes.make("GreaterOrEqual", [values, self._threshold()])
        shape_first(self._nodes, mask, self._shape, self._result)
        yield from self._nodes.nodes

    def _threshold(self) -> str:
        """Return the word below which values are dropped: 0 at rate 0, the last one at rate 1."""
        scaled = self._nodes.make("Mul", [self._rate, self._nodes.constant(np.float32(2**32))])
        # In 64 bits: at rate 1 the product is one more than a word holds.
        whole = self._nodes.make("Cast", [scaled], to=onnx.TensorProto.INT64)
        bounded = self._nodes.make("Min", [whole, self._nodes.constant(np.int64(LAST_WORD))])
        return self._nodes.make("Cast", [bounded], to=onnx.TensorProto.UINT32)
