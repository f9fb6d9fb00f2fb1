"""``samba::StochasticRound`` in operators that onnxruntime has.

``StochasticRound(value: float[shape], seed: int32[]) -> result: bfloat16[shape]`` with the attribute
``stream`` returns one of the two neighbours of a value among the numbers of bfloat16: the farther one
with the probability by which the value lies nearer to it than to the nearer one, in steps of 1/65536, which
are the float32 numbers between them. So the mean of the results is the value. Results depend on values, seed and
stream only. Numbers of bfloat16, infinities and NaN stay what they are; beyond the largest number of
bfloat16, which has no upper neighbour, values are rounded to nearest, as by a Cast.

onnxruntime before 1.31 cannot look at the bits of a float, so that neighbours are found by arithmetic: the
nearest one by a Cast, and the other one by a Cast of what lies a little more than half a step further on. All
differences here are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from samba_onnx.errors import PefFormatError
from samba_onnx.facts.domains import SAMBA_DOMAIN, STOCHASTIC_ROUND
from samba_onnx.runtime.engine.lowerings.nodes import (
    Nodes,
    Shape,
    declared_shapes,
    replace_own_operator,
)
from samba_onnx.runtime.engine.lowerings.random_words import MOST_VALUES, RandomWords, shape_first

STEP = np.float32(0.6 * 2**-7)
"""So much of a number, added to it, is 0.6 to 1.2 steps to the next number of bfloat16: more than half a
step and less than one and a half, so that it rounds to the next one. Below a power of two steps are half as
wide, and numbers there are as large as they get: 0.6 of the wide step is 1.2 of the narrow one."""
LEAST_STEP = np.float32(0.6 * 2**-133)
"""The same where numbers lie 2**-133 apart, down to zero."""
UPPER_BITS = 0xFFFF0000
"""As many bits of a random word as float32 has behind those of bfloat16."""


def expand_stochastic_rounds(model: onnx.ModelProto) -> None:
    """Replace every ``samba::StochasticRound`` by operators of the default domain.

    Args:
        model: Is changed in place, subgraphs included; imports version 18 or newer of the default
            operator set if it has such a node.

    Raises:
        PefFormatError: A node has other inputs or attributes than the operator, or the shape of its
            value is not known.
    """
    shapes = declared_shapes(model.graph)
    replace_own_operator(model, STOCHASTIC_ROUND, lambda node: _Round(node, shapes).nodes())


class _Round:
    """The nodes of one rounding."""

    def __init__(self, node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> None:
        names = {attribute.name for attribute in node.attribute}
        if len(node.input) != 2 or len(node.output) != 1 or names != {"stream"}:
            raise PefFormatError(
                f"node {node.name!r} is no {SAMBA_DOMAIN}::{STOCHASTIC_ROUND} of value and seed with "
                "the attribute stream; convert the model again"
            )
        self._value, self._seed = node.input
        self._result = node.output[0]
        shape = shapes.get(self._result, shapes.get(self._value))
        if shape is None or math.prod(shape) >= MOST_VALUES:
            raise PefFormatError(
                f"node {node.name!r} rounds a value of the impossible shape {shape}"
            )
        self._shape = shape
        self._stream = node.attribute[0].i
        self._nodes = Nodes(self._result)

    def nodes(self) -> Iterator[onnx.NodeProto]:
        """Yield the nodes in an order in which they can run."""
        make, number = self._nodes.make, self._nodes.constant
        near = self._rounded(self._value)
        rest = make("Sub", [self._value, near])
        size = make("Mul", [make("Abs", [near]), number(STEP)])
        step = make("Mul", [make("Max", [size, number(LEAST_STEP)]), make("Sign", [rest])])
        far = self._rounded(make("Add", [near, step]))
        # Not a number where the value is one of bfloat16, or none is beyond it: that is not less.
        part = make("Div", [rest, make("Sub", [far, near])])
        threshold = make("Mul", [part, number(np.float32(2**32))])
        goes = make("Less", [self._random(), threshold])
        chosen = make("Where", [goes, far, near])
        make("Cast", [chosen], result=self._result, to=onnx.TensorProto.BFLOAT16)
        yield from self._nodes.nodes

    def _rounded(self, value: str) -> str:
        """Return the nearest number of bfloat16, in float32."""
        narrow = self._nodes.make("Cast", [value], to=onnx.TensorProto.BFLOAT16)
        return self._nodes.make("Cast", [narrow], to=onnx.TensorProto.FLOAT)

    def _random(self) -> str:
        """Return multiples of 2**16 below 2**32, which float32 has."""
        values = RandomWords(self._nodes, self._seed, self._stream).make(math.prod(self._shape))
        upper = self._nodes.make(
            "BitwiseAnd", [values, self._nodes.constant(np.uint32(UPPER_BITS))]
        )
        floats = self._nodes.make("Cast", [upper], to=onnx.TensorProto.FLOAT)
        return shape_first(self._nodes, floats, self._shape)
