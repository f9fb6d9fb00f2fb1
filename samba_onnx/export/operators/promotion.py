"""Types in which operators compute, as torch promotes them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import onnx_ir as ir
import torch

from samba_onnx.export.operators.registry import Context, ResultSpec
from samba_onnx.export.translation.builder import (
    GraphBuilder,
    Operand,
    Scalar,
    element,
    sizes,
)
from samba_onnx.export.translation.element_types import onnx_type, torch_type

_NARROW: Final = ir.DataType.BFLOAT16
_WIDER: Final = MappingProxyType(
    {
        ir.DataType.BOOL: ir.DataType.INT32,
        ir.DataType.INT8: ir.DataType.INT32,
        ir.DataType.UINT8: ir.DataType.INT32,
        ir.DataType.INT16: ir.DataType.INT32,
        ir.DataType.UINT16: ir.DataType.INT32,
        ir.DataType.UINT32: ir.DataType.INT64,
    }
)


_INT16 = frozenset(
    {
        *("Abs", "Add", "Clip", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        *("Max", "Min", "Mul", "Neg", "Sign", "Sub"),
    }
)
"""Operators that ONNX defines and the RDU has for int16."""


def wider(dtype: ir.DataType, op_type: str) -> ir.DataType:
    """Return the type in which an operator computes: that of its operands, or a wider one.

    ONNX sums, multiplies and counts integers of 32 and 64 bits; the RDU has arithmetic on those, on
    some operators' int16, and on neither bytes nor unsigned integers. What is too large for the
    narrow type wraps around when the result is cast back.

    Args:
        dtype: Type of the operands or of the result.
        op_type: The ONNX operator.
    """
    if dtype == ir.DataType.INT16 and op_type in _INT16:
        return dtype
    return _WIDER.get(dtype, dtype)


def arithmetic(context: Context, op_type: str, left: Operand, right: Operand) -> ir.Value:
    """Apply an operator to two operands in the type of the result.

    Narrow integers are computed in a wider type; what is too large wraps around.

    Args:
        context: The graph, and what torch says that the operator returns.
        op_type: ``Add``, ``Mul``, ...
        left: A value or a number.
        right: A value or a number.
    """
    build, dtype = context.build, context.result.dtype
    wide = wider(dtype, op_type)
    one, other = build.value(left, wide), build.value(right, wide)
    return build.cast(build.binary(op_type, one, other, wide), dtype)


def rounds_once(function: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """Let a translation of several operators compute in float32 what torch says is bfloat16.

    A function of torch rounds its result, and nothing that it computes inside.

    Args:
        function: A translation with one result.
    """

    @functools.wraps(function)
    def translation(context: Context, *arguments: Any) -> ir.Value:
        if context.result.dtype != _NARROW:
            return function(context, *arguments)
        build, spec = context.build, ResultSpec(ir.DataType.FLOAT, context.result.shape)
        wide = [
            build.cast(argument, ir.DataType.FLOAT)
            if isinstance(argument, ir.Value) and element(argument) == _NARROW
            else argument
            for argument in arguments
        ]
        result = function(dataclasses.replace(context, results=(spec,)), *wide)
        return build.cast(result, _NARROW)

    return translation


def in_bfloat16(number: Scalar) -> float:
    """Return the number of bfloat16 that is nearest to another number.

    Args:
        number: Any number.
    """
    return float(ml_dtypes.bfloat16(number))


def unary(context: Context, op_type: str, value: ir.Value) -> ir.Value:
    """Apply an operator in the type of the result.

    Args:
        context: The graph, and what torch says that the operator returns.
        op_type: ``Exp``, ``Neg``, ...
        value: The operand, of any type.
    """
    build, dtype = context.build, context.result.dtype
    return build.cast(build.unary(op_type, build.cast(value, wider(dtype, op_type))), dtype)


def common(
    build: GraphBuilder, op_type: str, left: Operand, right: Operand
) -> tuple[ir.Value, ir.Value]:
    """Return two operands in the type that torch compares them in.

    Args:
        build: The graph.
        op_type: ``Equal``, ``Less``, ...
        left: A value or a number.
        right: A value or a number.
    """
    dtype = onnx_type(torch.result_type(_example(left), _example(right)))
    # A number becomes one of the narrow type first: 255 stands for -1 among bytes.
    one, other = (
        operand if isinstance(operand, ir.Value) else build.constant(operand, dtype)
        for operand in (left, right)
    )
    wide = wider(dtype, op_type)
    return _in(build, one, dtype, wide), _in(build, other, dtype, wide)


def _in(build: GraphBuilder, value: ir.Value, dtype: ir.DataType, wide: ir.DataType) -> ir.Value:
    """Return a value in a type, held in a wider one; a constant as a constant."""
    narrow = build.cast(value, dtype) if element(value) != dtype else value
    if narrow.const_value is not None:
        return build.constant(narrow.const_value.numpy(), wide)
    return build.cast(narrow, wide)


def _example(operand: Operand) -> torch.Tensor | bool | int | float:
    """An operand without values: type promotion depends on type and on whether there are axes."""
    if not isinstance(operand, ir.Value):
        return operand
    shape = (1,) if sizes(operand) else ()
    return torch.empty(shape, dtype=torch_type(element(operand)), device="meta")
