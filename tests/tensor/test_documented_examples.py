"""The examples of SambaFlow's documentation give the output that it prints."""

from __future__ import annotations

from typing import Any

import torch

import samba_onnx as samba
from samba_onnx import SambaTensor
from samba_onnx.functional import sn_fma, sn_gather, sn_zipmapreduce


def _prints(value: Any, text: str) -> bool:
    return repr(value).split() == text.split()


def test_casting() -> None:
    samba.set_seed(1)
    tensor = samba.randn(2, 2)
    assert _prints(
        tensor.to(torch.bfloat16).data,
        "tensor([[0.6602, 0.2676], [0.0618, 0.6211]], dtype=torch.bfloat16)",
    )
    other = torch.randn((), dtype=torch.float64)
    assert _prints(
        tensor.to(other).data, "tensor([[0.6614, 0.2669], [0.0617, 0.6213]], dtype=torch.float64)"
    )


def test_indexing() -> None:
    tensor = SambaTensor(torch.tensor([[0.7102, -0.8594, -0.5047], [0.8140, -0.4194, 1.5488]]))
    assert _prints(tensor[:, 2].data, "tensor([-0.5047,  1.5488])")
    index = samba.SambaTensor(torch.Tensor([0, 2]))
    assert _prints(
        tensor[None, :, index].data, "tensor([[[ 0.7102, -0.5047], [ 0.8140,  1.5488]]])"
    )


def test_setting() -> None:
    tensor = samba.zeros(2, 3)
    tensor[:, 2] = samba.ones(2)
    assert _prints(tensor.data, "tensor([[0., 0., 1.], [0., 0., 1.]])")
    index = samba.SambaTensor(torch.Tensor([0, 2]))
    tensor[None, :, index] = 2 * samba.ones(1, 2, 2)
    assert _prints(tensor.data, "tensor([[2., 0., 2.], [2., 0., 2.]])")


def test_new_tensors() -> None:
    tensor = samba.ones((), dtype=torch.float32)
    assert tensor.new_empty((2, 3)).shape == (2, 3)
    assert _prints(tensor.new_full((2, 3), 5.0).data, "tensor([[5., 5., 5.], [5., 5., 5.]])")
    half = samba.randn((), dtype=torch.bfloat16)
    assert _prints(
        half.new_ones((2, 3)).data, "tensor([[1., 1., 1.], [1., 1., 1.]], dtype=torch.bfloat16)"
    )


def test_three_ways_to_an_empty_tensor() -> None:
    tensors = (
        samba.SambaTensor(torch.empty(2, 3), name="empty_samba_tensor0"),
        samba.SambaTensor(shape=(2, 3), dtype=torch.bfloat16, name="empty_samba_tensor1"),
        samba.from_torch_tensor(torch.empty(2, 3), name="empty_samba_tensor2"),
    )
    for number, tensor in enumerate(tensors):
        assert (tensor.shape, tensor.sn_name) == ((2, 3), f"empty_samba_tensor{number}")


def test_regions() -> None:
    t0 = samba.SambaTensor(torch.Tensor([1, 2]), name="t0")
    t1 = samba.SambaTensor(torch.Tensor([3, 4]), name="t1", region_name="t1_other")
    t2 = samba.SambaTensor(torch.Tensor([1, 2]), name="t2", region_name="t0")
    assert [t.sn_region_name for t in (t0, t1, t2)] == ["t0", "t1_other", "t0"]


def test_fused_multiply_add() -> None:
    samba.set_seed(1)
    x, y, z = (samba.randn((2, 5), dtype=torch.bfloat16) for _ in range(3))
    out = sn_zipmapreduce(lambda attrs, x, y, z: sn_fma(x, y, z), [x, y, z])
    assert _prints(
        out.data,
        "tensor([[ 3.0000, -1.8438,  1.5859, -1.8750,  0.1357],"
        " [-0.5234,  2.0312,  2.3438,  2.0312, -0.9180]], dtype=torch.bfloat16)",
    )


def test_gather() -> None:
    table = torch.arange(25).reshape(5, 5)
    starts = torch.tensor([[0, 0], [1, 1], [3, 2]])
    assert _prints(
        sn_gather(table, starts, [0, 1], [2, 3]).data,
        "tensor([[[ 0, 1, 2], [ 5, 6, 7]], [[ 6, 7, 8], [11, 12, 13]], [[17, 18, 19], [22, 23, 24]]])",
    )


def test_arithmetic() -> None:
    assert _prints(samba.abs(SambaTensor(torch.tensor([-1, -2, -3]))).data, "tensor([1, 2, 3])")
    a = samba.SambaTensor(torch.tensor([0.0202, 1.0985, 1.3506, -0.6056]))
    assert _prints(samba.add(a, 20).data, "tensor([20.0202, 21.0985, 21.3506, 19.3944])")
