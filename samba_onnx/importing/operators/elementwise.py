"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from samba_onnx.importing.operators.computations import Node, computes, enter
from samba_onnx.importing.values import Array, tensor_of, torch_dtype

_DIRECT: dict[str, Callable[..., Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Add": torch.add,
    "And": torch.logical_and,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseNot": torch.bitwise_not,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Equal": torch.eq,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "IsNaN": torch.isnan,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Log": torch.log,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Or": torch.logical_or,
    "Reciprocal": torch.reciprocal,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Sub": torch.sub,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
    "Where": torch.where,
    "Xor": torch.logical_xor,
}
"""Operators that torch has with the same operands and meaning."""


def direct(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a computation that only passes its operands on."""

    def compute(node: Node, *operands: Tensor) -> Tensor:
        del node
        return function(*operands)

    return compute


# No decorator, since there is no function of ours to decorate.
for _name, _function in _DIRECT.items():
    enter(_name, direct(_function))


@computes("Identity", flexible=(0,))
def identity(node: Node, value: object) -> object:
    """Return the operand, which may be a sequence or an empty optional."""
    del node
    return value


@computes("Div")
def div(node: Node, left: Tensor, right: Tensor) -> Tensor:
    """Divide; integers towards zero."""
    del node
    floating = left.is_floating_point()
    # Without a mode torch would give floats for integers; ONNX follows C.
    return torch.div(left, right, rounding_mode=None if floating else "trunc")


@computes("Mod")
def mod(node: Node, left: Tensor, right: Tensor) -> Tensor:
    """Return the remainder with the sign of the divisor, or with ``fmod`` that of the dividend."""
    return (torch.fmod if node.integer("fmod") else torch.remainder)(left, right)


@computes("Pow")
def power(node: Node, base: Tensor, exponent: Tensor) -> Tensor:
    """Return a power in the type of its base."""
    del node
    # torch would promote: an integer base with a float exponent gives floats, ONNX the base's type.
    return torch.pow(base, exponent).to(base.dtype)


@computes("Max")
def maximum(node: Node, *operands: Tensor) -> Tensor:
    """Return the largest of any number of operands."""
    del node
    return functools.reduce(torch.maximum, operands)


@computes("Min")
def minimum(node: Node, *operands: Tensor) -> Tensor:
    """Return the smallest of any number of operands."""
    del node
    return functools.reduce(torch.minimum, operands)


@computes("Sum")
def total(node: Node, *operands: Tensor) -> Tensor:
    """Add any number of operands."""
    del node
    return functools.reduce(torch.add, operands)


@computes("Mean")
def mean(node: Node, *operands: Tensor) -> Tensor:
    """Return the mean of any number of operands."""
    return total(node, *operands) / len(operands)


@computes("Clip", flexible=(1, 2))
def clip(
    node: Node, value: Tensor, low: Tensor | Array | None = None, high: Tensor | Array | None = None
) -> Tensor:
    """Limit to a range; where its ends are the wrong way round, the upper one counts."""
    del node
    if low is None and high is None:
        return value
    # torch.clamp takes two tensors or two numbers, not one of each.
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        low, high = (tensor_of(end) if isinstance(end, np.ndarray) else end for end in (low, high))
        return torch.clamp(value, low, high)
    # Numbers instead of tensors: the traced graph has one node, and no constants, for each clamp.
    ends = [None if end is None else end.item() for end in (low, high)]
    return torch.clamp(value, *ends)


@computes("IsInf")
def is_infinite(node: Node, value: Tensor) -> Tensor:
    """Find infinities of the signs that are asked for."""
    # torch.isinf knows no signs.
    infinite = torch.zeros_like(value, dtype=torch.bool)
    if node.integer("detect_positive", 1):
        infinite = infinite | torch.isposinf(value)
    if node.integer("detect_negative", 1):
        infinite = infinite | torch.isneginf(value)
    return infinite


@computes("BitShift")
def shift(node: Node, value: Tensor, count: Tensor) -> Tensor:
    """Shift bits in the direction that the attribute names."""
    left = node.text("direction") == "LEFT"
    return (
        torch.bitwise_left_shift(value, count) if left else torch.bitwise_right_shift(value, count)
    )


@computes("Cast")
def cast(node: Node, value: Tensor) -> Tensor:
    """Convert to another type."""
    return value.to(torch_dtype(node.integer("to")))


@computes("CastLike")
def cast_like(node: Node, value: Tensor, like: Tensor) -> Tensor:
    """Convert to the type of another value."""
    del node
    return value.to(like.dtype)


@computes("BitCast")
def bit_cast(node: Node, value: Tensor) -> Tensor:
    """Take the bits for those of another type of the same width."""
    return value.view(torch_dtype(node.integer("to")))
