"""Every documented member of SambaTensor exists and does what its line says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import samba_onnx as samba
from samba_onnx import SambaTensor
from tests.tensor.memory_store import attached

Check = Callable[[SambaTensor], bool]


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(samba.to_torch(one), samba.to_torch(other))


def _cast(dtype: torch.dtype) -> Callable[[torch.Tensor], bool]:
    return lambda y: isinstance(y, SambaTensor) and y.dtype == dtype and y.sn_name == "x"


def _set_item(x: SambaTensor) -> bool:
    x[0, :] = 7
    x[:, 1] = samba.zeros(2)
    return x.data.tolist() == [[7.0, 0.0, 7.0], [3.0, 0.0, 5.0]]


def _backward(x: SambaTensor) -> bool:
    x.requires_grad_()
    (x * 2).backward(torch.ones(2, 3))
    return x.grad is not None and x.grad.tolist() == [[2.0] * 3] * 2


def _set_grad(x: SambaTensor) -> bool:
    x.grad = torch.ones(2, 3)
    return x.grad is not None and type(x.grad) is torch.Tensor


def _clear(x: SambaTensor) -> bool:
    x.clear_data()
    return not x.has_data and x.shape == (2, 3) and x.sn_name == "x"


def _materialize(x: SambaTensor) -> bool:
    x.clear_data()
    x.materializer = lambda tensor: torch.full(tensor.shape, 4.0)
    x.materialize_()
    return x.has_data and x.materializer_provided and x.data.unique().tolist() == [4.0]


def _fast(x: SambaTensor) -> bool:
    x.fast_access = True
    known = x.fast_access and SambaTensor.is_fast_access("x")
    x.fast_access = False
    return known and not SambaTensor.is_fast_access("x")


def _requires(x: SambaTensor) -> bool:
    changed = x.requires_grad_()
    return changed is x and x.requires_grad and not x.requires_grad_(False).requires_grad


def _renamed(x: SambaTensor) -> bool:
    x.sn_name = "y"
    return x.sn_region_name == "y" and x.sn_grad_name == "y__grad"


def _device_copies(x: SambaTensor) -> bool:
    x.requires_grad_()
    with attached(x=torch.zeros(2, 3), x__grad=torch.zeros(2, 3)) as store:
        x.sn_data, x.sn_grad = torch.ones(2, 3), samba.ones(2, 3)
        x.sn_data.add_(1)
        return x.sn_data.sum() == x.sn_grad.sum() == 6 and len(store.transfers) == 5


def _rdu(x: SambaTensor) -> bool:
    with attached(x=torch.zeros(2, 3)):
        returned: object = x.rdu()
        return returned is None and _same(x.sn_data, x)


def _cpu(x: SambaTensor) -> bool:
    with attached(x=torch.ones(2, 3)):
        returned: object = x.cpu()
        return returned is None and x.data.sum().item() == 6


def _cpu_in_place(x: SambaTensor) -> bool:
    before = x.data_ptr()
    with attached(x=torch.ones(2, 3)):
        x.cpu_()
    return x.data.sum().item() == 6 and x.data_ptr() == before


DOCUMENTED: dict[str, Check] = {
    "__getitem__": lambda x: x[:, 2].data.tolist() == [2.0, 5.0],
    "__setitem__": _set_item,
    "backward": _backward,
    "bfloat16": lambda x: _cast(torch.bfloat16)(x.bfloat16()),
    "bool": lambda x: _cast(torch.bool)(x.bool()),
    "clear_data": _clear,
    "cpu": _cpu,
    "cpu_": _cpu_in_place,
    "data_ptr": lambda x: x.data_ptr() == x.torch().data_ptr(),
    "dim": lambda x: x.dim() == 2,
    "element_size": lambda x: x.element_size() == 4,
    "float": lambda x: x.float() is x,
    "int": lambda x: _cast(torch.int32)(x.int()),
    "is_fast_access": _fast,
    "is_floating_point": lambda x: x.is_floating_point() and not x.int().is_floating_point(),
    "item": lambda x: x[1, 2].item() == 5.0,
    "long": lambda x: _cast(torch.int64)(x.long()),
    "materialize_": _materialize,
    "ndimension": lambda x: x.ndimension() == 2,
    "nelement": lambda x: x.nelement() == 6,
    "new_empty": lambda x: x.new_empty((4, 1), dtype=torch.int16).shape == (4, 1),
    "new_full": lambda x: x.new_full((2,), 5.0, device="cuda").data.tolist() == [5.0, 5.0],
    "new_ones": lambda x: _same(x.new_ones((2, 3)), torch.ones(2, 3)),
    "new_zeros": lambda x: x.new_zeros(3, requires_grad=True).is_leaf,
    "numel": lambda x: x.numel() == 6,
    "permute": lambda x: _same(x.permute(1, 0), x.torch().permute(1, 0)),
    "rdu": _rdu,
    "requires_grad_": _requires,
    "reshape": lambda x: x.reshape(-1, 2).shape == (3, 2),
    "reusable": lambda x: x.reusable() and not x.T.reusable(),
    "short": lambda x: _cast(torch.int16)(x.short()),
    "size": lambda x: x.size() == torch.Size([2, 3]) and x.size(dim=1) == 3,
    "stride": lambda x: x.stride() == (3, 1) and x.stride(0) == 3,
    "to": lambda x: _cast(torch.float64)(x.to(torch.randn((), dtype=torch.float64))),
    "torch": lambda x: type(x.torch()) is torch.Tensor and x.torch() is x.torch(),
    "torch_tensor": lambda x: x.torch_tensor() is x.torch(),
    "type": lambda x: x.type() == "torch.FloatTensor" and _cast(torch.int32)(x.type(torch.int32)),
    "type_as": lambda x: _cast(torch.int64)(x.type_as(samba.ones(1, dtype=torch.int64))),
    "view_as": lambda x: x.view_as(samba.zeros(3, 2)).data_ptr() == x.data_ptr(),
    "T": lambda x: _same(x.T, x.torch().t()) and isinstance(x.T, SambaTensor),
    "data": lambda x: type(x.data) is torch.Tensor and x.data.data_ptr() == x.data_ptr(),
    "device": lambda x: x.device == torch.device("cpu"),
    "dtype": lambda x: x.dtype == torch.float32,
    "fast_access": _fast,
    "grad": _set_grad,
    "materializer": _materialize,
    "materializer_provided": lambda x: not x.materializer_provided,
    "ndim": lambda x: x.ndim == 2,
    "requires_grad": lambda x: not x.requires_grad,
    "shape": lambda x: x.shape == torch.Size([2, 3]),
    "sn_data": _device_copies,
    "sn_grad": _device_copies,
    "sn_grad_name": lambda x: x.sn_grad_name == "x__grad" and samba.ones(1).sn_grad_name == "",
    "sn_name": _renamed,
    "sn_region_name": _renamed,
}


@pytest.mark.parametrize("member", DOCUMENTED)
def test_a_documented_member_does_what_it_says(member: str) -> None:
    assert hasattr(SambaTensor, member)
    assert DOCUMENTED[member](SambaTensor(torch.arange(6.0).reshape(2, 3), name="x"))
