"""Products and convolutions that onnxruntime fuses with what stands around them, or packs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.activations import activate
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.registry import expands
from samba_onnx.passes.rewrites.rewriting import WEIGHT, constant

_CONVOLUTION = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
"""Attributes that FusedConv has in common with Conv."""


@expands(ONNXRUNTIME_DOMAIN, "FusedMatMul", "TransposeMatMul")
def fused_matmul(draft: Draft) -> ir.Value:
    """Product of matrices, each maybe transposed, scaled."""
    left = _transposed(draft, 0, "transA", "transBatchA")
    right = _transposed(draft, 1, "transB", "transBatchB")
    product = draft.op("MatMul", left, right)
    alpha = draft.number("alpha", 1.0)
    if alpha == 1:
        return product
    return draft.op("Mul", product, draft.scalar(alpha, draft.operand(0)))


def _transposed(draft: Draft, position: int, matrix: str, batch: str) -> ir.Value:
    """Return an operand with the axes of its matrices swapped, or with its first axis before the last.

    ``transBatch`` moves the first axis behind the other batch axes: ``[k, b, m] -> [b, k, m]``.
    """
    value = draft.operand(position)
    if not draft.integer(matrix) and not draft.integer(batch):
        return value
    rank = draft.rank(value)
    if rank < 2:
        return value  # a vector has nothing to swap, and onnxruntime does not mind
    axes = list(range(rank))
    if draft.integer(batch):
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if draft.integer(matrix):
        axes[-2:] = axes[:-3:-1]
    return value if axes == sorted(axes) else draft.op("Transpose", value, perm=axes)


@expands(ONNXRUNTIME_DOMAIN, "FusedGemm")
def fused_gemm(draft: Draft) -> ir.Value:
    """General product with an activation."""
    attributes = {
        "alpha": draft.number("alpha", 1.0),
        "beta": draft.number("beta", 1.0),
        "transA": draft.integer("transA"),
        "transB": draft.integer("transB"),
    }
    inputs = [draft.operand(0), draft.operand(1)]
    addend = draft.optional(2)
    product = draft.op("Gemm", *inputs, *([] if addend is None else [addend]), **attributes)
    stated = {
        name: draft.number(f"activation_{name}", 0.0)
        for name in ("alpha", "beta", "gamma")
        if f"activation_{name}" in draft.node.attributes
    }
    return activate(draft, product, draft.text("activation", ""), stated)


@expands(ONNXRUNTIME_DOMAIN, "FusedConv")
def fused_conv(draft: Draft) -> ir.Value:
    """Convolution, a value that is added, and an activation."""
    attributes = {
        name: draft.node.attributes[name].value
        for name in _CONVOLUTION
        if name in draft.node.attributes
    }
    bias, addend = draft.optional(2), draft.optional(3)
    inputs = [draft.operand(0), draft.operand(1), *([] if bias is None else [bias])]
    result = draft.op("Conv", *inputs, **attributes)
    if addend is not None:
        result = draft.op("Add", result, addend)
    numbers = draft.list_of("activation_params")
    stated = dict(zip(("alpha", "beta", "gamma"), numbers, strict=False))
    return activate(draft, result, draft.text("activation", ""), stated)


@expands(ONNXRUNTIME_DOMAIN, "MatMulNBits")
def matmul_n_bits(draft: Draft) -> ir.Value:
    """Product with a weight of 4 or 8 bits a number, which keeps its bits.

    ``B`` holds one row per column of the product, in blocks of ``block_size`` numbers along the
    contracted axis, each block with a scale and a zero point. The packing of a row, low half of a byte
    first, is ONNX's own of uint4, so its bytes are taken as they are.
    """
    draft.refuse_inputs(4)
    draft.refuse_attributes(weight_prepacked=0)
    value, bias = draft.operand(0), draft.optional(5)
    contracted, block = draft.integer("K"), draft.integer("block_size")
    dtype = _block_type(draft)
    packed = draft.known(draft.operand(1), "its weight")
    rows, blocks = draft.integer("N"), -(-contracted // block)
    scales = draft.op("Reshape", draft.operand(2), draft.integers(rows, blocks))
    weight = draft.op(
        "DequantizeLinear",
        _integers(draft, packed.numpy().reshape(rows, -1), dtype, blocks * block),
        scales,
        _zero_points(draft, dtype, rows, blocks),
        axis=1,
        block_size=block,
    )
    if blocks * block != contracted:
        bounds = draft.integers(0), draft.integers(contracted), draft.integers(1)
        weight = draft.op("Slice", weight, *bounds)
    product = draft.op("MatMul", value, draft.op("Transpose", weight, perm=[1, 0]))
    return product if bias is None else draft.op("Add", product, bias)


def _block_type(draft: Draft) -> ir.DataType:
    bits = draft.integer("bits", 4)
    dtype = {4: ir.DataType.UINT4, 8: ir.DataType.UINT8}.get(bits)
    if dtype is None:
        raise CannotExpandError(f"ONNX 21 has no unsigned integers of {bits} bits")
    return dtype


def _integers(draft: Draft, rows: np.ndarray, dtype: ir.DataType, length: int) -> ir.Value:
    """Write rows of bytes as a matrix of ``length`` numbers a row; it counts as a weight."""
    used = -(-length * dtype.bitwidth // 8)
    array = np.ascontiguousarray(rows.view(np.uint8)[:, :used])
    shape = ir.Shape([len(rows), length])
    if dtype == ir.DataType.UINT8:
        value = draft.tensor(ir.Tensor(array, dtype=dtype, shape=shape))
    else:
        value = draft.tensor(ir.PackedTensor(array.ravel(), dtype, shape=shape))
    value.meta[WEIGHT] = True
    return value


def _zero_points(draft: Draft, dtype: ir.DataType, rows: int, blocks: int) -> ir.Value:
    """Write the zero points, one per block, which are the middle of the range if left out."""
    given = draft.optional(3)
    if given is None:
        middle = 1 << (dtype.bitwidth - 1)
        numbers = np.full((rows, blocks), middle, np.uint8)
    else:
        tensor = constant(given)
        if tensor is None or tensor.dtype != ir.DataType.UINT8:
            raise CannotExpandError("its zero points are no constant integers")
        numbers = tensor.numpy().reshape(rows, -1)
        if dtype == ir.DataType.UINT4:
            numbers = np.stack([numbers & 15, numbers >> 4], axis=-1).reshape(rows, -1)
        numbers = numbers[:, :blocks]
    return draft.tensor(ir.Tensor(numbers.astype(dtype.numpy()), dtype=dtype))
