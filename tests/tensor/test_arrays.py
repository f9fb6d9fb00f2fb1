"""Between torch tensors and arrays: same memory, every type that both have."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.tensor.arrays import from_array, to_array, torch_dtype

TYPES = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.float16: np.float16,
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.uint8: np.uint8,
    torch.uint32: np.uint32,
    torch.bool: np.bool_,
    torch.complex64: np.complex64,
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
def test_values_and_memory_are_the_same(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    numbers = torch.arange(6).remainder(2)[: int(np.prod(shape, dtype=int))].reshape(shape)
    tensor = numbers.to(dtype)
    array = to_array(tensor)
    assert array.dtype == TYPES[dtype]
    assert array.shape == shape
    np.testing.assert_array_equal(array.astype(np.complex128), numbers.numpy())
    back = from_array(array)
    assert (back.dtype, back.shape) == (dtype, tensor.shape)
    assert back.data_ptr() == tensor.data_ptr() or not tensor.numel()
    assert torch_dtype(array.dtype) is dtype


def test_any_strides_and_any_kind_of_tensor() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(to_array(tensor.T), tensor.numpy().T)
    halves = tensor.bfloat16().T
    np.testing.assert_array_equal(to_array(halves).astype(np.float32), tensor.numpy().T)
    np.testing.assert_array_equal(to_array(tensor.requires_grad_()), tensor.detach().numpy())
    lazily = samba.SambaTensor(shape=(2,), materializer=lambda t: torch.full(t.shape, 3.0))
    np.testing.assert_array_equal(to_array(lazily), [3.0, 3.0])
    assert not lazily.has_data
    conjugate = torch.tensor([1 + 2j]).conj()
    np.testing.assert_array_equal(to_array(conjugate), [1 - 2j])


def test_what_is_not_in_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="has no data"):
        to_array(samba.SambaTensor(shape=(2,)))
    with pytest.raises(UsageError, match="on meta cannot be given to the device"):
        to_array(torch.empty(2, device="meta"))
