from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.foreign.drafting import Draft
from samba_onnx.passes.rewrites.foreign.products import matmul_n_bits
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import (
    MICROSOFT,
    assert_expands,
    expanded,
    one_node,
    refusal,
)


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
