"""Host and device copies are separate; only what is asked for is transferred."""

from __future__ import annotations

import pytest
import torch

import samba_onnx as samba
from samba_onnx import SambaTensor
from samba_onnx.errors import InputError, NoDeviceError, UsageError
from tests.tensor.memory_store import attached


def test_reads_are_fresh_copies_and_writes_are_transfers() -> None:
    tensor = samba.zeros(2, name="x")
    with attached(x=torch.ones(2)) as store:
        first, second = tensor.sn_data, tensor.sn_data
        assert type(first) is torch.Tensor
        assert first.data_ptr() != second.data_ptr()
        first.fill_(9)
        assert tensor.sn_data.tolist() == [1.0, 1.0]
        assert tensor.tolist() == [0.0, 0.0]
        tensor.sn_data = samba.full((2,), 5.0)
        assert store.places["x"].tolist() == [5.0, 5.0]
        assert store.transfers == [("read", "x")] * 3 + [("write", "x")]


def test_tensors_with_one_region_share_device_memory() -> None:
    one = samba.from_torch_tensor(torch.zeros(2), name="cache_in", region_name="cache")
    two = samba.from_torch_tensor(torch.zeros(2), name="cache_out")
    assert two.sn_region_name == "cache_out"
    two.sn_region_name = "cache"
    with attached(cache=torch.zeros(2)):
        one.sn_data = torch.ones(2)
        assert two.sn_data.tolist() == [1.0, 1.0]


def test_rdu_and_cpu_move_values_and_gradients() -> None:
    tensor = samba.ones(2, name="x", requires_grad=True)
    tensor.grad = torch.full((2,), 2.0)
    with attached(x=torch.zeros(2), x__grad=torch.zeros(2)) as store:
        tensor.rdu()
        assert store.places["x"].tolist() == [1.0, 1.0]
        assert tensor.sn_grad.tolist() == [2.0, 2.0]
        tensor.sn_data, tensor.sn_grad = torch.full((2,), 3.0), torch.full((2,), 4.0)
        before, held = tensor.data_ptr(), tensor.grad
        tensor.cpu()
        assert tensor.data_ptr() != before
        assert tensor.tolist() == [3.0, 3.0]
        assert held.tolist() == [2.0, 2.0]
        assert tensor.grad.tolist() == [4.0, 4.0]
        tensor.sn_grad = torch.zeros(2)
        held = tensor.grad
        tensor.cpu_()
        assert held.tolist() == [0.0, 0.0]


def test_the_wrapped_tensor_follows_the_host_copy() -> None:
    plain = torch.zeros(2)
    tensor = samba.from_torch_tensor(plain, name="x")
    with attached(x=torch.ones(2)):
        tensor.cpu()
    assert plain.tolist() == [1.0, 1.0]
    assert tensor.torch() is plain


def test_cleared_tensors_are_filled_from_the_device() -> None:
    tensor = samba.zeros(2, name="x")
    tensor.clear_data()
    with attached(x=torch.ones(2)):
        tensor.cpu_()
    assert tensor.tolist() == [1.0, 1.0]


def test_without_a_device_the_error_says_what_to_do() -> None:
    tensor = samba.zeros(2, name="x")
    for member in (lambda: tensor.sn_data, tensor.rdu, tensor.cpu, tensor.cpu_):
        with pytest.raises(
            NoDeviceError, match="'x' has no copy on a device: no program is loaded"
        ):
            member()
    with pytest.raises(NoDeviceError, match="without a name"):
        _ = samba.zeros(2).sn_data
    with attached(), pytest.raises(NoDeviceError, match="the loaded program has no such tensor"):
        tensor.sn_data = torch.zeros(2)


def test_gradients_need_a_tensor_that_requires_them() -> None:
    tensor = samba.zeros(2, name="x")
    with attached(x=torch.zeros(2)), pytest.raises(NoDeviceError, match="not require gradients"):
        _ = tensor.sn_grad
    tensor.requires_grad_()
    with attached(x=torch.zeros(2)), pytest.raises(NoDeviceError, match=r"'x' .*compiled without"):
        tensor.sn_grad = torch.zeros(2)


def test_wrong_values_are_refused_before_a_transfer() -> None:
    tensor = samba.zeros(2, name="x")
    with attached(x=torch.zeros(2)) as store:
        with pytest.raises(InputError, match=r"shape \(3,\), torch.float32; it has shape \(2,\)"):
            tensor.sn_data = torch.zeros(3)
        with pytest.raises(InputError, match=r"torch.int64; it has"):
            tensor.sn_data = torch.zeros(2, dtype=torch.int64)
        with pytest.raises(UsageError, match="was given list"):
            tensor.sn_data = [0.0, 0.0]  # type: ignore[assignment]
        assert store.transfers == []


def test_memory_types_have_the_documented_names() -> None:
    tensor = SambaTensor(torch.ones(1))
    assert tensor.mem_type is None
    tensor.mem_type = "hbm"
    assert tensor.mem_type == "HBM"
    with pytest.raises(UsageError, match="mem_type is 'SRAM'; give one of DDR, HBM, Host"):
        tensor.mem_type = "SRAM"
    tensor.host_memory = True
    assert tensor.host_memory
    with pytest.raises(UsageError, match="known by name"):
        tensor.fast_access = True
