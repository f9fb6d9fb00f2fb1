"""Complex numbers, which ONNX's operators do not take: as pairs of real values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError
from samba_onnx.export.operators.padding import constant_pad
from samba_onnx.export.operators.registry import Context, Result, ResultSpec, Translation
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes


@dataclass(frozen=True)
class Complex:
    """A complex tensor."""

    real: ir.Value
    imaginary: ir.Value


Operand = ir.Value | Complex
_Function = TypeVar("_Function", bound=Callable[..., Any])
_TABLE: Final[dict[str, Callable[..., Any]]] = {}
REAL_TYPES: Final[Mapping[ir.DataType, ir.DataType]] = MappingProxyType(
    {ir.DataType.COMPLEX64: ir.DataType.FLOAT, ir.DataType.COMPLEX128: ir.DataType.DOUBLE}
)
"""Types of the parts."""
_PARTWISE: Final = frozenset({
    "_reshape_alias", "_unsafe_view", "alias", "cat", "chunk", "clone", "contiguous", "copy",
    "detach", "expand", "expand_as", "flatten", "flip", "index", "index_select",
    "lift_fresh_copy", "mean", "narrow", "neg", "new_zeros", "permute", "repeat", "reshape",
    "resolve_conj", "resolve_neg", "roll", "select", "select_backward", "slice", "slice_backward",
    "slice_scatter", "split", "split_with_sizes", "squeeze", "stack", "sum", "swapaxes", "t",
    "transpose", "unbind", "unflatten", "unsqueeze", "view", "zeros", "zeros_like",
})  # fmt: skip
"""Operators that do the same to real and imaginary parts."""


def is_complex(operands: Sequence[Any], outcomes: Sequence[ResultSpec | None]) -> bool:
    """Return whether an operator takes or returns complex numbers.

    Args:
        operands: The operator's operands.
        outcomes: What it returns.

    Raises:
        ModelError: An operand is a complex input, parameter, buffer or constant.
    """
    flat = [leaf for one in operands for leaf in (one if isinstance(one, list | tuple) else [one])]
    for leaf in flat:
        if isinstance(leaf, ir.Value) and leaf.dtype in REAL_TYPES:
            raise ModelError(
                f"{leaf.name!r} holds complex numbers, which the device cannot: keep "
                "torch.view_as_real(...) of it, and call torch.view_as_complex in forward"
            )
    if any(isinstance(leaf, Complex) for leaf in flat):
        return True
    return any(one is not None and one.dtype in REAL_TYPES for one in outcomes)


def complex_translation(name: str, translation: Translation | None) -> Translation | None:
    """Return the translation of an operator that takes or returns complex numbers.

    Args:
        name: As ``mul``.
        translation: The operator's translation for real numbers.

    Returns:
        None if it is not known; complex operands are ``Complex``, and so are such results.
    """
    if name in _TABLE:
        return _TABLE[name]
    if name not in _PARTWISE or translation is None:
        return None
    rule: Translation = translation

    def partwise(context: Context, *operands: Any) -> Any:
        inner = _real(context)
        real = rule(inner, *_parts(context.build, operands, "real"))
        imaginary = rule(inner, *_parts(context.build, operands, "imaginary"))
        return _paired(real, imaginary)

    return partwise


def _handles(*names: str) -> Callable[[_Function], _Function]:
    def enter(function: _Function) -> _Function:
        _TABLE.update(dict.fromkeys(names, function))
        return function

    return enter


def _real(context: Context) -> Context:
    """Return a context whose results are the parts of the complex ones."""
    results = tuple(
        one and ResultSpec(REAL_TYPES.get(one.dtype, one.dtype), one.shape)
        for one in context.results
    )
    return Context(context.build, results, context.operator)


def _parts(build: GraphBuilder, operands: Sequence[Any], part: str) -> Any:
    """Return operands with one part of those that are complex; real ones have no imaginary."""

    def chosen(leaf: Any) -> Any:
        if isinstance(leaf, Complex):
            return getattr(leaf, part)
        # Indices and masks are the same for both parts.
        is_real = isinstance(leaf, ir.Value) and element(leaf) in REAL_TYPES.values()
        if is_real and part == "imaginary":
            return build.expand(build.constant(0, element(leaf)), sizes(leaf))
        return leaf

    return pytree.tree_map(chosen, list(operands))


def _paired(real: Result, imaginary: Result) -> Any:
    if isinstance(real, list) and isinstance(imaginary, list):
        return [a and b and Complex(a, b) for a, b in zip(real, imaginary, strict=True)]
    assert isinstance(real, ir.Value)
    assert isinstance(imaginary, ir.Value)
    return Complex(real, imaginary)


def _complex(build: GraphBuilder, operand: Any, dtype: ir.DataType) -> Complex:
    """Return a tensor or number as complex."""
    if isinstance(operand, Complex):
        return operand
    if isinstance(operand, ir.Value):
        real = build.cast(operand, dtype)
        return Complex(real, build.expand(build.constant(0, dtype), sizes(real)))
    number = complex(operand)
    return Complex(build.constant(number.real, dtype), build.constant(number.imag, dtype))


@_handles("add", "sub")
def added(context: Context, left: Operand, right: Operand, alpha: Any = 1) -> Complex:
    """Write the parts' sums or differences; numbers and integers have no imaginary part."""
    build, dtype = context.build, REAL_TYPES[context.result.dtype]
    one, other = (_complex(build, operand, dtype) for operand in (left, right))
    if alpha != 1:
        other = product(context, other, alpha)
    combine = build.subtract if ".sub" in context.operator else build.add
    return Complex(combine(one.real, other.real), combine(one.imaginary, other.imaginary))


