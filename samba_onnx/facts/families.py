"""Families of operators: facts that hold of some of them, and that several rooms ask for by name.

What one room alone decides about operators is a table of that room's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from samba_onnx.facts.operator_facts import Kind
from samba_onnx.facts.operators import operators

__all__ = [
    "CHOOSING",
    "CONVOLUTIONS",
    "FLOAT_PRODUCTS",
    "INTEGER_DIVISIONS",
    "MATRIX_PRODUCTS",
    "MOVING",
    "NEUTRAL",
    "PRODUCTS",
    "QUANTISING",
    "READING_BITS",
    "REARRANGING",
    "SAME_ON_FLOATS",
    "SIZES",
    "SUMMING",
    "TYPE_ATTRIBUTES",
    "VANISHING",
]

# --- What becomes of elements

REARRANGING: Final = operators(kind=Kind.VIEW) | {"Transpose"}
"""Operators whose result has each element of the first operand once, in another form."""

MOVING: Final = operators(kind=Kind.VIEW) | operators(kind=Kind.MOVE)
"""Operators whose result consists of elements of their operands; a few fill up with others."""

CHOOSING: Final = frozenset(
    {"Clip", "GlobalMaxPool", "Max", "MaxPool", "Min", "ReduceMax", "ReduceMin", "Where"}
)
"""Operators whose results are numbers of their operands, whichever are larger, or fit a condition."""

SIZES: Final = frozenset({"Shape", "Size"})
"""Operators that read the sizes of their operand, and no element of it."""

VANISHING: Final = frozenset({"Constant", "Identity"})
"""Operators of which nothing is left to execute once a graph is simplified."""

# --- Arithmetic

NEUTRAL: Final[Mapping[str, int]] = MappingProxyType({"Add": 0, "And": 1, "Mul": 1, "Or": 0})
"""Operators whose two operands may change places, each with the number that leaves the other as it is."""

INTEGER_DIVISIONS: Final = frozenset({"Div", "Mod"})
"""Operators of which a zero among integers ends the process that computes them."""

# Not ReduceProd, ReduceMax and ReduceMin: their results do not depend on how many digits a sum keeps.
SUMMING: Final = frozenset(
    {"CumSum", "GroupNormalization"}
    | {f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Mean", "Sum", "SumSquare")}
)
"""Operators that add up numbers along axes, and round the result once to the type of these."""

SAME_ON_FLOATS: Final = CHOOSING - {"GlobalMaxPool"} | {
    "Add",
    "Mul",
    "ReduceSum",
    "Relu",
    "Sub",
    "Sum",
}
"""Operators of whole numbers that compute the same on floats of these numbers: they choose, or add and
multiply without rounding to whole numbers."""

# --- Products

MATRIX_PRODUCTS: Final = frozenset({"Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"})
"""Operators that multiply two matrices, or stacks of them."""

CONVOLUTIONS: Final = frozenset(
    {"CausalConvWithState", "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"}
)
"""Operators that multiply windows by a filter."""

FLOAT_PRODUCTS: Final = frozenset(
    {"Attention", "Conv", "ConvTranspose", "DeformConv", "Einsum", "Gemm", "MatMul"}
)
"""Operators that multiply matrices of floating-point numbers: GEMM-like ones, in SambaFlow's words."""

PRODUCTS: Final = (
    MATRIX_PRODUCTS | CONVOLUTIONS | FLOAT_PRODUCTS | {"GRU", "LSTM", "LinearAttention", "RNN"}
)
"""Operators of ONNX's own domain whose arithmetic is that of products."""

# --- Types

QUANTISING: Final[Mapping[str, int]] = MappingProxyType(
    {"QLinearConv": 7, "QLinearMatMul": 7, "QuantizeLinear": 2}
)
"""Operators that round what they return to a grid, with the place of its zero point among their operands."""

READING_BITS: Final = frozenset({"BitCast", "Bitcast"})
"""Operators whose results depend on how many bits a number has; the second name is onnxscript's."""

TYPE_ATTRIBUTES: Final = frozenset(
    {
        "dtype",
        "output_datatype",
        "output_dtype",
        "precision",
        "softmax_precision",
        "stash_type",
        "to",
    }
)
"""Attributes that name the type of a result, or of what it is accumulated in."""
