"""Weights of few bits a number, which onnxruntime packs in blocks with a scale each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from samba_onnx.facts.domains import ONNXRUNTIME_DOMAIN
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.foreign.normalizations import root_mean_square
from samba_onnx.passes.rewrites.foreign.rules import expands
from samba_onnx.passes.rewrites.rewriting import WEIGHT, constant

_UNSIGNED: Final = {4: ir.DataType.UINT4, 8: ir.DataType.UINT8}
"""Types of ONNX for packed numbers, by their bits."""


@dataclass(frozen=True)
class _Projection:
    """Positions of the operands of one product with a packed weight, and its size."""

    columns: int
    """Numbers of a row of the product."""
    weight: int
    scales: int
    zero_points: int | None
    bias: int


@expands(ONNXRUNTIME_DOMAIN, "MatMulNBits")
def matmul_n_bits(draft: Draft) -> ir.Value:
    """Product with a weight of 4 or 8 bits a number, which keeps its bits."""
    # A group index reorders rows, so that blocks are no longer runs of a row.
    draft.refuse_inputs(4)
    draft.refuse_attributes(weight_prepacked=0)
    return _project(draft, draft.operand(0), _Projection(draft.integer("N"), 1, 2, 3, 5))


@expands(ONNXRUNTIME_DOMAIN, "MatMulNBitsMlp")
def matmul_n_bits_mlp(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Two products of one value, an activation of the first times the second."""
    activation = draft.text("activation", "silu")
    if activation not in ("silu", "swish"):
        raise CannotExpandError(f"its activation {activation} is none that onnxruntime gates with")
    value, total = _normalized(draft, 2)
    columns = draft.integer("N")
    gate = _project(draft, value, _Projection(columns, 3, 4, None, 5))
    up = _project(draft, value, _Projection(columns, 6, 7, None, 8))
    opening = draft.op("Mul", gate, draft.op("Sigmoid", gate))
    return draft.op("Mul", opening, up), total


@expands(ONNXRUNTIME_DOMAIN, "MatMulNBitsQkv")
def matmul_n_bits_qkv(draft: Draft) -> tuple[ir.Value | None, ...]:
    """Queries, keys and values as products of one normalised value."""
    value, total = _normalized(draft, 2)
    queries, others = draft.integer("Nq"), draft.integer("Nkv")
    results = [
        _project(draft, value, _Projection(columns, at, at + 1, None, at + 2))
        for columns, at in ((queries, 3), (others, 6), (others, 9))
    ]
    return *results, total


def _normalized(draft: Draft, position: int) -> tuple[ir.Value, ir.Value | None]:
    """Return the first operand, maybe with the second one added and normalised, and the sum."""
    value, skip, scale = draft.operand(0), draft.optional(1), draft.optional(position)
    total = None
    if skip is not None:
        value = total = draft.op("Add", value, skip)
    if scale is not None:
        # As the schemas state the defaults of the two operators.
        default = 1e-6 if draft.node.op_type.endswith("Qkv") else 1e-5
        value = root_mean_square(draft, value, scale, draft.number("epsilon", default))
    return value, total