@_handles("where")
def where(context: Context, condition: ir.Value, left: Operand, right: Operand) -> Complex:
    """Write a choice of both parts; numbers have no imaginary part."""
    build, dtype = context.build, REAL_TYPES[context.result.dtype]
    one, other = (_complex(build, operand, dtype) for operand in (left, right))
    return Complex(
        build.where(condition, one.real, other.real),
        build.where(condition, one.imaginary, other.imaginary),
    )


@_handles("to", "_to_copy")
def converted(context: Context, value: Operand, *_: object) -> Operand:
    """Write the parts in another type; an imaginary part that is nought, or is dropped."""
    build, dtype = context.build, context.result.dtype
    both = _complex(build, value, REAL_TYPES.get(dtype, dtype))
    if dtype not in REAL_TYPES:
        return build.cast(both.real, dtype)
    part_dtype = REAL_TYPES[dtype]
    return Complex(build.cast(both.real, part_dtype), build.cast(both.imaginary, part_dtype))


@_handles("real", "imag")
def part(context: Context, value: Operand) -> ir.Value:
    """Write nothing: one part is the result."""
    build = context.build
    both = _complex(build, value, context.result.dtype)
    return both.imaginary if ".imag" in context.operator else both.real


@_handles("view_as_real", "view_as_real_copy")
def as_real(context: Context, value: Complex) -> ir.Value:
    """Write a Concat of both parts along a new last axis."""
    build = context.build
    shape = [*sizes(value.real), 1]
    parts = [build.reshape(value.real, shape), build.reshape(value.imaginary, shape)]
    return build.concat(parts, -1)


@_handles("view_as_complex", "view_as_complex_copy")
def as_complex(context: Context, value: ir.Value) -> Complex:
    """Write a Gather of each part."""
    build = context.build
    first, second = (
        build.gather(value, build.constant(index, ir.DataType.INT64), -1) for index in (0, 1)
    )
    return Complex(first, second)


