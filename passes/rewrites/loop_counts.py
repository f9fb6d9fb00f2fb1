"""How many steps a Loop makes, where its condition only counts.

Keras and other front ends of TensorFlow write ``while i < n and j < m`` with an endless trip count: counters start
from constants, and each step adds one. What such a condition answers is known before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.passes.rewrites.rewriting import small_array

MOST_STEPS: Final = 1 << 16
"""Steps that are counted at most; a longer loop is neither unrolled nor repeated on a device."""
_MOST_DEPTH: Final = 64
"""Nodes behind each other that a condition is computed by at most: front ends write a handful."""

Number = np.generic
"""A scalar of numpy's, so that arithmetic wraps around where ONNX's does."""
_COMPUTED: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Less": np.less,
        "LessOrEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
        "Equal": np.equal,
        "And": np.logical_and,
        "Or": np.logical_or,
        "Xor": np.logical_xor,
        "Not": np.logical_not,
        "Min": np.minimum,
        "Max": np.maximum,
    }
)
_UNCHANGED: Final = frozenset({"Identity", "Squeeze", "Unsqueeze", "Reshape"})
"""Operators that leave one element what it is."""


class _UnknownError(Exception):
    """A number is not known before the loop runs."""


def counted_steps(node: ir.Node) -> int | Refusal:
    """Return how many steps a Loop makes.

    Args:
        node: A Loop; its trip count may be left out, and its conditions computed.

    Returns:
        The number; or why it is known at run time only.
    """
    # Without a trip count the condition alone ends the loop, within the limit.
    most = _scalar(node.inputs[0]) if node.inputs[0] is not None else MOST_STEPS + 1
    if most is None:
        return Refusal("its number of steps is only known at run time")
    begins = node.inputs[1] if len(node.inputs) > 1 else None
    # A condition that is left out is true.
    first = np.True_ if begins is None else _scalar(begins)
    if first is None:
        return Refusal("its first condition is only known at run time")
    try:
        return _counted(_Body(node), int(most) if first else 0)
    except _UnknownError as error:
        return Refusal(f"its condition is only known at run time: {error}")


def _counted(body: _Body, most: int) -> int | Refusal:
    """Count steps, each of which decides whether there is another one."""
    # The body is followed for the condition only: nothing else of it is computed.
    for steps in range(min(most, MOST_STEPS)):
        if not body.step(steps):
            return steps + 1
    if most > MOST_STEPS:
        return Refusal(f"it makes more than {MOST_STEPS:,} steps, or does not end")
    return max(most, 0)


def _scalar(value: ir.Value | None) -> Number | None:
    """Return the content of a constant of one element that counts or decides."""
    # Front ends make scalars as tensors of one element, of whatever rank.
    array = small_array(value, 1)
    if array is None or array.size != 1 or array.dtype.kind not in "biuf":
        return None
    number: Number = array.reshape(-1)[0]
    return number


def _cast(number: Number, kind: ir.DataType) -> Number:
    """Convert a number; front ends compare integers as floats, for older operator sets compare nothing else.

    Raises:
        _UnknownError: The type is none that counts, or lacks the number.
    """
    dtype = kind.numpy() if kind not in (ir.DataType.STRING, ir.DataType.UNDEFINED) else None
    if dtype is None or dtype.kind not in "biuf":
        raise _UnknownError(f"it is compared as {kind.name.lower()}")
    with np.errstate(all="ignore"):
        result: Number = number.astype(dtype)
    if dtype.kind in "iu" and number.dtype.kind == "f" and not (np.trunc(number) == result):
        raise _UnknownError("a fraction is cast to an integer type that lacks it")
    return result


class _Body:
    """Computes the condition of a Loop step by step, from the states that it depends on."""

    def __init__(self, node: ir.Node) -> None:
        body = node.attributes["body"].as_graph()
        self._number, self._again, *states = body.inputs
        self._condition, *results = body.outputs
        self._updates = dict(zip(states, results, strict=False))
        self._states: dict[ir.Value, Number] = {}
        self._first = dict(zip(states, node.inputs[2:], strict=False))
        self._known: dict[ir.Value, Number] = {}

    def step(self, number: int) -> bool:
        """Compute what the condition is after a step, and go on to the next one.

        Raises:
            _UnknownError: It depends on something else than numbers that are known.
        """
        # The condition that the body is given is true, or it would not be executed.
        self._known = {self._number: np.int64(number), self._again: np.True_, **self._states}
        answer = bool(self._value(self._condition, 0))
        # What updates read of other states is found out while they are computed.
        states: dict[ir.Value, Number] = {}
        while pending := [
            one for one in self._known if one in self._updates.keys() - states.keys()
        ]:
            states |= {state: self._value(self._updates[state], 0) for state in pending}
        self._states = states
        return answer

    def _value(self, value: ir.Value | None, depth: int) -> Number:
        # A limit of depth, since this is recursion.
        if value is None or depth > _MOST_DEPTH:
            raise _UnknownError("it is computed by too many nodes")
        if value not in self._known:
            self._known[value] = self._computed(value, depth)
        return self._known[value]

    def _computed(self, value: ir.Value, depth: int) -> Number:
        producer = value.producer()
        constant = _scalar(self._first.get(value, value)) if producer is None else None
        if constant is not None:
            return constant
        if producer is None or producer.domain != "":
            raise _UnknownError(f"{value.name!r} is no number that is known")
        if producer.op_type in _UNCHANGED:
            return self._value(producer.inputs[0], depth + 1)
        operands = [self._value(operand, depth + 1) for operand in producer.inputs]
        if producer.op_type == "Cast":
            return _cast(operands[0], ir.DataType(producer.attributes["to"].as_int()))
        if producer.op_type not in _COMPUTED:
            raise _UnknownError(f"{producer.op_type} computes {value.name!r}")
        # Overflow wraps around in ONNX's integers, too.
        with np.errstate(all="ignore"):
            result: Number = operands[0]
            if len(operands) == 1:
                result = _COMPUTED[producer.op_type](result)
            for operand in operands[1:]:
                result = _COMPUTED[producer.op_type](result, operand)
        return result
