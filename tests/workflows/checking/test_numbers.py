"""How far two sets of numbers are apart."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import torch

from samba_onnx.tensor import SambaTensor
from samba_onnx.workflows.checking.numbers import difference, to_array


def test_difference() -> None:
    wanted = torch.tensor([1.0, math.nan, math.inf, 4.0])
    assert difference(np.array([1, math.nan, math.inf, 4], np.float32), wanted) == 0
    assert difference(np.array([1, math.nan, math.inf, 3], np.float32), wanted) == 0.25
    assert difference(np.array([1, 0, math.inf, 4], np.float32), wanted) == math.inf
    assert difference(np.array([1, math.nan, -math.inf, 4], np.float32), wanted) == math.inf
    assert difference(np.array([math.nan] * 4, np.float32), wanted) == math.inf
    assert difference(np.array([1, 2], np.float32), wanted) == math.inf
    assert difference(np.array([1, 2]), torch.tensor([1, 3])) == math.inf
    assert difference(np.array([1, 3]), torch.tensor([1, 3])) == 0
    assert difference(np.zeros((0,), np.float32), torch.zeros(0)) == 0


def test_arrays_of_bfloat16_keep_their_type() -> None:
    tensor = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    for each in (tensor, SambaTensor(tensor, name="x")):
        array = to_array(each)
        assert array.dtype == ml_dtypes.bfloat16
        assert array.astype(np.float32).tolist() == [1.5, -2.0]
