"""Factories give torch's values, as SambaTensors with names."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import samba_onnx as samba
from samba_onnx import SambaTensor

MARKS: dict[str, Any] = {
    "name": "x",
    "batch_dim": 0,
    "named_dims": ["B", None],
    "sized_dims": ("b", None),
    "region_name": "r",
}
LIKE = torch.zeros(2, 3, dtype=torch.bfloat16)

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "randn of integers": (samba.randn, (2, 3), {}),
    "randn of a tuple": (samba.randn, ((2, 3),), {"dtype": torch.bfloat16}),
    "randn without dimensions": (samba.randn, ((),), {"dtype": torch.bfloat16}),
    "rand": (samba.rand, ([2, 1],), {"dtype": torch.float}),
    "randint below": (samba.randint, (10, (4,)), {}),
    "randint between": (samba.randint, (5, 9, (4,)), {"dtype": torch.int16}),
    "zeros": (samba.zeros, (2, 3), {"dtype": torch.int32}),
    "ones": (samba.ones, ((),), {}),
    "full": (samba.full, ((2,), 7), {}),
    "arange": (samba.arange, (1, 10, 2), {}),
    "randn_like": (samba.randn_like, (LIKE,), {}),
    "rand_like": (samba.rand_like, (LIKE,), {"dtype": torch.float32}),
    "zeros_like": (samba.zeros_like, (LIKE,), {}),
    "ones_like": (samba.ones_like, (samba.SambaTensor(LIKE),), {}),
    "full_like": (samba.full_like, (LIKE, 2.5), {}),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_factory_gives_what_torch_gives(call: str) -> None:
    factory, args, options = CALLS[call]
    samba.set_seed(1)
    tensor = factory(*args, **options, **MARKS)
    torch.manual_seed(1)
    expected = getattr(torch, factory.__name__)(*args, **options)
    assert isinstance(tensor, SambaTensor)
    torch.testing.assert_close(tensor.torch(), samba.to_torch(expected), rtol=0, atol=0)
    assert (tensor.sn_name, tensor.sn_region_name, tensor.batch_dim) == ("x", "r", 0)
    assert (tensor.named_dims, tensor.sized_dims) == (("B", None), ("b", None))


def test_uninitialised_tensors_have_the_shape_and_dtype() -> None:
    for tensor in (samba.empty(2, 3, dtype=torch.bfloat16), samba.empty_like(LIKE)):
        assert isinstance(tensor, SambaTensor)
        assert (tensor.shape, tensor.dtype) == (LIKE.shape, LIKE.dtype)


def test_leaves_may_require_gradients() -> None:
    tensor = samba.randn(2, requires_grad=True, generator=torch.Generator().manual_seed(3))
    assert tensor.is_leaf
    (tensor * 2).sum().backward()
    assert tensor.torch().grad is not None


def test_casts_keep_what_a_tensor_carries() -> None:
    tensor = samba.randn(1, 2, **MARKS).bfloat16().float().to(torch.float64).contiguous()
    assert (tensor.sn_name, tensor.sn_region_name, tensor.batch_dim) == ("x", "r", 0)
    assert (tensor * 2).sn_name == ""


def test_one_seed_for_all_generators() -> None:
    def draws() -> tuple[float, float, float]:
        samba.set_seed(7)
        return torch.rand(()).item(), random.random(), float(np.random.rand())

    assert draws() == draws()
