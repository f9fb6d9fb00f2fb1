"""Which values of float64 are numbers of float32, and which ones are rounded to float32 before anything reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.families import MOVING
from samba_onnx.passes.rewrites.rewriting import constant, is_operator
from samba_onnx.program.bounds import Bounds
from samba_onnx.program.intervals import Interval

_FLOAT, _DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE
_WHOLE: Final = Interval(-(1 << 24), 1 << 24)
"""Between these all whole numbers are numbers of float32."""
_NARROW: Final = frozenset(
    {
        ir.DataType.FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.BFLOAT16,
        ir.DataType.BOOL,
        ir.DataType.INT8,
        ir.DataType.INT16,
        ir.DataType.UINT8,
        ir.DataType.UINT16,
    }
)
"""Types whose numbers are all numbers of float32."""
_MOVES: Final = MOVING - {
    "CenterCropPad",
    "Concat",
    "MaxUnpool",
    "Pad",
}
"""Operators whose results are elements of their first operand, or zeros."""
_PICKS: Final = frozenset({"Clip", "Concat", "Max", "Min", "Pad", "Where"})
"""Operators whose results are elements of any of their operands."""
# Of TopK only the first output is such a selection; the second one are places.
_SELECTS: Final = _MOVES | {"Abs", "Neg", "ReduceMax", "ReduceMin", "Relu", "TopK"}
_ROUNDS: Final = frozenset({"Ceil", "Floor", "Round", "Sign"})
_SUMS: Final = frozenset({"Add", "CumSum", "Mul", "ReduceSum", "Sub"})
_ONCE: Final = frozenset({"Add", "Div", "Mul", "Sqrt", "Sub"})
"""Operators that IEEE 754 rounds correctly. Rounded to 53 digits and then to 24, their results are those that are
rounded to 24 at once, for 53 is more than twice 24 and one (S. A. Figueroa, When is double rounding innocuous?)."""
# Constants of these may be rounded themselves, by which the product is off by one more rounding at
# most; a sum could be off by any amount where it cancels.
_SCALES: Final = frozenset({"Div", "Mul"})
# Elements of a constant that are looked at, at most: larger weights are not read for a proof.
_READ: Final = 1 << 20


class Exactness:
    """Decides which values of float64 in a graph can be float32 instead, and with which results."""

    def __init__(self, bounds: Bounds, *, rounds: bool = False) -> None:
        """Take what is known of a graph.

        Args:
            bounds: Ranges of values of the same graph.
            rounds: Whether values that float32 would round fit, too, as a user may want it.
        """
        self._bounds, self._rounds = bounds, rounds
        # Answers are kept: webs ask about every value of a graph, and each follows from those
        # before it.
        self._exact: dict[ir.Value, bool] = {}
        self._whole: dict[ir.Value, bool] = {}

    def fits(self, value: ir.Value) -> bool:
        """Return whether a value can be float32 where its readers are, too.

        Args:
            value: One of float64.

        Returns:
            True where all its elements are numbers of float32, where it is rounded to float32 before anything
            else is done, as it would be at once, and for the constant of such a product or quotient. With
            ``rounds``, all but constants that would become infinite.
        """
        if self._rounds:
            return not _overflows(value)
        if self.exact(value):
            return True
        # A constant that float32 would round still serves where its only use is a factor of what is
        # rounded anyway.
        if constant(value) is not None:
            return _is_factor(value) and all(self._scales(node) for node, _ in value.uses())
        return self._rounded_once(value) and _only_rounded(value)

    def exact(self, value: ir.Value) -> bool:
        """Return whether all elements of a value are numbers of float32."""
        return _follow(value, self._exact, self._is_exact)

    def whole(self, value: ir.Value) -> bool:
        """Return whether all elements of a value are whole numbers."""
        return _follow(value, self._whole, self._is_whole)

    def reason(self, value: ir.Value) -> str:
        """Return why a value does not fit, to be read after the name of a node."""
        if self._rounds:
            return f"its constant {value.name!r} has numbers beyond float32"
        if constant(value) is not None:
            return f"float32 would round its constant {value.name!r}"
        node = value.producer()
        if node is None:
            return f"{value.name!r} may be any number of float64"
        if _only_rounded(value):
            return f"{node.op_type} of float32 may be further from {value.name!r} than its rounding"
        return f"float32 would round {value.name!r} before it is read"

    def _is_exact(self, value: ir.Value, seen: Callable[[ir.Value], bool]) -> bool:
        array = _content(value)
        if array is not None:
            with np.errstate(over="ignore"):  # what overflows is not equal
                narrow = array.astype(np.float32).astype(array.dtype)
            # Equal with NaN: NaN of float64 is NaN of float32, and nothing is lost.
            return np.array_equal(narrow, array, equal_nan=True)
        node = value.producer()
        if value.dtype in _NARROW:
            return True
        if node is None or node.domain:
            return False
        if node.op_type in _ROUNDS | _SELECTS:
            return _operand(node, 0, seen) and (node.op_type != "TopK" or value is node.outputs[0])
        # Large integers are rounded by a Cast to a float, so that their size counts, not only their
        # type.
        if node.op_type == "Cast":
            return _operand(node, 0, seen) or self._small(node.inputs[0])
        if node.op_type in _PICKS:
            return all(map(seen, _numbers(node)))
        # A sum of whole numbers is exact as long as float32 has all whole numbers up to it.
        return node.op_type in _SUMS and self._small(value)

    def _small(self, value: ir.Value | None) -> bool:
        """Return whether a value and its partial sums are whole numbers that float32 has exactly."""
        return value is not None and self.whole(value) and self._bounds.of(value).is_inside(_WHOLE)

    def _is_whole(self, value: ir.Value, seen: Callable[[ir.Value], bool]) -> bool:
        if value.dtype is None or not value.dtype.is_floating_point():
            return True
        array = _content(value)
        if array is not None:
            return bool((np.trunc(array) == array).all())
        node = value.producer()
        if node is None or node.domain:
            return False
        if node.op_type in _ROUNDS:
            return True
        if node.op_type in _SELECTS | {"Cast"}:
            return _operand(node, 0, seen)
        return node.op_type in _SUMS | _PICKS and all(map(seen, _numbers(node)))

    def _scales(self, node: ir.Node) -> bool:
        """Return whether a node multiplies or divides what is rounded to float32 next."""
        result = node.outputs[0]
        return is_operator(node, *_SCALES) and self._rounded_once(result) and _only_rounded(result)

    def _rounded_once(self, value: ir.Value) -> bool:
        """Return whether a value is one rounding away from numbers of float32, or a multiple by a constant."""
        node = value.producer()
        # Moving elements rounds nothing, so that what was computed before it counts.
        while node is not None and node.op_type in _MOVES and not node.domain:
            value = node.inputs[0] if node.inputs[0] is not None else value
            node = value.producer()
        if node is None or node.domain or node.op_type not in _ONCE:
            return False
        return all(
            self.exact(operand) or (node.op_type in _SCALES and _is_factor(operand))
            for operand in node.inputs
            if operand is not None
        )


def _follow(
    value: ir.Value,
    known: dict[ir.Value, bool],
    decide: Callable[[ir.Value, Callable[[ir.Value], bool]], bool],
) -> bool:
    """Decide about a value after those that it is computed from, however long the way to them is."""
    # A stack instead of recursion: a chain of nodes may be longer than Python's stack.
    pending = [value]
    while pending:
        current = pending[-1]
        node = current.producer()
        operands = () if node is None else node.inputs
        missing = [v for v in operands if v is not None and v not in known]
        if current not in known and missing:
            pending += missing
            continue
        pending.pop()
        if current not in known:
            known[current] = decide(current, known.__getitem__)
    return known[value]


def _content(value: ir.Value) -> NDArray[Any] | None:
    """Return the numbers of a constant of floating point that is no large table."""
    tensor = constant(value)
    if tensor is None or not tensor.dtype.is_floating_point():
        return None
    return tensor.numpy() if tensor.size <= _READ else None


def _overflows(value: ir.Value) -> bool:
    """Return whether a value is a constant with a finite number that is infinite in float32."""
    tensor = constant(value)
    if tensor is None or not tensor.dtype.is_floating_point():
        return False
    array = tensor.numpy()
    # What overflows becomes infinite, which is what is asked about: no reason for a warning.
    with np.errstate(over="ignore"):
        return bool(np.isinf(array.astype(np.float32)[np.isfinite(array)]).any())


def _operand(node: ir.Node, index: int, seen: Callable[[ir.Value], bool]) -> bool:
    value = node.inputs[index]
    return value is not None and seen(value)


def _numbers(node: ir.Node) -> list[ir.Value]:
    """Return the operands of a node that are of the type of its result."""
    dtype = node.outputs[0].dtype
    return [value for value in node.inputs if value is not None and value.dtype == dtype]


def _is_factor(value: ir.Value) -> bool:
    """Return whether a value is a constant of numbers that float32 rounds in their last digit only, or has."""
    array = _content(value)
    if array is None:
        return False
    # Numbers below the smallest normal one have fewer digits in float32, so that such a factor
    # would be off by more than a rounding. Zero is exact.
    size, limits = np.abs(array), np.finfo(np.float32)
    return bool(((size == 0) | ((size >= limits.tiny) & (size <= limits.max))).all())


def _only_rounded(value: ir.Value) -> bool:
    """Return whether nothing is done with a value but moving its elements and rounding them to float32."""
    pending = [value]
    while pending:
        current = pending.pop()
        # The caller gets an output in the type that the interface states, without any rounding.
        if current.is_graph_output():
            return False
        for node, _ in current.uses():
            # A body reads the value, too, and what it does with it is not looked at.
            if node.graph is not value.graph:
                return False
            if is_operator(node, "Cast") and node.outputs[0].dtype is _FLOAT:
                continue
            if node.domain or node.op_type not in _MOVES:
                return False
            pending += node.outputs
    return True
