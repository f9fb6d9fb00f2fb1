from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewrites.applying import numbers
from tests.passes.rewrites.foreign.expanding import MICROSOFT, assert_expands, expanded, one_node


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
