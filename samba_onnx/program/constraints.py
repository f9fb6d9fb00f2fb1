"""Where operators use integers as places, classes, lengths or divisors, and which ones they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
import onnx_ir as ir

from samba_onnx.program.dataflow import dimensions
from samba_onnx.program.intervals import Interval, axis_size

__all__ = ["LEGAL", "Demand"]

Demand: TypeAlias = tuple[ir.Value | None, Interval]
"""A value, and the interval that it must lie in."""


def _operand(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _places(size: int | None) -> Interval:
    """Return the indices of an axis, which may count from its end."""
    # An axis without a size that is known demands nothing, as if all integers were legal.
    return Interval(-size, size - 1) if size else Interval()


def _classes(size: int | None) -> Interval:
    return Interval(0, size - 1) if size else Interval()


def _along_axis(node: ir.Node) -> Sequence[Demand]:
    """Gather, GatherElements, ScatterElements: the second operand counts along an axis of the first."""
    size = axis_size(_operand(node, 0), node.attributes.get_int("axis", 0))
    return [(_operand(node, 1), _places(size))]


def _tuples(node: ir.Node) -> Sequence[Demand]:
    """GatherND, ScatterND: the last axis of the second operand counts along the axes of the first."""
    data, indices = _operand(node, 0), _operand(node, 1)
    width = axis_size(indices, -1)
    if indices is None or width is None:
        return []
    skipped = node.attributes.get_int("batch_dims", 0)
    sizes = [axis_size(data, skipped + position) for position in range(width)]
    columns = _columns(indices, width)
    if columns is not None:
        return [(column, _places(size)) for column, size in zip(columns, sizes, strict=True)]
    static = [size for size in sizes if size is not None]
    # Tuples whose columns are not known must all fit the shortest axis: narrower than needed, never
    # wider.
    return [(indices, _places(min(static)))] if len(static) == width and static else []


def _columns(indices: ir.Value, width: int) -> Sequence[ir.Value | None] | None:
    """Return the values of which tuples were put together, one per axis; None if it is not known."""
    node = indices.producer()
    if node is None or node.op_type != "Concat" or len(node.inputs) != width:
        return None
    return node.inputs


def _one_hot(node: ir.Node) -> Sequence[Demand]:
    depth = None if _operand(node, 1) is None else ir.convenience.get_const_tensor(node.inputs[1])  # type: ignore[arg-type]
    size = None if depth is None else int(depth.numpy().reshape(-1)[0])
    return [(_operand(node, 0), _classes(size))]


def _compared(node: ir.Node) -> Sequence[Demand]:
    """Equal: a value that is compared with 0, 1, ..., n-1 is a class, as ``one_hot`` is written."""
    demands: list[Demand] = []
    for value, other in ((0, 1), (1, 0)):
        operand = _operand(node, other)
        constant = None if operand is None else ir.convenience.get_const_tensor(operand)
        # A single number compared with a constant is no class, but a test like `x == 0`.
        if constant is not None and constant.dtype.is_integer() and 1 < constant.size <= 1 << 20:
            numbers = constant.numpy().reshape(-1)
            if np.array_equal(numbers, np.arange(len(numbers))):
                demands.append((_operand(node, value), _classes(len(numbers))))
    return demands


def _labels(node: ir.Node) -> Sequence[Demand]:
    return [(_operand(node, 1), _classes(axis_size(_operand(node, 0), 1)))]


def _reversed(node: ir.Node) -> Sequence[Demand]:
    size = axis_size(_operand(node, 0), node.attributes.get_int("time_axis", 0))
    # ONNX takes lengths from 1; a sequence of none has no step to reverse.
    return [(_operand(node, 1), Interval(1, size) if size else Interval())]


def _recurrent(node: ir.Node) -> Sequence[Demand]:
    size = axis_size(_operand(node, 0), node.attributes.get_int("layout", 0))
    return [(_operand(node, 4), Interval(1, size) if size else Interval())]


def _divided(node: ir.Node) -> Sequence[Demand]:
    divisor = _operand(node, 1)
    is_integer = divisor is not None and divisor.dtype is not None and divisor.dtype.is_integer()
    # From 1 on, although negative divisors are legal: a range with a hole cannot be expressed.
    return [(divisor, Interval(1))] if is_integer else []


def _largest(node: ir.Node) -> Sequence[Demand]:
    size = axis_size(_operand(node, 0), node.attributes.get_int("axis", -1))
    return [(_operand(node, 1), Interval(1, size) if size else Interval())]


def _axis(node: ir.Node) -> Sequence[Demand]:
    """CumSum: the second operand is an axis of the first."""
    data = _operand(node, 0)
    shape = None if data is None else dimensions(data)
    return [(_operand(node, 1), _places(None if shape is None else len(shape)))]


def _shifted(node: ir.Node) -> Sequence[Demand]:
    amount = _operand(node, 1)
    # A shift by all bits or more is undefined.
    bits = 8 if amount is None or amount.dtype is None else amount.dtype.bitwidth
    return [(amount, Interval(0, bits - 1))]


LEGAL: Final[Mapping[str, Callable[[ir.Node], Sequence[Demand]]]] = MappingProxyType(
    {
        "BitShift": _shifted,
        "CumProd": _axis,
        "CumSum": _axis,
        "Div": _divided,
        "Equal": _compared,
        "GRU": _recurrent,
        "Gather": _along_axis,
        "GatherElements": _along_axis,
        "GatherND": _tuples,
        "LSTM": _recurrent,
        "Mod": _divided,
        "NegativeLogLikelihoodLoss": _labels,
        "OneHot": _one_hot,
        "RNN": _recurrent,
        "ReverseSequence": _reversed,
        "Scatter": _along_axis,
        "ScatterElements": _along_axis,
        "ScatterND": _tuples,
        "SoftmaxCrossEntropyLoss": _labels,
        "TopK": _largest,
    }
)
"""By operator: what its operands must lie in. An interval without ends demands nothing."""
