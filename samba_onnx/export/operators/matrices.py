"""Products of matrices and vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from samba_onnx.export.operators.promotion import arithmetic, wider
from samba_onnx.export.operators.registry import Context, translates
from samba_onnx.export.translation.builder import GraphBuilder, Scalar, element, sizes
from samba_onnx.tensor.dtypes import FLOATING


def _product(context: Context, left: ir.Value, right: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """Return a product in the type of the result."""
    build, dtype = context.build, wider(context.result.dtype, "MatMul")
    if not math.prod(sizes(left)) or not math.prod(sizes(right)):
        # Nothing is left to multiply: ONNX does not say what the sum of nothing is.
        return build.full(shape, 0, context.result.dtype)
    operands = [build.cast(left, dtype), build.cast(right, dtype)]
    return build.cast(build.emit("MatMul", operands, dtype, shape), context.result.dtype)


@translates("mm", "bmm", "matmul", "mv", "dot", "vdot")
def matmul(context: Context, left: ir.Value, right: ir.Value, *_: object) -> ir.Value:
    """Write a MatMul; or a Gemm of transposed matrices, which the RDU reads as they lie.

    That saves a Transpose, which would move all of a matrix.
    """
    operands = _matrix(left), _matrix(right)
    if any(operand.turned for operand in operands) and _suits_gemm(left, right):
        return _gemm(context.build, *operands)
    return _product(context, left, right, context.result.shape)


@translates("linalg_det", "det")
def determinant(context: Context, value: ir.Value) -> ir.Value:
    """Write a Det."""
    return context.build.emit("Det", [value], context.result.dtype, context.result.shape)


@translates("outer", "ger")
def outer(context: Context, left: ir.Value, right: ir.Value) -> ir.Value:
    """Write the product of every two elements."""
    column = context.build.reshape(left, [*sizes(left), 1])
    return arithmetic(context, "Mul", column, right)


@translates("linear")
def linear(
    context: Context, value: ir.Value, weight: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    """Write a Gemm over rows, whatever the axes in front."""
    build, shape = context.build, context.result.shape
    dtype = context.result.dtype
    if len(sizes(weight)) != 2 or dtype not in FLOATING or not math.prod(shape):
        product = _product(context, value, build.transpose(weight, _turned(weight)), shape)
        return product if bias is None else build.add(product, bias)
    rows = build.reshape(value, [math.prod(shape[:-1]), sizes(value)[-1]])
    product = _gemm(build, _Matrix(rows), _Matrix(weight, turned=True), bias)
    return build.reshape(product, shape)


def _turned(value: ir.Value) -> list[int]:
    return [1, 0] if len(sizes(value)) == 2 else [0]


@dataclass(frozen=True)
class _Matrix:
    """An operand of Gemm, which reads it as it lies."""

    value: ir.Value
    turned: bool = False
    """Whether its transpose is meant."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of what is meant."""
        return sizes(self.value)[:: -1 if self.turned else 1]


def _matrix(value: ir.Value) -> _Matrix:
    """Return a value as an operand; what transposed it is left out."""
    producer = value.producer()
    if producer is None or producer.op_type != "Transpose" or len(sizes(value)) != 2:
        return _Matrix(value)
    source = producer.inputs[0]
    assert source is not None
    return _Matrix(source, turned=True)


def _gemm(
    build: GraphBuilder,
    left: _Matrix,
    right: _Matrix,
    addend: ir.Value | None = None,
    alpha: float = 1,
    beta: float = 1,
) -> ir.Value:
    return build.emit(
        "Gemm",
        [left.value, right.value, addend],
        element(left.value),
        [left.shape[0], right.shape[1]],
        alpha=alpha if alpha != 1 else None,
        beta=beta if beta != 1 and addend is not None else None,
        transA=1 if left.turned else None,
        transB=1 if right.turned else None,
    )


def _suits_gemm(left: ir.Value, right: ir.Value) -> bool:
    matrices = len(sizes(left)) == len(sizes(right)) == 2
    return matrices and element(left) in FLOATING and 0 not in (*sizes(left), *sizes(right))


@translates("addmm")
def addmm(
    context: Context,
    addend: ir.Value,
    left: ir.Value,
    right: ir.Value,
    beta: Scalar = 1,
    alpha: Scalar = 1,
) -> ir.Value:
    """Write a Gemm; a transposed matrix is read as it lies."""
    if context.result.dtype not in FLOATING or not math.prod(sizes(left)) or beta == 0:
        return _sum(context, addend, left, right, beta, alpha)
    operands = _matrix(left), _matrix(right)
    return _gemm(context.build, *operands, addend, float(alpha), float(beta))


@translates("baddbmm", "addmv")
def add_product(
    context: Context,
    addend: ir.Value,
    left: ir.Value,
    right: ir.Value,
    beta: Scalar = 1,
    alpha: Scalar = 1,
) -> ir.Value:
    """Write a product and what is added to it."""
    return _sum(context, addend, left, right, beta, alpha)


@translates("addbmm")
def addbmm(
    context: Context,
    addend: ir.Value,
    left: ir.Value,
    right: ir.Value,
    beta: Scalar = 1,
    alpha: Scalar = 1,
) -> ir.Value:
    """Write a sum of products and what is added to it."""
    shape = (sizes(left)[0], *context.result.shape)
    products = _product(context, left, right, shape)
    return _combined(context, addend, context.build.reduce("ReduceSum", products, [0]), beta, alpha)


@translates("addr")
def addr(
    context: Context,
    addend: ir.Value,
    left: ir.Value,
    right: ir.Value,
    beta: Scalar = 1,
    alpha: Scalar = 1,
) -> ir.Value:
    """Write the product of every two elements and what is added to it."""
    return _combined(context, addend, outer(context, left, right), beta, alpha)


def _sum(
    context: Context,
    addend: ir.Value,
    left: ir.Value,
    right: ir.Value,
    beta: Scalar,
    alpha: Scalar,
) -> ir.Value:
    shape = context.result.shape
    return _combined(context, addend, _product(context, left, right, shape), beta, alpha)


def _combined(
    context: Context, addend: ir.Value, product: ir.Value, beta: Scalar, alpha: Scalar
) -> ir.Value:
    """Return ``beta * addend + alpha * product``; without the addend where ``beta`` is zero."""
    if alpha != 1:
        product = arithmetic(context, "Mul", product, alpha)
    if beta == 0:
        return product
    if beta != 1:
        addend = arithmetic(context, "Mul", addend, beta)
    return arithmetic(context, "Add", addend, product)