@_handles("complex")
def from_parts(context: Context, real: ir.Value, imaginary: ir.Value) -> Complex:
    """Write nothing but the common shape."""
    shape = context.result.shape
    return Complex(context.build.expand(real, shape), context.build.expand(imaginary, shape))


@_handles("polar")
def polar(context: Context, length: ir.Value, angle: ir.Value) -> Complex:
    """Write length * cos(angle) and length * sin(angle)."""
    build = context.build
    return Complex(
        build.multiply(length, build.unary("Cos", angle)),
        build.multiply(length, build.unary("Sin", angle)),
    )


@_handles("conj", "_conj", "conj_physical", "_conj_physical")
def conjugate(context: Context, value: Complex) -> Complex:
    """Write a Neg of the imaginary part."""
    return Complex(value.real, context.build.unary("Neg", value.imaginary))


@_handles("mul")
def product(context: Context, left: Any, right: Any) -> Complex:
    """Write the products of the parts; one of the operands may be real, or a number."""
    build, dtype = context.build, REAL_TYPES[context.result.dtype]
    # A real operand, if there is one, is the right one from here on.
    if not isinstance(left, Complex):
        left, right = right, left
    if isinstance(right, ir.Value) or (not isinstance(right, Complex) and complex(right).imag == 0):
        factor: Any = (
            build.cast(right, dtype) if isinstance(right, ir.Value) else complex(right).real
        )
        return Complex(build.multiply(left.real, factor), build.multiply(left.imaginary, factor))
    other = _complex(build, right, dtype)
    return Complex(
        build.subtract(
            build.multiply(left.real, other.real), build.multiply(left.imaginary, other.imaginary)
        ),
        build.add(
            build.multiply(left.real, other.imaginary), build.multiply(left.imaginary, other.real)
        ),
    )


@_handles("div")
def quotient(context: Context, left: Any, right: Any) -> Complex:
    """Write the quotients of the parts, or for a complex divisor a product with its inverse."""
    build, dtype = context.build, REAL_TYPES[context.result.dtype]
    one, other = _complex(build, left, dtype), _complex(build, right, dtype)
    if isinstance(right, Complex):
        # Times the conjugate, over the square of the divisor's length.
        one = product(context, one, Complex(other.real, build.unary("Neg", other.imaginary)))
        squares = [build.multiply(part, part) for part in (other.real, other.imaginary)]
        other = Complex(build.add(*squares), other.imaginary)
    # The inverse of a number is known here.
    elif not isinstance(right, ir.Value) and complex(right).imag:
        return product(context, one, 1 / complex(right))
    return Complex(build.divide(one.real, other.real), build.divide(one.imaginary, other.real))


@_handles("abs")
def length(context: Context, value: Complex) -> ir.Value:
    """Write the square root of the sum of squares."""
    build = context.build
    squares = [build.multiply(one, one) for one in (value.real, value.imaginary)]
    return build.unary("Sqrt", build.add(*squares))


@_handles("sgn")
def direction(context: Context, value: Complex) -> Complex:
    """Write the quotient of number and length; nought has none and stays nought."""
    build = context.build
    size = length(context, value)
    divisor = build.where(build.compare("Equal", size, 0), 1, size)
    return Complex(build.divide(value.real, divisor), build.divide(value.imaginary, divisor))


@_handles("constant_pad_nd")
def padded(
    context: Context, value: Complex, amounts: Sequence[int], content: complex = 0
) -> Complex:
    """Write a padding of each part."""
    number = complex(content)
    return Complex(
        constant_pad(context, value.real, amounts, number.real),
        constant_pad(context, value.imaginary, amounts, number.imag),
    )


@_handles("_fft_r2c")
def fourier_of_real(
    context: Context, value: ir.Value, axes: Sequence[int], norm: int, one_sided: bool
) -> Complex:
    """Write products with the matrices of the transform; only the first frequencies if asked."""
    both = _complex(context.build, value, element(value))
    return _fourier(context, both, list(axes), norm, forward=True)


