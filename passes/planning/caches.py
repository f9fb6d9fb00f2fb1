"""The bytes of a token that attention reads again for every later one: its keys and values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import onnx_ir as ir

from samba_onnx.passes.rewrites.rewriting import static_shape
from samba_onnx.passes.timing.node_work import value_bytes

__all__ = ["cached_bytes"]

_SAME: Final = frozenset({"Cast", "Expand", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that make another form of keys or values."""
_SCORES: Final = frozenset({"Add", "Cast", "Div", "Mul", "Reshape", "Where"})
"""Operators between the product of queries and keys and the Softmax."""
# Looking upwards branches at every Add and Where: without a bound it would go through all of the model
# above.
_FARTHEST: Final = 8
"""Nodes that are passed on the way between a Softmax and a product."""


def cached_bytes(model: ir.Model) -> tuple[int, int]:
    """Return the bytes that a cache of keys and values takes for one token, and the tokens that a run reads.

    Args:
        model: A legal model with its shapes: those of one RDU where it was cut.

    Returns:
        The sum over all products with the result of a Softmax along their summed axis: of the values and of
        the keys that the scores were made with, before they were repeated for several heads of queries; and
        the most tokens, of all sequences, that any of these attends from. Zeros without attention.
    """
    found = [_attention(node) for node in model.graph if node.op_type == "Softmax"]
    return sum(size for size, _ in found), max((tokens for _, tokens in found), default=0)


def _attention(softmax: ir.Node) -> tuple[int, int]:
    product = _product_behind(softmax.outputs[0], _FARTHEST)
    scores = _product_before(softmax.inputs[0], _FARTHEST)
    if product is None or scores is None:
        return 0, 0
    shape = static_shape(softmax.inputs[0]) if softmax.inputs[0] is not None else None
    # Second factors are what a cache keeps: queries and probabilities, the first ones, are made anew by
    # each token.
    values, keys = _forms(product.inputs[1]), _forms(scores.inputs[1])
    if not values or not keys or shape is None or len(shape) < 2:
        return 0, 0
    # Of all tokens that can be attended to, of all sequences: rows of a cache hold one of each. Axes are
    # looked at before heads were repeated, but not before rows were moved: of equal sizes the last form.
    sequences = _sequences(min(values, key=_elements), shape[-1])
    size = _fewest_bytes(values) + _fewest_bytes(keys)
    # Rounded up, so that a token never seems to take less than it does.
    return -(-size // (shape[-1] * sequences)), shape[-2] * sequences


def _sequences(values: ir.Value, tokens: int) -> int:
    """Return the number of sequences in values of shape ``[sequences, ...]``."""
    shape = static_shape(values) or (1,)
    if len(shape) > 2:
        return shape[0]
    # Without an axis of sequences, the rows of all of them lie behind each other.
    return max(1, shape[0] // tokens)


def _product_behind(value: ir.Value, steps: int) -> ir.Node | None:
    """Return the product whose first factor is a value, maybe in another form."""
    for node, place in value.uses() if steps else ():
        if node.op_type == "MatMul" and place == 0:
            return node
        if node.op_type in _SAME | _SCORES:
            found = _product_behind(node.outputs[0], steps - 1)
            if found is not None:
                return found
    return None


def _product_before(value: ir.Value | None, steps: int) -> ir.Node | None:
    """Return the product that scores were made with."""
    node = None if value is None else value.producer()
    if node is None or not steps:
        return None
    if node.op_type == "MatMul":
        return node
    if node.op_type not in _SCORES | _SAME:
        return None
    # Any operand may lead there: a mask may stand on either side of a sum.
    found = (_product_before(each, steps - 1) for each in node.inputs)
    return next((each for each in found if each is not None), None)


def _forms(value: ir.Value | None) -> list[ir.Value]:
    """Return a value and what it is another form of, the last form first."""
    forms: list[ir.Value] = []
    while value is not None and len(forms) <= _FARTHEST:
        forms.append(value)
        node = value.producer()
        if node is None or node.op_type not in _SAME:
            break
        value = node.inputs[0]
    return forms


def _fewest_bytes(forms: Sequence[ir.Value]) -> int:
    """Return the bytes of the smallest form, whose elements may be fewer or of a narrower type."""
    # A cache holds heads before they are repeated, in the type that they have before a Cast widens them.
    sizes = [value_bytes(form) for form in forms]
    return min((size for size in sizes if size is not None), default=0)


def _elements(value: ir.Value) -> int:
    # A form of unknown shape is never the smallest.
    return math.prod(static_shape(value) or (1 << 60,))
