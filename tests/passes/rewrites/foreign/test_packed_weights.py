from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.packed_weights import matmul_n_bits
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_computes,
    assert_expands,
    assert_stays,
    expanded,
    one_node,
    refusal,
)
from tests.versions import needs


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("contracted", [64, 40])
@pytest.mark.parametrize("with_zero_points", [False, True])
def test_weights_of_few_bits(bits: int, contracted: int, with_zero_points: bool) -> None:
    generator = np.random.default_rng(0)
    rows, block = 6, 16
    blocks = -(-contracted // block)
    packed = generator.integers(0, 256, (rows, blocks, block * bits // 8), np.uint8)
    scales = (0.1 + generator.random(rows * blocks)).astype(np.float32)
    zeros = generator.integers(0, 256, rows * -(-blocks * bits // 8), np.uint8)
    operands = [numbers(2, 3, contracted), packed, scales]
    operands += [zeros if with_zero_points else None, None, numbers(rows, seed=1)]
    proto = one_node(
        MICROSOFT, "MatMulNBits", operands, ["y"], constants=(1, 2, 3, 5),
        K=contracted, N=rows, bits=bits, block_size=block,
    )  # fmt: skip
    # sums of up to 64 products of numbers up to 2000
    assert_expands(proto, operands, rtol=1e-4, atol=1e-2)


def test_one_row_is_a_weight_too() -> None:
    packed = np.random.default_rng(0).integers(0, 256, (1, 1, 8), np.uint8)
    operands = [numbers(3, 16), packed, np.array([0.1], np.float32)]
    proto = one_node(
        MICROSOFT, "MatMulNBits", operands, ["y"], (1, 2), K=16, N=1, bits=4, block_size=16
    )
    assert_expands(proto, operands)


def test_weights_that_are_computed_stay() -> None:
    operands = [numbers(2, 32), np.zeros((4, 2, 8), np.uint8), numbers(8)]
    proto = one_node(MICROSOFT, "MatMulNBits", operands, ["y"], K=32, N=4, bits=4, block_size=16)
    model, notes = expanded(proto)
    assert [node.op_type for node in model.graph] == ["MatMulNBits"]
    assert "its weight 'x1' is not constant" in " ".join(notes)


def packed(constants: tuple[int, ...] = (1,), **attributes: int) -> onnx.ModelProto:
    operands = [numbers(2, 32), np.zeros((4, 2, 8), np.uint8), numbers(8), np.zeros(4, np.uint8)]
    stated = {"K": 32, "N": 4, "block_size": 16} | attributes
    return one_node(MICROSOFT, "MatMulNBits", operands, ["y"], constants=constants, **stated)


def test_a_weight_has_four_bits_unless_told_otherwise_and_counts_as_one() -> None:
    (node,) = ir.from_proto(packed(constants=(1, 3))).graph
    draft = Draft(node)
    matmul_n_bits(draft)
    weights = [made.outputs[0] for made in draft.nodes if made.outputs[0].meta.get(WEIGHT)]
    assert [(weight.dtype, weight.shape) for weight in weights] == [
        (ir.DataType.UINT4, ir.Shape([4, 32]))
    ]


def test_what_onnx_has_no_integers_for_stays() -> None:
    assert refusal(packed(bits=2)) == "ONNX 21 has no unsigned integers of 2 bits"
    assert refusal(packed()) == "its zero points are no constant integers"


@pytest.mark.parametrize("name", ["K", "N", "block_size"])
def test_a_weight_without_a_size_stays(name: str) -> None:
    proto = packed(**{name: 0})
    assert refusal(proto) == "its attributes do not state the size of its weight"


# onnxruntime before 1.27 reads the zero points of such rows as if rows shared bytes.
@pytest.mark.parametrize("bits", [pytest.param(4, marks=needs("onnxruntime", "1.27")), 8])
def test_a_table_of_matrices_whose_rows_have_an_odd_number_of_blocks(bits: int) -> None:
    generator = np.random.default_rng(0)
    table = generator.integers(0, 256, (5, 2, 48 * bits // 8), np.uint8)
    scales = (0.1 + generator.random((5, 2, 3))).astype(np.float32)
    zeros = generator.integers(0, 256, (5, 2, -(-3 * bits // 8)), np.uint8)
    operands = [table, generator.integers(0, 5, (2, 3)), scales, zeros]
    proto = one_node(
        MICROSOFT, "GatherBlockQuantized", operands, ["y"], constants=(0, 2, 3),
        bits=bits, block_size=16, quantize_axis=2,
    )  # fmt: skip
    assert_expands(proto, operands)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("with_zero_points", [False, True])
def test_rows_of_a_table_of_few_bits(bits: int, with_zero_points: bool) -> None:
    generator = np.random.default_rng(0)
    table = generator.integers(0, 256, (6, 64 * bits // 8), np.uint8)
    scales = (0.1 + generator.random((6, 4))).astype(np.float32)
    zeros = generator.integers(0, 256, (6, 4 * bits // 8), np.uint8) if with_zero_points else None
    operands = [table, generator.integers(0, 6, (2, 3)), scales, zeros]
    proto = one_node(
        MICROSOFT, "GatherBlockQuantized", operands, ["y"], constants=(0, 2, 3),
        bits=bits, block_size=16,
    )  # fmt: skip
    assert_expands(proto, operands)


def test_a_table_whose_zero_points_are_computed_stays() -> None:
    operands = [np.zeros((6, 32), np.uint8), np.zeros((2, 3), np.int64), numbers(6, 4)]
    operands += [np.zeros((6, 2), np.uint8)]
    proto = one_node(
        MICROSOFT, "GatherBlockQuantized", operands, ["y"], (0, 2), bits=4, block_size=16
    )
    assert refusal(proto) == "its zero points 'x3' is not constant"


@pytest.mark.parametrize("form", [0, 1])
def test_weights_in_the_forms_of_bitsandbytes(form: int) -> None:
    generator = np.random.default_rng(0)
    packed = generator.integers(0, 256, 6 * 40 // 2, np.uint8)
    operands = [numbers(2, 40), packed, (0.1 + generator.random(15)).astype(np.float32)]
    attributes = {"quant_type": form, "block_size": 16, "N": 6, "K": 40}
    proto = one_node(MICROSOFT, "MatMulBnb4", operands, ["y"], constants=(1, 2), **attributes)
    assert_expands(proto, operands)
    proto = one_node(MICROSOFT, "MatMulBnb4", operands, ["y"], (1, 2), transB=0, **attributes)
    assert_stays(proto, "its attribute transB is 0, not 1")


def _packed(generator: np.random.Generator, rows: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return a weight of 4 bits, its scales and a bias, and the numbers that it stands for."""
    packed = generator.integers(0, 256, (rows, 2, 8), np.uint8)
    scales = (0.01 * generator.random((rows, 2, 1))).astype(np.float32)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(rows, 2, 16)
    weight = ((codes.astype(np.float32) - 8) * scales).reshape(rows, 32)
    return [packed, scales.ravel(), numbers(rows, seed=rows)], weight


def _normal(value: np.ndarray, scale: np.ndarray, epsilon: float) -> np.ndarray:
    return value / np.sqrt((value * value).mean(-1, keepdims=True) + np.float32(epsilon)) * scale


@pytest.mark.parametrize(
    ("normalized", "size", "epsilon"),
    [(False, 1.0, None), (True, 1.0, None), (True, 1e-3, None), (True, 1.0, 0.5)],
)
def test_two_products_of_one_value_gate_each_other(
    normalized: bool, size: float, epsilon: float | None
) -> None:
    generator = np.random.default_rng(0)
    value, skip = np.float32(size) * numbers(2, 32), np.float32(size) * numbers(2, 32, seed=1)
    scale = numbers(32, seed=2)
    (gate, gate_weight), (up, up_weight) = _packed(generator, 6), _packed(generator, 6)
    operands = [value, *([skip, scale] if normalized else [None, None]), *gate, *up]
    total = value + skip if normalized else value
    normal = _normal(total, scale, epsilon or 1e-5) if normalized else value
    opening = torch.nn.functional.silu(torch.from_numpy(normal @ gate_weight.T + gate[2])).numpy()
    expected = opening * (normal @ up_weight.T + up[2])
    proto = one_node(
        MICROSOFT, "MatMulNBitsMlp", operands, ["y", "total"] if normalized else ["y"],
        constants=(3, 4, 6, 7), activation="silu", K=32, N=6, bits=4, block_size=16,
        **({} if epsilon is None else {"epsilon": epsilon}),
    )  # fmt: skip
    assert_computes(proto, operands, expected, *([total] if normalized else []))


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_queries_keys_and_values_of_one_normalized_value(size: float) -> None:
    generator = np.random.default_rng(0)
    value, scale = numbers(2, 32) * np.float32(size), numbers(32, seed=2)
    parts = [_packed(generator, rows) for rows in (6, 4, 4)]
    operands = [value, None, scale, *(array for part, _ in parts for array in part)]
    normal = _normal(value, scale, 1e-6)
    expected = [normal @ weight.T + part[2] for part, weight in parts]
    proto = one_node(
        MICROSOFT, "MatMulNBitsQkv", operands, ["q", "k", "v"], constants=(3, 4, 6, 7, 9, 10),
        K=32, Nq=6, Nkv=4, bits=4, block_size=16,
    )  # fmt: skip
    assert_computes(proto, operands, *expected)
