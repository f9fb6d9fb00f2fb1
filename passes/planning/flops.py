"""How many arithmetic operations a node performs, by formula or by a stated factor.

A multiply-add counts as two operations. Matrix products, convolutions, attention and recurrent
layers have formulas; the rest is a number of operations per element, listed below. Nodes that only
move or select data count as none, and so does a node whose shapes are not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from samba_onnx.program.dataflow import dimensions

PER_OUTPUT_ELEMENT: dict[str, int] = {
    # One operation per element, whatever the function unit needs for it.
    **dict.fromkeys(
        [
            *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh"),
            *("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil"),
            *("Clip", "Cos", "Cosh", "CumSum", "Div", "Equal", "Erf", "Exp", "Floor"),
            *("Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log"),
            *("Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal"),
            *("Relu", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Sub", "Sum", "Tan", "Tanh"),
            *("Where", "Xor"),
        ],
        1,
    ),
    # Scale and shift, compare and scale.
    **dict.fromkeys(
        ["DequantizeLinear", "Dropout", "LeakyRelu", "PRelu", "ThresholdedRelu", "HardSigmoid"], 2
    ),
    "QuantizeLinear": 4,  # divide, round, shift, saturate
    "Sigmoid": 3,  # exp, add, reciprocal
    "Softplus": 3,  # exp, add, log
    "Softsign": 3,  # abs, add, divide
    "Elu": 3,  # exp, subtract, scale
    "Celu": 4,
    "Selu": 4,
    "HardSwish": 3,
    "Swish": 4,  # sigmoid and a product
    "Mish": 5,  # softplus, tanh and a product
    "Gelu": 5,  # divide, erf, add and two products
    "BatchNormalization": 4,  # subtract, scale by the folded deviation, scale, shift
    "Softmax": 5,  # largest, subtract, exp, sum, divide
    "LogSoftmax": 6,
    "Hardmax": 2,
    "LayerNormalization": 8,  # mean, subtract, square, mean, add and root, divide, scale, shift
    "InstanceNormalization": 8,
    "GroupNormalization": 8,
    "RMSNormalization": 5,  # square, mean, root, divide, scale
    "LpNormalization": 4,
    "MeanVarianceNormalization": 6,
    "RotaryEmbedding": 3,  # two products and a sum
    "Resize": 7,  # two axes of a linear interpolation
    "GridSample": 7,
}
"""Operations per element of the first output."""

PER_INPUT_ELEMENT: dict[str, int] = {
    **dict.fromkeys(
        [
            *("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceProd"),
            *("ArgMax", "ArgMin", "GlobalAveragePool", "GlobalMaxPool"),
        ],
        1,
    ),
    **dict.fromkeys(["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum"], 2),
    "GlobalLpPool": 2,
    "ReduceLogSumExp": 4,  # largest, subtract, exp, sum
    "NegativeLogLikelihoodLoss": 1,
    "SoftmaxCrossEntropyLoss": 7,
}
"""Operations per element of the first input."""


def elements(value: ir.Value | None) -> int:
    """Return how many elements a value has.

    Args:
        value: A value or an omitted operand.

    Returns:
        The product of the dimensions, 1 for a scalar; 0 where a dimension is not known.
    """
    shape = None if value is None else dimensions(value)
    if shape is None:
        return 0
    return math.prod(size if isinstance(size, int) else 0 for size in shape)


def node_flops(node: ir.Node) -> int:
    """Return the number of arithmetic operations of one execution of a node.

    Args:
        node: A node with inferred shapes.

    Returns:
        Operations, a multiply-add counted as two; 0 for data movement, for custom domains, for
        operators without an entry, and where a shape that the formula needs is not known.
    """
    if node.domain not in ("", "ai.onnx") or not node.outputs:
        return 0
    formula = FORMULAS.get(node.op_type)
    if formula is not None:
        return formula(node)
    if node.op_type in PER_OUTPUT_ELEMENT:
        return PER_OUTPUT_ELEMENT[node.op_type] * elements(node.outputs[0])
    if node.op_type in PER_INPUT_ELEMENT and node.inputs:
        return PER_INPUT_ELEMENT[node.op_type] * elements(node.inputs[0])
    return 0


def _size(value: ir.Value | None, axis: int) -> int:
    """Return one dimension of a value, 0 where it is not known."""
    shape = None if value is None else dimensions(value)
    if shape is None or not -len(shape) <= axis < len(shape):
        return 0
    size = shape[axis]
    return size if isinstance(size, int) else 0


def _operand(node: ir.Node, position: int) -> ir.Value | None:
    return node.inputs[position] if position < len(node.inputs) else None


def _matrix_product(node: ir.Node) -> int:
    return 2 * elements(node.outputs[0]) * _size(_operand(node, 0), -1)


def _quantized_matrix_product(node: ir.Node) -> int:
    return 2 * elements(node.outputs[0]) * _size(_operand(node, 0), -1) + elements(node.outputs[0])


def _gemm(node: ir.Node) -> int:
    transposed = node.attributes.get_int("transA", 0)
    depth = _size(_operand(node, 0), 0 if transposed else 1)
    with_bias = int(_operand(node, 2) is not None)
    return (2 * depth + with_bias) * elements(node.outputs[0])


def _convolution(weight: int, bias: int) -> Callable[[ir.Node], int]:
    """Return the formula of a convolution whose weight and bias are at the given positions."""

    def formula(node: ir.Node) -> int:
        outputs = elements(node.outputs[0])
        channels = _size(_operand(node, weight), 0)
        if not channels:
            return 0
        depth = elements(_operand(node, weight)) // channels
        with_bias = int(_operand(node, bias) is not None)
        return (2 * depth + with_bias) * outputs

    return formula


def _transposed_convolution(node: ir.Node) -> int:
    channels = _size(_operand(node, 1), 0)
    if not channels:
        return 0
    spread = elements(_operand(node, 1)) // channels
    bias = elements(node.outputs[0]) if _operand(node, 2) is not None else 0
    return 2 * spread * elements(_operand(node, 0)) + bias


def _pool(node: ir.Node) -> int:
    kernel = node.attributes.get_ints("kernel_shape", ())
    return math.prod(kernel) * elements(node.outputs[0])


def _local_response(node: ir.Node) -> int:
    # A square and a sum per neighbour, then scale, add, power and division.
    return (2 * node.attributes.get_int("size", 1) + 4) * elements(node.outputs[0])


def _recurrent(gates: int, per_state: int) -> Callable[[ir.Node], int]:
    """Return the formula of a recurrent layer.

    Args:
        gates: Matrix products per step.
        per_state: Element-wise operations per element of the hidden state and step.
    """

    def formula(node: ir.Node) -> int:
        sequence, weight, recurrence = (_operand(node, position) for position in range(3))
        steps = _size(sequence, 0) * _size(sequence, 1)
        directions, hidden = _size(recurrence, 0), _size(recurrence, 2)
        depth = _size(weight, 2) + hidden
        return steps * directions * hidden * (2 * gates * depth + per_state)

    return formula


def _attention(node: ir.Node) -> int:
    query, key, value = (_operand(node, position) for position in range(3))
    length = _size(key, -2) + (_size(_operand(node, 4), -2) if _operand(node, 4) is not None else 0)
    if query is None or query.shape is None or value is None:
        return 0
    heads = node.attributes.get_int("q_num_heads", 0) if len(query.shape) == 3 else 1
    key_heads = node.attributes.get_int("kv_num_heads", 0) if len(query.shape) == 3 else 1
    if not heads or not key_heads:
        return 0
    rows = elements(query) // max(_size(query, -1), 1)  # batch x [heads x] query length
    value_width = _size(value, -1) // key_heads * heads
    scores = rows * heads * length
    # Two matrix products and a softmax over the scores.
    return 2 * rows * length * (_size(query, -1) + value_width) + 5 * scores


def _einsum(node: ir.Node) -> int:
    equation = node.attributes.get_string("equation", "").replace(" ", "")
    terms = equation.split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, value in zip(terms, node.inputs, strict=False):
        before, dots, after = term.partition("...")
        labels = {label: _size(value, axis) for axis, label in enumerate(before)}
        labels |= {label: _size(value, -1 - axis) for axis, label in enumerate(reversed(after))}
        if dots:
            labels[dots] = elements(value) // max(math.prod(labels.values()), 1)
        sizes |= {label: max(size, sizes.get(label, 0)) for label, size in labels.items()}
    return len(terms) * math.prod(sizes.values()) if sizes else 0


FORMULAS: dict[str, Callable[[ir.Node], int]] = {
    "MatMul": _matrix_product,
    "MatMulInteger": _matrix_product,
    "QLinearMatMul": _quantized_matrix_product,
    "Gemm": _gemm,
    "Conv": _convolution(weight=1, bias=2),
    "ConvInteger": _convolution(weight=1, bias=-1),
    "QLinearConv": _convolution(weight=3, bias=8),
    "DeformConv": _convolution(weight=1, bias=3),
    "ConvTranspose": _transposed_convolution,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "LpPool": _pool,
    "LRN": _local_response,
    "RNN": _recurrent(gates=1, per_state=3),
    "GRU": _recurrent(gates=3, per_state=13),
    "LSTM": _recurrent(gates=4, per_state=24),
    "Attention": _attention,
    "Einsum": _einsum,
}
"""Operators whose work is not a multiple of one operand's elements."""
