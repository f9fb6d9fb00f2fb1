"""How many arithmetic operations one execution of an operator performs, from shapes alone.

A multiply-add counts as two operations. An operator states its work as a number of operations per
element, as a formula, or as none with the reason. Whoever has a node of any library's kind makes
:class:`NodeShapes` of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

__all__ = [
    "Formula",
    "NoArithmetic",
    "NodeShapes",
    "PerInputElement",
    "PerOutputElement",
    "Shape",
    "Uncounted",
    "Work",
]

Shape: TypeAlias = tuple[int, ...]
"""Sizes of the dimensions; one that is not known is 0, and ``(0,)`` is a shape that is not known."""


@dataclass(frozen=True)
class NodeShapes:
    """What a count of operations needs to know of a node."""

    inputs: tuple[Shape | None, ...]
    """Shapes by position; None for an input that is left out."""
    outputs: tuple[Shape | None, ...]
    attributes: Mapping[str, Any]
    """Values by name: numbers, texts and sequences of them."""

    def input(self, position: int) -> Shape | None:
        """Return the shape of an input.

        Args:
            position: Position of the input, from 0.

        Returns:
            The shape; None where the node has no such input or leaves it out.
        """
        return self.inputs[position] if position < len(self.inputs) else None

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute.

        Args:
            name: The attribute.
            default: Its value where the node does not state it.
        """
        return int(self.attributes.get(name, default))

    def text(self, name: str, default: str) -> str:
        """Return a text attribute.

        Args:
            name: The attribute.
            default: Its value where the node does not state it.
        """
        return str(self.attributes.get(name, default))

    @property
    def output(self) -> Shape | None:
        """The shape of the first output; None if the node has none."""
        return self.outputs[0] if self.outputs else None


class Work(Protocol):
    """What an operator states about its arithmetic."""

    def count(self, node: NodeShapes) -> int:
        """Return the operations of one execution.

        Args:
            node: Shapes and attributes of the node.

        Returns:
            The number of operations, 0 where a shape that the count needs is not known.
        """

    @property
    def text(self) -> str:
        """The count, or why there is none, in words for a cell of a table."""


@dataclass(frozen=True)
class PerOutputElement:
    """A number of operations for each element of the first output."""

    factor: int
    steps: str
    """The operations, in words."""

    def count(self, node: NodeShapes) -> int:
        """Return the factor times the elements of the first output.

        Args:
            node: Shapes and attributes of the node.
        """
        return self.factor * elements(node.output)

    @property
    def text(self) -> str:
        """The count, or why there is none, in words for a cell of a table."""
        return f"{self.factor} per element of the result: {self.steps}"


@dataclass(frozen=True)
class PerInputElement:
    """A number of operations for each element of the first input."""

    factor: int
    steps: str
    """The operations, in words."""

    def count(self, node: NodeShapes) -> int:
        """Return the factor times the elements of the first input.

        Args:
            node: Shapes and attributes of the node.
        """
        return self.factor * elements(node.input(0))

    @property
    def text(self) -> str:
        """The count, or why there is none, in words for a cell of a table."""
        return f"{self.factor} per element of the first operand: {self.steps}"


@dataclass(frozen=True)
class Formula:
    """Operations that are not a multiple of one operand's elements."""

    function: Callable[[NodeShapes], int]
    steps: str
    """The formula, in words."""

    def count(self, node: NodeShapes) -> int:
        """Return what the formula gives.

        Args:
            node: Shapes and attributes of the node.
        """
        return self.function(node)

    @property
    def text(self) -> str:
        """The count, or why there is none, in words for a cell of a table."""
        return self.steps


@dataclass(frozen=True)
class NoArithmetic:
    """An operator that moves, selects or describes data, or reads its bits in another way."""

    reason: str

    def count(self, node: NodeShapes) -> int:
        """Return 0.

        Args:
            node: Shapes and attributes of the node; they make no difference.
        """
        return 0

    @property
    def text(self) -> str:
        """The count, or why there is none, in words for a cell of a table."""
        return f"none: {self.reason}"