def _project(draft: Draft, value: ir.Value, projection: _Projection) -> ir.Value:
    """Write a product with a packed weight.

    The weight holds one row per column of the product, in blocks of ``block_size`` numbers along the
    contracted axis, each block with a scale and a zero point. The packing of a row, low half of a byte
    first, is ONNX's own of uint4, so its bytes are taken as they are.
    """
    rows, contracted = projection.columns, draft.integer("K")
    block, dtype = draft.integer("block_size"), _block_type(draft)
    packed = draft.known(draft.operand(projection.weight), "its weight").numpy()
    # Without them the size of the weight is not known: its bytes are filled up to whole blocks.
    if min(rows, contracted, block) < 1:
        raise CannotExpandError("its attributes do not state the size of its weight")
    # The last block may be cut short; rows are stored with whole blocks.
    blocks = -(-contracted // block)
    scales = draft.op("Reshape", draft.operand(projection.scales), draft.integers(rows, blocks))
    # Kept in few bits in the model: written out, such a weight would take eight times the room.
    weight = draft.op(
        "DequantizeLinear",
        _integers(draft, packed, dtype, (rows, blocks * block)),
        scales,
        _zero_points(draft, projection.zero_points, dtype, rows, blocks),
        axis=1,
        block_size=block,
    )
    if blocks * block != contracted:
        bounds = draft.integers(0), draft.integers(contracted), draft.integers(1)
        weight = draft.op("Slice", weight, *bounds)
    product = draft.op("MatMul", value, draft.op("Transpose", weight, perm=[1, 0]))
    bias = draft.optional(projection.bias)
    return product if bias is None else draft.op("Add", product, bias)


def _block_type(draft: Draft) -> ir.DataType:
    bits = draft.integer("bits", 4)
    dtype = _UNSIGNED.get(bits)
    if dtype is None:
        raise CannotExpandError(f"ONNX 21 has no unsigned integers of {bits} bits")
    return dtype


def _integers(
    draft: Draft, array: NDArray[np.generic], dtype: ir.DataType, shape: Sequence[int]
) -> ir.Value:
    """Write packed bytes as numbers of a shape, each row from a byte of its own; it counts as a weight."""
    # A row may end within a byte, whose rest is padding.
    used = -(-shape[-1] * dtype.bitwidth // 8)
    rows = array.view(np.uint8).reshape(int(np.prod(shape[:-1])), -1)[:, :used]
    if dtype == ir.DataType.UINT8:
        numbers = np.ascontiguousarray(rows).reshape(shape)
        value = draft.tensor(ir.Tensor(numbers, dtype=dtype, shape=ir.Shape(list(shape))))
    else:
        # The bytes are passed on without being unpacked.
        flat = np.ascontiguousarray(rows).ravel()
        value = draft.tensor(ir.PackedTensor(flat, dtype, shape=ir.Shape(list(shape))))
    value.meta[WEIGHT] = True
    return value


def _zero_points(
    draft: Draft, position: int | None, dtype: ir.DataType, rows: int, blocks: int
) -> ir.Value:
    """Write the zero points, one per block, which are the middle of the range if left out."""
    operand = None if position is None else draft.optional(position)
    if operand is None:
        # Unsigned numbers stand for signed ones around the middle of their range.
        middle = 1 << (dtype.bitwidth - 1)
        numbers = np.full((rows, blocks), middle, np.uint8)
    else:
        tensor = constant(operand)
        if tensor is None or tensor.dtype != ir.DataType.UINT8:
            raise CannotExpandError("its zero points are no constant integers")
        # A row of zero points may have an odd number of blocks, whose last half byte is padding.
        numbers = _unpacked(tensor.numpy().reshape(rows, -1), dtype.bitwidth)[:, :blocks]
    return draft.tensor(ir.Tensor(numbers.astype(dtype.numpy()), dtype=dtype))


def _unpacked(array: NDArray[np.generic], bits: int) -> NDArray[np.uint8]:
    """Return bytes as numbers of 4 or 8 bits, low half first, along the last axis."""
    numbers = array.view(np.uint8)
    if bits == 8:
        return numbers
    halves = np.stack([numbers & 15, numbers >> 4], axis=-1)
    return halves.reshape(*numbers.shape[:-1], -1)


@expands(ONNXRUNTIME_DOMAIN, "GatherBlockQuantized")
def gather_block_quantized(draft: Draft) -> ir.Value:
    """Rows of a table of few bits a number: the table is written out by blocks, then looked up.

    uint8 stands for numbers of ``bits`` bits, packed along the last axis; other types for themselves.
    """
    table, scales, zeros = draft.operand(0), draft.operand(2), draft.optional(3)
    data = draft.known(table, "its table")
    shape, block = list(draft.shape(table)), draft.integer("block_size", 128)
    axis = draft.integer("quantize_axis", 1) % len(shape)
    if not data.dtype.is_integer() or block == 0:
        raise CannotExpandError(f"its table is of {data.dtype.name.lower()}")
    numbers, points = table, zeros
    # Only bytes can be packed; other types state what they are.
    if data.dtype == ir.DataType.UINT8:
        dtype = _block_type(draft)
        per_byte = 8 // dtype.bitwidth
        whole = [*shape[:-1], shape[-1] * per_byte]
        numbers = _integers(draft, data.numpy(), dtype, whole)
        points = _points_of_bytes(draft, zeros, dtype, draft.shape(scales))
    inputs = [numbers, scales, *([] if points is None else [points])]
    weight = draft.op("DequantizeLinear", *inputs, axis=axis, block_size=block)
    return draft.op("Gather", weight, draft.operand(1), axis=draft.integer("gather_axis", 0))


def _points_of_bytes(
    draft: Draft, zeros: ir.Value | None, dtype: ir.DataType, shape: Sequence[int]
) -> ir.Value:
    if zeros is None:
        numbers = np.full(shape, 1 << (dtype.bitwidth - 1), np.uint8)
    else:
        array = draft.known(zeros, "its zero points").numpy()
        numbers = _unpacked(array, dtype.bitwidth)[..., : shape[-1]]
    return draft.tensor(ir.Tensor(numbers.astype(dtype.numpy()), dtype=dtype))


# Half a byte is an index into one of these two tables, which are bitsandbytes' own numbers.
_FP4: Final = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
"""Sizes of bitsandbytes' numbers of four bits, of which the highest is the sign."""
_NF4: Final = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
"""Quantiles of the normal distribution that bitsandbytes' other form stands for."""


@expands(ONNXRUNTIME_DOMAIN, "MatMulBnb4")
def matmul_bnb4(draft: Draft) -> ir.Value:
    """Product with a weight of four bits a number in one of bitsandbytes' two forms.

    The first number of a byte is its high half. Blocks run on over the ends of rows, so the weight is
    written out as numbers; a tensor of ONNX's cannot state such blocks.
    """
    draft.refuse_attributes(transB=1, training_mode=0)
    value, kind = draft.operand(0), draft.integer("quant_type")
    packed = draft.known(draft.operand(1), "its weight")
    largest = draft.known(draft.operand(2), "its scales")
    rows, columns, block = draft.integer("N"), draft.integer("K"), draft.integer("block_size")
    dtype = draft.dtype(value)
    codes = np.array((*_FP4, *(-size for size in _FP4)) if kind == 0 else _NF4, np.float32)

    # Computed when it is read, since written out it is eight times as large.
    def compute() -> ir.TensorProtocol:
        halves = packed.numpy().ravel()
        indices = np.stack([halves >> 4, halves & 15], axis=-1).ravel()[: rows * columns]
        # One factor for each run of numbers, wherever rows end.
        factors = largest.numpy().astype(np.float32).ravel().repeat(block)[: rows * columns]
        numbers = (codes[indices] * factors).reshape(rows, columns)
        return ir.Tensor(numbers.astype(dtype.numpy()), dtype=dtype)

    weight = draft.tensor(ir.LazyTensor(compute, dtype=dtype, shape=ir.Shape([rows, columns])))
    weight.meta[WEIGHT] = True
    return draft.op("MatMul", value, draft.op("Transpose", weight, perm=[1, 0]))