@_handles("_fft_c2c")
def fourier(
    context: Context, value: Operand, axes: Sequence[int], norm: int, forward: bool
) -> Complex:
    """Write products with the matrices of the transform."""
    both = _complex(context.build, value, REAL_TYPES[context.result.dtype])
    return _fourier(context, both, list(axes), norm, forward)


@_handles("_fft_c2r")
def fourier_to_real(
    context: Context, value: Complex, axes: Sequence[int], norm: int, last_size: int
) -> ir.Value:
    """Write the inverse transform of a spectrum whose other half is its mirror image."""
    rank = len(context.result.shape)
    *outer, last = [axis % rank for axis in axes]
    # Integers that became complex are integers still.
    real, imaginary = (
        context.build.cast(part, context.result.dtype) for part in (value.real, value.imaginary)
    )
    value = Complex(real, imaginary)
    shape = list(sizes(value.real))
    inverse = _turned(context, value, outer, [shape[axis] for axis in outer], forward=False)
    # Every frequency stands for its mirror image as well, but the first, and the last of an even
    # length.
    weights = np.full(shape[last], 2.0)
    weights[0] = 1
    if last_size % 2 == 0:
        weights[-1] = 1
    angles = 2 * math.pi / last_size * np.outer(np.arange(shape[last]), np.arange(last_size))
    build = context.build
    transform = build.subtract(
        _along(build, inverse.real, last, weights[:, None] * np.cos(angles)),
        _along(build, inverse.imaginary, last, weights[:, None] * np.sin(angles)),
    )
    return build.multiply(transform, _scale(context.result.shape, [*outer, last], norm))


def _fourier(
    context: Context, value: Complex, axes: list[int], norm: int, forward: bool
) -> Complex:
    rank = len(sizes(value.real))
    axes = [axis % rank for axis in axes]
    lengths = [context.result.shape[axis] for axis in axes]
    transform = _turned(context, value, axes, lengths, forward)
    scale = _scale(sizes(value.real), axes, norm)
    build = context.build
    if scale == 1:
        return transform
    return Complex(
        build.multiply(transform.real, scale), build.multiply(transform.imaginary, scale)
    )


def _turned(
    context: Context, value: Complex, axes: Sequence[int], lengths: Sequence[int], forward: bool
) -> Complex:
    """Return the transform without its factor; only the first frequencies of each axis."""
    build = context.build
    for axis, count in zip(axes, lengths, strict=True):
        size = sizes(value.real)[axis]
        # Modulo the size, as sines of large angles are less exact.
        angles = 2 * math.pi / size * (np.outer(np.arange(size), np.arange(count)) % size)
        cosine, sine = np.cos(angles), np.sin(angles) * (-1 if forward else 1)
        value = Complex(
            build.subtract(
                _along(build, value.real, axis, cosine), _along(build, value.imaginary, axis, sine)
            ),
            build.add(
                _along(build, value.real, axis, sine), _along(build, value.imaginary, axis, cosine)
            ),
        )
    return value


def _along(
    build: GraphBuilder, value: ir.Value, axis: int, matrix: NDArray[np.float64]
) -> ir.Value:
    """Return the product of a matrix with every row of a value along an axis."""
    rank = len(sizes(value))
    if rank == 1:
        row = build.reshape(value, [1, *sizes(value)])
        return build.reshape(_along(build, row, 1, matrix), [matrix.shape[1]])
    order = [i for i in range(rank) if i != axis] + [axis]
    product = build.matmul(build.transpose(value, order), build.constant(matrix, element(value)))
    return build.transpose(product, np.argsort(order).tolist())


def _scale(shape: Sequence[int], axes: Sequence[int], norm: int) -> float:
    """Return the factor of a transform: torch counts none, the root, and the number of elements."""
    count = math.prod(shape[axis] for axis in axes)
    return (1.0, count**-0.5, 1 / count)[norm]