@dataclass(frozen=True)
class Uncounted:
    """An operator that computes, how much its shapes do not tell."""

    reason: str

    def count(self, node: NodeShapes) -> int:
        """Return 0, which is too low.

        Args:
            node: Shapes and attributes of the node; they make no difference.
        """
        return 0

    @property
    def text(self) -> str:
        """The count, or why there is none, in words for a cell of a table."""
        return f"not counted: {self.reason}"


def elements(shape: Shape | None) -> int:
    """Return how many elements a tensor has.

    Args:
        shape: Its shape, or None for an operand that is left out.

    Returns:
        The product of the dimensions, 1 for a scalar; 0 for what is left out or not known.
    """
    return 0 if shape is None else math.prod(shape)


def size(shape: Shape | None, axis: int) -> int:
    """Return one dimension of a tensor.

    Args:
        shape: Its shape, or None for an operand that is left out.
        axis: Position of the dimension, counted from the end if negative.

    Returns:
        The dimension, 0 where it is not known or there is none.
    """
    # 0 for an axis that is not there: a count of nothing is what an unknown shape gives, too.
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else 0


def matrix_product(node: NodeShapes) -> int:
    """Count MatMul: a multiply-add per output element and element of the contracted axis."""
    # The contracted axis is the last of the first operand, whatever the rank and the batch of both.
    return 2 * elements(node.output) * size(node.input(0), -1)


def quantized_matrix_product(node: NodeShapes) -> int:
    """Count QLinearMatMul: a product, and one operation to requantise each element."""
    return matrix_product(node) + elements(node.output)


def gemm(node: NodeShapes) -> int:
    """Count Gemm: a matrix product, and an addition per element where there is a bias."""
    depth = size(node.input(0), 0 if node.integer("transA", 0) else 1)
    return (2 * depth + int(node.input(2) is not None)) * elements(node.output)


def convolution(weight: int, bias: int) -> Callable[[NodeShapes], int]:
    """Return the formula of a convolution.

    Args:
        weight: Position of the weight among the inputs.
        bias: Position of the bias; one that no node has where the operator takes none.

    Returns:
        A formula that counts a multiply-add per output element and element of one kernel.
    """

    def formula(node: NodeShapes) -> int:
        channels = size(node.input(weight), 0)
        if not channels:
            return 0
        depth = elements(node.input(weight)) // channels
        return (2 * depth + int(node.input(bias) is not None)) * elements(node.output)

    return formula


NO_BIAS = 1 << 30
"""A position at which no node has an input."""


def transposed_convolution(node: NodeShapes) -> int:
    """Count ConvTranspose: each input element meets every output channel's kernel once."""
    channels = size(node.input(1), 0)
    if not channels:
        return 0
    # The first axis of this weight is the input channels: each input element is spread over the
    # rest.
    spread = elements(node.input(1)) // channels
    bias = elements(node.output) if node.input(2) is not None else 0
    return 2 * spread * elements(node.input(0)) + bias


def pool(node: NodeShapes) -> int:
    """Count a pooling: one operation per output element and element of the window."""
    window: Shape = tuple(node.attributes.get("kernel_shape", ()))
    return math.prod(window) * elements(node.output)


def local_response(node: NodeShapes) -> int:
    """Count LRN: a square and a sum per neighbour, then scale, add, power and division."""
    return (2 * node.integer("size", 1) + 4) * elements(node.output)


def recurrent(gates: int, per_state: int) -> Callable[[NodeShapes], int]:
    """Return the formula of a recurrent layer.

    Args:
        gates: Matrix products per step.
        per_state: Elementwise operations per element of the hidden state and step.

    Returns:
        A formula that counts all steps, directions and rows of the batch.
    """

    def formula(node: NodeShapes) -> int:
        sequence, weight, recurrence = (node.input(position) for position in range(3))
        steps = size(sequence, 0) * size(sequence, 1)
        directions, hidden = size(recurrence, 0), size(recurrence, 2)
        depth = size(weight, 2) + hidden
        return steps * directions * hidden * (2 * gates * depth + per_state)

    return formula


