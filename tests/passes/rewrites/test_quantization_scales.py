"""Which scales fit a tensor, and how they are spread over it: as numpy broadcasts them by hand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.quantization_scales import exact_numbers, scales_fit, spread


@pytest.mark.parametrize(
    ("scale", "axis", "block", "fits"),
    [
        ((), 9, 0, True),
        ((1,), 9, 0, True),
        ((1,), 0, 2, False),
        ((6,), 0, 0, True),
        ((6,), -2, 0, True),
        ((6,), 1, 0, False),
        ((4,), 1, 0, True),
        ((4,), 2, 0, False),
        ((6,), 2, 0, False),
        ((6,), -3, 0, False),
        ((4, 1), 1, 0, False),
        ((3, 4), 0, 2, True),
        ((2, 4), 0, 4, True),
        ((6, 4), 0, 1, True),
        ((6, 2), -1, 2, True),
        ((6, 2), 0, 2, False),
        ((3, 4), 0, -2, False),
        ((3, 4), 5, 2, False),
    ],
)
def test_scales_are_one_or_of_an_axis_or_of_blocks(
    scale: tuple[int, ...], axis: int, block: int, fits: bool
) -> None:
    assert scales_fit(scale, (6, 4), axis, block) is fits


def test_scales_are_spread_over_the_tensor() -> None:
    one, row = np.array([3.0]), np.arange(4.0)
    assert spread(one, (), 0, 0).shape == ()
    assert spread(one, (6, 4), 1, 0).shape == ()
    np.testing.assert_array_equal(spread(row, (6, 4), -1, 0), row.reshape(1, 4))
    np.testing.assert_array_equal(spread(np.arange(6.0), (6, 4), 0, 0), np.arange(6.0)[:, None])
    blocks = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(spread(blocks, (6, 4), 0, 4), blocks[[0, 0, 0, 0, 1, 1]])
    np.testing.assert_array_equal(spread(blocks.T, (4, 6), -1, 4), blocks.T[:, [0, 0, 0, 0, 1, 1]])


def test_numbers_are_exact() -> None:
    whole = exact_numbers(ir.tensor(np.array([2**24 + 1, -(2**31)], np.int32)))
    assert whole.tolist() == [2**24 + 1, -(2**31)]
    eighth = np.array([0.125, -1.5], ml_dtypes.float8_e4m3fn)
    numbers = exact_numbers(ir.Tensor(eighth, dtype=ir.DataType.FLOAT8E4M3FN))
    assert (numbers.tolist(), numbers.dtype) == ([0.125, -1.5], np.float32)
