"""Arrays of tensors, in the types that hold all their digits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from samba_onnx.comparing.element_errors import wide_array
from samba_onnx.tensor import SambaTensor
from samba_onnx.tensor.arrays import to_array


def test_arrays_of_bfloat16_keep_their_type() -> None:
    tensor = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    for each in (tensor, SambaTensor(tensor, name="x")):
        array = to_array(each)
        assert array.dtype == ml_dtypes.bfloat16
        assert array.astype(np.float32).tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        (np.float32, np.float64),
        (ml_dtypes.bfloat16, np.float64),
        (np.float16, np.float64),
        (np.complex64, np.complex128),
        (np.int32, np.int32),
        (np.bool_, np.bool_),
    ],
)
def test_numbers_that_are_rounded_become_wide(dtype: type, wide: type) -> None:
    assert wide_array(np.zeros(2, dtype)).dtype == wide