def attention(node: NodeShapes) -> int:
    """Count Attention: two matrix products, and a softmax of five operations over the scores."""
    query, key, value = (node.input(position) for position in range(3))
    # Past keys are read as well.
    length = size(key, -2) + size(node.input(4), -2)
    if query is None or value is None:
        return 0
    # With four dimensions heads are an axis, and counted with the rows.
    packed = len(query) == 3  # heads lie in the last dimension
    heads = node.integer("q_num_heads", 0) if packed else 1
    key_heads = node.integer("kv_num_heads", 0) if packed else 1
    if not heads or not key_heads:
        return 0
    rows = elements(query) // max(size(query, -1), 1)  # batch x [heads x] query length
    # Values may be wider than keys, and heads of queries share those of keys.
    value_width = size(value, -1) // key_heads * heads
    scores = rows * heads * length
    return 2 * rows * length * (size(query, -1) + value_width) + 5 * scores


def linear_attention(node: NodeShapes) -> int:
    """Count LinearAttention: per token the state is updated by each key head, read by each head.

    An update is an outer product that is added; a gate scales the state before, a delta rule reads
    the state with the key and subtracts.
    """
    query, value = node.input(0), node.input(2)
    heads = node.integer("q_num_heads", 0)
    key_heads = node.integer("kv_num_heads", 0)
    if not heads or not key_heads:
        return 0
    tokens = size(query, 0) * size(query, 1)
    # The state of a head has a row per feature of its keys and a column per feature of its values.
    state = (size(query, -1) // heads) * (size(value, -1) // key_heads)
    rule = node.text("update_rule", "gated_delta")
    update = 2 + ("gated" in rule) + 2 * ("delta" in rule)
    return tokens * state * (update * key_heads + 2 * heads)


def einsum(node: NodeShapes) -> int:
    """Count Einsum: for every combination of indices a product of all operands and a sum."""
    equation = node.text("equation", "").replace(" ", "")
    terms = equation.split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, node.inputs, strict=False):
        before, dots, after = term.partition("...")
        labels = {label: size(shape, axis) for axis, label in enumerate(before)}
        labels |= {label: size(shape, -1 - axis) for axis, label in enumerate(reversed(after))}
        if dots:
            labels[dots] = elements(shape) // max(math.prod(labels.values()), 1)
        # A size of 1 broadcasts, so that the largest one counts.
        sizes |= {label: max(length, sizes.get(label, 0)) for label, length in labels.items()}
    # One product less than there are operands, and the sum.
    return len(terms) * math.prod(sizes.values()) if sizes else 0


def determinant(node: NodeShapes) -> int:
    """Count Det by elimination: two thirds of the cube of a matrix's rows."""
    rows = size(node.input(0), -1)
    # n^3 * 2/3 for each matrix of n rows, whose elements are n^2.
    return 2 * elements(node.input(0)) * rows // 3


def top_k(node: NodeShapes) -> int:
    """Count TopK: each element finds its place among the k best by bisection, at least one compare."""
    best = size(node.output, node.integer("axis", -1))
    # The bits of k are the steps of a search among k numbers in order.
    return elements(node.input(0)) * max(best.bit_length(), 1) if best else 0


def dropout(node: NodeShapes) -> int:
    """Count Dropout: a selection and a product per element where it may train, else a copy."""
    # Only with its third operand may a Dropout train; without it, it copies.
    return 2 * elements(node.output) if node.input(2) is not None else 0


def batch_normalization(node: NodeShapes) -> int:
    """Count BatchNormalization: subtract, scale by the folded deviation, scale and shift.

    In training mode each element is also added up, compared with the mean, squared and added up.
    """
    return (8 if node.integer("training_mode", 0) else 4) * elements(node.output)


def scatter(node: NodeShapes) -> int:
    """Count a scatter: one operation per update where a reduction is asked for, else none."""
    reduces = node.text("reduction", "none") != "none"
    return elements(node.input(2)) if reduces else 0
