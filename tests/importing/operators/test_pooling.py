"""Pooling of imported models against onnxruntime: every attribute counts, on every way to compute it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from samba_onnx.importing import module_from_onnx
from tests.backend_cases import run_onnxruntime
from tests.importing.building import parse, ramp
from tests.versions import needs

PLACES = [
    "pads=[1,1,1,1], strides=[2,2]",  # torch's own kernel
    "pads=[1,1,1,1], strides=[2,2], ceil_mode=1",
    "pads=[0,1,2,1], strides=[2,1]",  # windows of our own, from here on
    "pads=[2,2,2,2], strides=[1,1]",
    "pads=[1,1,1,1], dilations=[2,1]",
    'auto_pad="SAME_UPPER", strides=[2,2]',
    'auto_pad="SAME_LOWER", strides=[2,2]',
]


OLDER_COUNT_OTHERWISE = ("pads=[0,1,2,1], strides=[2,1]", 'auto_pad="SAME_UPPER", strides=[2,2]')


@pytest.mark.parametrize(
    ("place", "counted"),
    [
        pytest.param(
            place,
            counted,
            marks=[needs("onnxruntime", "1.31")] * (counted and place in OLDER_COUNT_OTHERWISE),
        )
        for place, counted in itertools.product(PLACES, (0, 1))
    ],
)
def test_the_mean_counts_what_lies_around_only_if_it_is_told_to(place: str, counted: int) -> None:
    value = ramp(2, 3, 7, 6) + 2  # far from 0, so that zeros around it show in every border
    model = parse(
        "g (float[2,3,7,6] x) => (float[?,?,?,?] y) { y = AveragePool<kernel_shape=[3,3], "
        f"count_include_pad={counted}, {place}>(x) }}"
    )
    (expected,) = run_onnxruntime(model.SerializeToString(), [value])
    actual = module_from_onnx(model)(torch.from_numpy(value))
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    other = model.SerializeToString().replace(
        b"count_include_pad\x18" + bytes([counted]), b"count_include_pad\x18" + bytes([1 - counted])
    )
    assert not np.allclose(run_onnxruntime(other, [value])[0], expected, atol=1e-3)
