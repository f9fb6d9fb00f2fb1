"""The host side alone: whose memory values are in, and how they are made."""

from __future__ import annotations

import pytest
import torch

from samba_onnx.errors import UsageError
from samba_onnx.tensor.host_side import HostField, HostSide
from samba_onnx.tensor.native import placeholder, wrap


def _pair(requires_grad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor, and another in its memory that stands for its wrapper."""
    source = torch.zeros(2, requires_grad=requires_grad)
    return source, wrap(torch.Tensor, source, requires_grad)


def test_the_wrapped_tensor_is_returned_as_long_as_the_memory_is_one() -> None:
    source, tensor = _pair()
    host = HostSide(source)
    assert host.torch_tensor(tensor) is source
    host.write(tensor, torch.ones(2))
    assert host.torch_tensor(tensor) is source
    assert source.tolist() == [1.0, 1.0]
    source.data = torch.full((2,), 5.0)
    assert host.torch_tensor(tensor) is not source
    assert host.torch_tensor(tensor).tolist() == [1.0, 1.0]
    assert HostSide().torch_tensor(tensor).data_ptr() == tensor.data_ptr()


def test_a_gradient_is_handed_on_to_the_wrapped_leaf() -> None:
    source, tensor = _pair(requires_grad=True)
    host = HostSide(source)
    host.tie(tensor)
    host.tie(tensor)
    for _ in range(2):
        (tensor * 3).sum().backward()
    assert tensor.grad is None
    assert source.grad is not None
    assert source.grad.tolist() == [6.0, 6.0]
    assert host.gradient(tensor) is source.grad
    host.set_gradient(tensor, None)
    assert source.grad is None


def test_a_tensor_of_its_own_keeps_its_gradient() -> None:
    tensor = torch.zeros(2)
    host = HostSide()
    host.set_requires_grad(tensor, True)
    (tensor * 3).sum().backward()
    gradient = host.gradient(tensor)
    assert gradient is not None
    assert gradient is tensor.grad


def test_gradients_that_are_switched_on_later_reach_the_wrapped_leaf() -> None:
    source, tensor = _pair()
    host = HostSide(source)
    host.tie(tensor)
    host.set_requires_grad(tensor, True)
    assert source.requires_grad
    (tensor * 3).sum().backward()
    assert source.grad is not None


def test_values_are_dropped_and_made_again() -> None:
    source, tensor = _pair()
    host = HostSide(source, materializer=lambda tensor: torch.full(tensor.shape, 7.0))
    host.clear(tensor)
    assert host.is_empty
    assert host.source is None
    assert source.tolist() == [0.0, 0.0]
    assert tensor.shape == (2,)
    assert host.torch_tensor(tensor).tolist() == [7.0, 7.0]
    assert host.is_empty
    host.materialize(tensor)
    assert not host.is_empty
    assert tensor.tolist() == [7.0, 7.0]


def test_room_is_made_for_values_that_are_about_to_be_written() -> None:
    tensor = placeholder((2, 3), torch.float32)
    host = HostSide(is_empty=True)
    host.allocate(tensor)
    assert not host.is_empty
    assert tensor.is_contiguous()


def test_without_materializer_there_are_no_values() -> None:
    host = HostSide(is_empty=True)
    with pytest.raises(UsageError, match=r"of shape \(2,\) has no data"):
        host.materialize(placeholder((2,), torch.float32))


def test_every_tensor_gets_a_side_of_its_own_when_it_is_asked_for() -> None:
    class Fielded:
        _host = HostField()

    one, other = Fielded(), Fielded()
    assert "_host" not in vars(one)
    assert one._host is one._host
    assert one._host is not other._host
