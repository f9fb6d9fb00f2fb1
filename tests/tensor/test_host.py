"""A SambaTensor shares memory, history and gradients with the tensor that it wraps."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch

import samba_onnx as samba
from samba_onnx import SambaParameter, SambaTensor
from samba_onnx.errors import UsageError


def test_memory_is_shared_both_ways() -> None:
    plain = torch.zeros(3)
    tensor = SambaTensor(plain)
    plain[0] = 1
    tensor[1] = 2
    assert plain.tolist() == tensor.tolist() == [1.0, 2.0, 0.0]
    assert isinstance(tensor, torch.Tensor)
    assert tensor.torch() is plain
    assert samba.to_torch(tensor) is plain
    tensor.data = torch.ones(3)
    assert plain.tolist() == [1.0, 1.0, 1.0]


def test_wrapping_returns_what_is_wrapped_already() -> None:
    tensor = samba.from_torch_tensor(torch.ones(1), name="first")
    assert samba.from_torch_tensor(tensor, name="second") is tensor
    assert tensor.sn_name == "first"
    nothing: object = samba.from_torch_tensor(None)
    assert nothing is None
    plain = torch.ones(1)
    assert samba.to_torch(plain) is plain
    nothing = samba.to_torch(None)
    assert nothing is None


def test_a_samba_tensor_that_is_wrapped_again_has_the_same_torch_tensor() -> None:
    plain = torch.ones(2, requires_grad=True)
    twice = SambaTensor(SambaTensor(plain, name="first"), name="second")
    assert twice.torch() is plain
    (twice * 2).sum().backward()
    assert plain.grad is not None


def test_named_dict() -> None:
    tensors = samba.from_named_dict({"a": torch.ones(1), "b": torch.zeros(2)})
    assert {key: tensor.sn_name for key, tensor in tensors.items()} == {"a": "a", "b": "b"}


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(UsageError, match=r"was given list; wrap a torch\.Tensor"):
        samba.from_torch_tensor([1.0])  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="to_torch was given list"):
        samba.to_torch([1.0])  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="either a tensor or a shape"):
        SambaTensor()
    with pytest.raises(UsageError, match="either a tensor or a shape"):
        SambaTensor(torch.ones(1), shape=(1,))
    with pytest.raises(UsageError, match="convert the tensor first"):
        SambaTensor(torch.ones(1), dtype=torch.float32)


def test_gradients_that_reach_the_wrapper_are_those_of_the_wrapped_leaf() -> None:
    plain = torch.ones(2, requires_grad=True)
    tensor = SambaTensor(plain)
    (tensor * 2).sum().backward()
    (plain * 3).sum().backward()
    (tensor * 4).sum().backward()
    assert plain.grad is not None
    assert tensor.grad is plain.grad
    assert plain.grad.tolist() == [9.0, 9.0]
    tensor.grad = None
    assert plain.grad is None
    assert type(plain) is torch.Tensor


def test_history_of_a_wrapped_result_is_kept() -> None:
    leaf = torch.ones(2, requires_grad=True)
    tensor = samba.from_torch_tensor(leaf * 2)
    loss = (tensor * 3).sum()
    assert isinstance(loss, SambaTensor)
    loss.torch().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [6.0, 6.0]


def test_gradients_can_be_switched_on_and_off() -> None:
    plain = torch.ones(2)
    tensor = SambaTensor(plain)
    tensor.requires_grad = True
    assert plain.requires_grad
    (tensor * tensor).sum().backward()
    assert plain.grad is not None
    tensor.requires_grad_(False)
    assert not plain.requires_grad
    assert not (tensor * 2).requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        samba.ones(1, dtype=torch.int64).requires_grad_()


def test_torch_optim_steps_a_samba_tensor() -> None:
    tensor = samba.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([tensor], lr=0.5)
    (tensor * 2).sum().backward()
    optimizer.step()
    assert tensor.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert tensor.grad is None


def test_results_are_samba_tensors_and_plain_operands_stay_plain() -> None:
    plain, tensor = torch.ones(2), samba.ones(2)
    for result in (plain + tensor, tensor + plain, torch.add(plain, tensor), 1 - tensor):
        assert isinstance(result, SambaTensor)
    plain += tensor
    assert type(plain) is torch.Tensor
    out = torch.empty(2)
    assert torch.add(tensor, 1, out=out) is out
    assert type(out) is torch.Tensor
    passed_on = torch.broadcast_tensors(plain, samba.ones(1))[0]
    assert isinstance(passed_on, SambaTensor)
    assert type(plain) is torch.Tensor
    assert all(isinstance(element, SambaTensor) for element in tensor)
    assert isinstance(torch.max(samba.ones(2, 2), dim=0).values, SambaTensor)


def test_types_promote_as_in_torch() -> None:
    assert (samba.ones(1, dtype=torch.bfloat16) + samba.ones(1)).dtype == torch.float32


def test_a_cast_to_the_same_type_is_the_same_object() -> None:
    tensor = samba.ones(2)
    assert tensor.type(torch.float32) is tensor
    assert tensor.to(torch.float32) is tensor
    with pytest.raises(UsageError, match="non_blocking, source"):
        tensor.type(torch.int32, non_blocking=True, source=1)


def test_copies_keep_what_the_tensor_carries() -> None:
    tensor = samba.ones(2, name="x", batch_dim=0, requires_grad=True)
    tensor.grad = torch.ones(2)
    for twin in (copy.copy(tensor), copy.deepcopy(tensor)):
        assert isinstance(twin, SambaTensor)
        assert (twin.sn_name, twin.batch_dim, twin.requires_grad) == ("x", 0, True)
    assert copy.copy(tensor).data_ptr() == tensor.data_ptr()
    assert copy.deepcopy(tensor).data_ptr() != tensor.data_ptr()
    grad = copy.deepcopy(tensor).grad
    assert grad is not None
    assert grad is not tensor.grad
    with pytest.raises(RuntimeError, match=r"detach\(\) first"):
        copy.deepcopy(tensor * 2)


def test_memory_shared_by_two_tensors_is_shared_by_their_deep_copies() -> None:
    plain = torch.zeros(4)
    first, second = copy.deepcopy([SambaTensor(plain[:2]), SambaTensor(plain)])
    first.fill_(3)
    assert second.tolist() == [3.0, 3.0, 0.0, 0.0]


def test_a_parameter_is_a_parameter_and_a_samba_tensor() -> None:
    parameter = SambaParameter(torch.ones(2))
    assert isinstance(parameter, torch.nn.Parameter)
    assert isinstance(parameter, SambaTensor)
    assert parameter.is_leaf
    assert parameter.requires_grad
    assert hash(parameter) == id(parameter)
    assert type(parameter * 2) is SambaTensor


def test_the_repr_shows_values_and_what_is_carried() -> None:
    tensor = SambaTensor(torch.tensor(1.2188), name="loss__outputs__0")
    assert repr(tensor) == (
        "tensor(1.2188)\n"
        "samba.SambaTensor(name: loss__outputs__0, shape: torch.Size([]), dtype: torch.float32, "
        "batch_dim: None, named_dims: (), keep_data: True, materializer_provided: False)"
    )
    anonymous = samba.ones(1)
    assert anonymous.name.startswith("sambatensor_")
    assert f"name: {anonymous.name}," in repr(anonymous)
    assert anonymous.sn_name == ""
    assert f"{tensor:.2f}" == "1.22"
    assert repr(SambaParameter(shape=(1,))).startswith("samba.SambaParameter(name: ")


def test_it_is_one_class_over_torch_s() -> None:
    assert SambaTensor.__bases__ == (torch.Tensor,)


def test_memory_is_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        tensor = SambaTensor(torch.ones(2, requires_grad=True), name="x")
        (tensor * 2).sum().backward()
        gone = weakref.ref(tensor)
        del tensor
        assert gone() is None
    finally:
        gc.enable()
