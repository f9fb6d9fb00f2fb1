"""What the results of a body are as expressions of its operands, and whether they are those of a pattern."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import onnx

from samba_onnx.facts.domains import is_default
from samba_onnx.facts.families import NEUTRAL
from samba_onnx.runtime.engine.lowerings.graph_view import GraphView

__all__ = ["Bindings", "Expression", "any_value", "body_expressions", "matches", "op", "piece"]

Expression: TypeAlias = tuple[Any, ...]
"""``("input", place)`` for an operand of a body, ``("number", 1.0)`` for a constant of one element, ``("outer", name)`` for any
other value from outside, ``("split", place, sizes, value)``, or an operator with its operands. In a pattern ``("any", key)``
is whatever value from outside."""
Bindings: TypeAlias = dict[str, str]
"""Names of values from outside by the keys of a pattern."""

_MOST_NODES: Final = 32
"""No step of a recurrent layer has more; expressions of larger bodies are not looked at."""


def op(operator: str, *operands: Expression) -> Expression:
    """Return the result of an operator."""
    return (operator, *operands)


def piece(value: Expression, place: int, sizes: tuple[int, ...]) -> Expression:
    """Return one of the pieces into which a value is cut along its second axis."""
    return ("split", place, sizes, value)


def any_value(key: str) -> Expression:
    """Return the pattern of whatever value from outside, which is bound to a key."""
    return ("any", key)


def body_expressions(body: onnx.GraphProto, outer: GraphView) -> list[Expression] | None:
    """Return the results of a body as expressions; None for one of operators with attributes, or several results.

    Args:
        body: The body of a Scan.
        outer: The graph around it.
    """
    known: dict[str, Expression] = {
        value.name: ("input", place) for place, value in enumerate(body.input)
    }
    if len(body.node) > _MOST_NODES or body.initializer or body.sparse_initializer:
        return None

    def read(name: str) -> Expression:
        if name not in known:
            number = outer.number(name)
            known[name] = ("outer", name) if number is None else ("number", number)
        return known[name]

    for node in body.node:
        if not is_default(node.domain):
            return None
        if node.op_type == "Identity":
            known[node.output[0]] = read(node.input[0])
        elif node.op_type == "Split" and len(node.input) == 2:
            sizes, axis = outer.integers(node.input[1]), [item.i for item in node.attribute]
            if sizes is None or axis not in ([1], [-1]):
                return None
            for place, name in enumerate(node.output):
                known[name] = piece(read(node.input[0]), place, tuple(sizes))
        elif not node.attribute and len(node.output) == 1:
            known[node.output[0]] = op(node.op_type, *map(read, node.input))
        else:
            return None
    return [read(value.name) for value in body.output]


def matches(pattern: Expression, value: Expression, bound: Bindings) -> Bindings | None:
    """Return what the keys of a pattern stand for where an expression is like it; None where it is not.

    Args:
        pattern: An expression with keys.
        value: The expression of a body.
        bound: What keys stand for already.
    """
    if pattern[0] == "any":
        # A key that occurs twice in a pattern must stand for the same value in both places.
        if value[0] != "outer" or bound.get(pattern[1], value[1]) != value[1]:
            return None
        return {**bound, pattern[1]: value[1]}
    if pattern[0] != value[0] or len(pattern) != len(value):
        return None
    if pattern[0] not in NEUTRAL:
        return _in_order(pattern[1:], value[1:], bound)
    # A sum or product is the same with its operands exchanged, and bodies have both orders.
    straight = _in_order(pattern[1:], value[1:], bound)
    return straight if straight is not None else _in_order(pattern[1:], value[:0:-1], bound)


def _in_order(
    patterns: tuple[Any, ...], values: tuple[Any, ...], bound: Bindings
) -> Bindings | None:
    """Match parts of an expression one after the other; those that are no expressions have to be equal."""
    result: Bindings | None = bound
    for pattern, value in zip(patterns, values, strict=True):
        if not isinstance(pattern, tuple) or not pattern or not isinstance(pattern[0], str):
            result = result if pattern == value else None
        elif result is not None:
            result = matches(pattern, value, result)
        if result is None:
            return None
    return result
