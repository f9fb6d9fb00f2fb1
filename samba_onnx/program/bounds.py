"""The intervals that values of a graph are known to lie in whatever its inputs.

What is said of a value holds for every element that is a number, wherever the graph's operators define a result:
a number that no integer is near, and what is no number at all, have no Cast to integers in ONNX. Sums and
products of integers that may leave their type are known to lie anywhere, and those of floating-point numbers
are rounded outwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from samba_onnx.facts.families import MOVING, SIZES
from samba_onnx.program.dataflow import dimensions
from samba_onnx.program.intervals import Interval, axis_size, reduced_sizes

__all__ = ["Bounds", "summands", "type_limits"]

_READ: Final = 1 << 20
"""Constants of more elements are not looked at: they are tables, and no offsets or bounds."""
_DIGITS: Final = {
    ir.DataType.DOUBLE: 53,
    ir.DataType.FLOAT: 24,
    ir.DataType.FLOAT16: 11,
    ir.DataType.BFLOAT16: 8,
}
"""Binary digits of a floating-point number."""
_WHOLE: Final[Mapping[str, Callable[[float], int]]] = MappingProxyType(
    {"Ceil": math.ceil, "Floor": math.floor, "Round": round}
)
"""Python rounds halves to even numbers, as ONNX does."""
_UNIT: Final = Interval(0, 1)


def type_limits(dtype: ir.DataType | None) -> Interval:
    """Return the integers that a type can hold; all numbers for one of floating point or unknown.

    Args:
        dtype: The type.
    """
    if dtype is None or not dtype.is_integer():
        return Interval()
    if dtype.is_signed():
        half = 1 << (dtype.bitwidth - 1)
        return Interval(-half, half - 1)
    return Interval(0, (1 << dtype.bitwidth) - 1)


class Bounds:
    """What is known of values without knowing the inputs of their graph."""

    def __init__(
        self,
        known: Mapping[ir.Value, Interval] = MappingProxyType({}),
        *,
        by_type: bool = False,
    ) -> None:
        """Start with what is known already.

        Args:
            known: Intervals of values, as of inputs that are places in tables.
            by_type: Whether a value of integers of 8 to 32 bits is known to be one, where nothing else is
                known of it. Otherwise it may be any number.
        """
        self._known: dict[ir.Value, Interval] = dict(known)
        self._by_type = by_type

    def of(self, value: ir.Value | None) -> Interval:
        """Return the interval that a value's elements lie in.

        Args:
            value: A value of a graph in which every node stands behind those that it reads.

        Returns:
            All numbers where nothing is known, as for an input of the graph.
        """
        if value is None:
            return Interval()
        pending = [value]
        while pending:
            current = pending[-1]
            node = current.producer()
            missing = [] if node is None or not _computes(node) else self._missing(node)
            if current in self._known or not missing:
                pending.pop()
                if current not in self._known:
                    self._known[current] = self._limited(current, self._computed(current, node))
            else:
                pending += missing
        return self._known[value]

    def _missing(self, node: ir.Node) -> list[ir.Value]:
        """Return the operands of a node that nothing is known of yet."""
        return [v for v in node.inputs if v is not None and v not in self._known]

    def _computed(self, value: ir.Value, node: ir.Node | None) -> Interval:
        constant = _content(value)
        if constant is not None:
            return constant
        if value.dtype is ir.DataType.BOOL:
            return _UNIT
        if node is None or not _computes(node):
            return Interval()
        if node.op_type in _SEARCHES:
            index, default = _SEARCHES[node.op_type]
            return _place(node, default) if value is node.outputs[index] else Interval()
        return _RESULTS[node.op_type](node, self._known)

    def _limited(self, value: ir.Value, interval: Interval) -> Interval:
        """Return what is known of integers that may have left their type, and so be any of it."""
        limits = type_limits(value.dtype)
        # What overflows wraps around, and may be any integer of the type.
        if interval.is_inside(limits):
            return interval
        assert value.dtype is not None
        return limits if self._by_type and value.dtype.bitwidth < 64 else Interval()


def summands(node: ir.Node) -> int | None:
    """Return how many elements a CumSum or ReduceSum adds up at most; None if it is not known.

    Args:
        node: Its second operand are axes, if it has any.
    """
    sizes = reduced_sizes(node)
    static = [size for size in sizes if size is not None]
    return max(1, math.prod(static)) if len(static) == len(sizes) else None


def _computes(node: ir.Node) -> bool:
    return node.domain == "" and (node.op_type in _RESULTS or node.op_type in _SEARCHES)


def _content(value: ir.Value) -> Interval | None:
    """Return the ends of a constant of numbers; None for anything else."""
    if value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else _ends(tensor)


def _ends(tensor: ir.TensorProtocol) -> Interval | None:
    if tensor.dtype is ir.DataType.STRING or not 0 < tensor.size <= _READ:
        return None
    array = tensor.numpy()
    if array.dtype.kind in "biu":
        return Interval(int(array.min()), int(array.max()))
    if array.dtype.kind != "f":
        return None
    low, high = float(array.min()), float(array.max())
    return None if math.isnan(low) or math.isnan(high) else Interval(low, high)


_Known = Mapping[ir.Value, Interval]


def _operand(node: ir.Node, index: int, intervals: _Known) -> Interval:
    value = node.inputs[index] if index < len(node.inputs) else None
    return Interval() if value is None else intervals[value]


def _rounded(node: ir.Node, interval: Interval, times: float = 1) -> Interval:
    """Return where a result lies that is rounded so many times, if it is of floating point."""
    digits = None if node.outputs[0].dtype is None else _DIGITS.get(node.outputs[0].dtype)
    if digits is None or not interval.is_finite:
        return interval
    # Two roundings to the nearest number are at most one unit of the last place; twice as much
    # leaves room for kernels that are not rounded correctly.
    error = max(abs(interval.low), abs(interval.high)) * times * 2.0 ** (2 - digits)
    return Interval(interval.low - error, interval.high + error)


def _same(node: ir.Node, intervals: _Known) -> Interval:
    return _operand(node, 0, intervals)


def _whole(node: ir.Node, intervals: _Known) -> Interval:
    """Ceil, Floor, Round: the ends are rounded as what lies between."""
    number, rounded = _operand(node, 0, intervals), _WHOLE[node.op_type]
    return Interval(rounded(number.low), rounded(number.high)) if number.is_finite else number


def _cast(node: ir.Node, intervals: _Known) -> Interval:
    source, number = node.inputs[0], _operand(node, 0, intervals)
    before, after = None if source is None else source.dtype, node.outputs[0].dtype
    if before is None or after is None or ir.DataType.STRING in (before, after):
        return Interval()
    if not after.is_integer():
        return _rounded(node, number)
    # Not the truncated ends alone: 300.7 has no result as uint8, so that a value that has one lies
    # inside the type.
    if before.is_floating_point():  # what is beyond the type has no result
        limits = type_limits(after)
        inside = number.within(limits)
        return (
            limits if inside.is_empty else Interval(math.trunc(inside.low), math.trunc(inside.high))
        )
    return number


def _sum(node: ir.Node, intervals: _Known) -> Interval:
    return _rounded(node, _operand(node, 0, intervals).plus(_operand(node, 1, intervals)))


def _difference(node: ir.Node, intervals: _Known) -> Interval:
    return _rounded(node, _operand(node, 0, intervals).plus(_operand(node, 1, intervals).negated()))


def _product(node: ir.Node, intervals: _Known) -> Interval:
    return _rounded(node, _operand(node, 0, intervals).times(_operand(node, 1, intervals)))


def _quotient(node: ir.Node, intervals: _Known) -> Interval:
    """Return where quotients of integers lie, which are cut towards zero."""
    number, divisor = _operand(node, 0, intervals), _operand(node, 1, intervals)
    dtype = node.outputs[0].dtype
    # Floats may come close to zero, and their quotients to infinity.
    if dtype is None or not dtype.is_integer() or not number.is_finite:
        return Interval()
    least = max(divisor.low, -divisor.high, 1)  # of the divisor's size
    if divisor.low > 0:
        return Interval(_cut(min(number.low, 0), least), _cut(max(number.high, 0), least))
    most = _cut(max(abs(number.low), abs(number.high)), least)
    return Interval(-most, most)


def _cut(number: float, divisor: float) -> int:
    # In whole numbers: true division would round beyond 2^53.
    size = int(abs(number)) // int(divisor)
    return size if number >= 0 else -size


def _remainder(node: ir.Node, intervals: _Known) -> Interval:
    number, divisor = _operand(node, 0, intervals), _operand(node, 1, intervals)
    dtype = node.outputs[0].dtype
    if dtype is None or not dtype.is_integer():
        return Interval()
    most = max(abs(divisor.low), abs(divisor.high)) - 1
    if node.attributes.get_int("fmod", 0) != 0:  # the sign is that of the number
        low = 0 if number.low >= 0 else max(-most, number.low)
        return Interval(low, 0 if number.high <= 0 else min(most, number.high))
    return Interval(0 if divisor.low > 0 else -most, 0 if divisor.high < 0 else most)


def _negative(node: ir.Node, intervals: _Known) -> Interval:
    return _operand(node, 0, intervals).negated()


def _size(node: ir.Node, intervals: _Known) -> Interval:
    number = _operand(node, 0, intervals)
    low = max(number.low, -number.high, 0)
    return Interval(low, max(abs(number.low), abs(number.high)))


def _sign(node: ir.Node, intervals: _Known) -> Interval:
    return Interval(-1, 1)


def _share(node: ir.Node, intervals: _Known) -> Interval:
    return _rounded(node, _UNIT)


def _clipped(node: ir.Node, intervals: _Known) -> Interval:
    if node.attributes:  # before opset 11 they were no operands
        return Interval()
    result = _operand(node, 0, intervals)
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        least = _operand(node, 1, intervals)
        result = Interval(max(result.low, least.low), max(result.high, least.high))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        most = _operand(node, 2, intervals)
        result = Interval(min(result.low, most.low), min(result.high, most.high))
    return result


def _positive(node: ir.Node, intervals: _Known) -> Interval:
    number = _operand(node, 0, intervals)
    return Interval(max(number.low, 0), max(number.high, 0))


def _least(node: ir.Node, intervals: _Known) -> Interval:
    operands = [_operand(node, index, intervals) for index in range(len(node.inputs))]
    return Interval(min(o.low for o in operands), min(o.high for o in operands))


def _greatest(node: ir.Node, intervals: _Known) -> Interval:
    operands = [_operand(node, index, intervals) for index in range(len(node.inputs))]
    return Interval(max(o.low for o in operands), max(o.high for o in operands))


def _either(node: ir.Node, intervals: _Known) -> Interval:
    return _operand(node, 1, intervals).hull(_operand(node, 2, intervals))


def _joined(node: ir.Node, intervals: _Known) -> Interval:
    result = _operand(node, 0, intervals)
    for index in range(1, len(node.inputs)):
        result = result.hull(_operand(node, index, intervals))
    return result


def _filled(node: ir.Node, intervals: _Known) -> Interval:
    """Pad, Trilu: elements of the first operand, beside a number or zero."""
    value = node.inputs[2] if node.op_type == "Pad" and len(node.inputs) > 2 else None
    return _operand(node, 0, intervals).hull(Interval(0, 0) if value is None else intervals[value])


def _replaced(node: ir.Node, intervals: _Known) -> Interval:
    """ScatterElements, ScatterND: elements of the first and of the third operand."""
    if node.attributes.get_string("reduction", "none") != "none":
        return Interval()
    return _operand(node, 0, intervals).hull(_operand(node, 2, intervals))


def _numbered(node: ir.Node, intervals: _Known) -> Interval:
    """Range: from the first number to the last one, whichever is less."""
    return _rounded(node, _operand(node, 0, intervals).hull(_operand(node, 1, intervals)))


def _constant_of_shape(node: ir.Node, intervals: _Known) -> Interval:
    value = node.attributes.get_tensor("value", None)
    return Interval(0, 0) if value is None else _ends(value) or Interval()


def _running_sum(node: ir.Node, intervals: _Known) -> Interval:
    element, count = _operand(node, 0, intervals), summands(node)
    if count is None:
        return Interval(0 if element.low >= 0 else -math.inf, 0 if element.high <= 0 else math.inf)
    total = element.times(Interval(count, count))
    return _rounded(node, element.hull(total).hull(Interval(0, 0)), count)


def _extreme(node: ir.Node, intervals: _Known) -> Interval:
    """ReduceMax, ReduceMin: one of the elements, or an end of the type where there may be none."""
    return _operand(node, 0, intervals) if all(reduced_sizes(node)) else Interval()


def _place(node: ir.Node, default: int) -> Interval:
    size = axis_size(node.inputs[0], node.attributes.get_int("axis", default))
    return Interval() if size is None else Interval(0, max(0, size - 1))


def _places(node: ir.Node, intervals: _Known) -> Interval:
    """NonZero: places along all axes."""
    shape = None if node.inputs[0] is None else dimensions(node.inputs[0])
    sizes = [size for size in shape or (None,) if isinstance(size, int)]
    return Interval(0, max(0, *sizes)) if len(sizes) == len(shape or (None,)) else Interval(0)


def _sizes(node: ir.Node, intervals: _Known) -> Interval:
    """Shape, Size: no size is negative."""
    return Interval(0, type_limits(ir.DataType.INT64).high)


_FILLED: Final = frozenset({"CenterCropPad", "MaxUnpool", "Pad", "Trilu"})
"""Operators that put other numbers beside the elements that they move."""
_KEPT: Final = MOVING - _FILLED
"""Operators whose results are elements of their first operand."""

_SEARCHES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {"ArgMax": (0, 0), "ArgMin": (0, 0), "TopK": (1, -1)}
)
"""By operator: the output that is of places along an axis, and the axis if none is stated."""

_RESULTS: Final[Mapping[str, Callable[[ir.Node, _Known], Interval]]] = MappingProxyType(
    {
        **dict.fromkeys(_KEPT, _same),
        **dict.fromkeys(_WHOLE, _whole),
        **dict.fromkeys(("Pad", "Trilu"), _filled),
        **dict.fromkeys(("ScatterElements", "ScatterND"), _replaced),
        **dict.fromkeys(SIZES, _sizes),
        **dict.fromkeys(("Sigmoid", "Softmax"), _share),
        **dict.fromkeys(("CumSum", "ReduceSum"), _running_sum),
        **dict.fromkeys(("ReduceMax", "ReduceMin"), _extreme),
        "Abs": _size,
        "Add": _sum,
        "Cast": _cast,
        "Clip": _clipped,
        "Concat": _joined,
        "ConstantOfShape": _constant_of_shape,
        "Div": _quotient,
        "Max": _greatest,
        "Min": _least,
        "Mod": _remainder,
        "Mul": _product,
        "Neg": _negative,
        "NonZero": _places,
        "Range": _numbered,
        "Relu": _positive,
        "Sign": _sign,
        "Sub": _difference,
        "Where": _either,
    }
)
