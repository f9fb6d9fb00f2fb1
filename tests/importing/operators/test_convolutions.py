"""Transposed convolutions of imported models against onnxruntime: every mode of padding with every size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from samba_onnx.importing import module_from_onnx
from tests.backend_cases import run_onnxruntime
from tests.importing.building import parse, ramp

MODES = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
LENGTH = 5


def windows() -> list[tuple[int, int, int, int]]:
    """Return strides, kernels, dilations and output paddings that onnxruntime takes with any size."""
    every = itertools.product((1, 2, 3), (1, 2, 3), (1, 2), (0, 1))
    return [each for each in every if each[3] < each[0]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("stride", "kernel", "dilation", "extra"), windows())
def test_the_result_is_cut_and_filled_at_the_right_ends(
    mode: str, stride: int, kernel: int, dilation: int, extra: int
) -> None:
    value, weight = ramp(1, 2, LENGTH), ramp(2, 3, kernel)
    full = stride * (LENGTH - 1) + extra + (kernel - 1) * dilation + 1
    # From four elements too few to as many too many as onnxruntime fills: it refuses sizes that one more
    # step of the windows would reach.
    for size in (None, *range(max(1, full - 4), full + stride - extra)):
        wanted = "" if size is None else f", output_shape=[{size}]"
        model = parse(
            f'g (float[1,2,{LENGTH}] x) => (float[?,?,?] y) {{ y = ConvTranspose<auto_pad="{mode}", '
            f"output_padding=[{extra}], strides=[{stride}], dilations=[{dilation}]{wanted}>(x, w) }}",
            w=weight,
        )
        (expected,) = run_onnxruntime(model.SerializeToString(), [value])
        actual = module_from_onnx(model)(torch.from_numpy(value)).detach().numpy()
        # Sums of at most twelve products of order one, in another order.
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6, err_msg=wanted)
