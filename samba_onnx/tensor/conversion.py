"""Between torch tensors and SambaTensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import overload

import torch

from samba_onnx.errors import UsageError
from samba_onnx.tensor.construction import wrapper
from samba_onnx.tensor.marks import marks_of
from samba_onnx.tensor.samba_tensor import SambaTensor


@overload
def from_torch_tensor(
    tensor: torch.Tensor,
    name: str | None = ...,
    batch_dim: int | None = ...,
    named_dims: Iterable[str | None] | None = ...,
    region_name: str | None = ...,
    sized_dims: Iterable[str | None] | None = ...,
) -> SambaTensor: ...


@overload
def from_torch_tensor(
    tensor: None,
    name: str | None = ...,
    batch_dim: int | None = ...,
    named_dims: Iterable[str | None] | None = ...,
    region_name: str | None = ...,
    sized_dims: Iterable[str | None] | None = ...,
) -> None: ...


def from_torch_tensor(
    tensor: torch.Tensor | None,
    name: str | None = None,
    batch_dim: int | None = None,
    named_dims: Iterable[str | None] | None = None,
    region_name: str | None = None,
    sized_dims: Iterable[str | None] | None = None,
) -> SambaTensor | None:
    """Wrap a torch tensor; the two share memory.

    Args:
        tensor: A tensor of any shape and dtype. A SambaTensor is returned as it is, also if it
            has another name; None as None.
        name: Name, unique among the tensors on the device.
        batch_dim: Deprecated; kept, without effect.
        named_dims: Deprecated; kept, without effect.
        region_name: Name of the place in device memory; the tensor's name when None.
        sized_dims: Kept, without effect.

    Returns:
        The SambaTensor.

    Raises:
        UsageError: ``tensor`` is no tensor.
    """
    if tensor is None or isinstance(tensor, SambaTensor):
        return tensor
    if type(tensor) is torch.Tensor:
        # As the constructor does it, without what it does for others: loops wrap each batch.
        result = wrapper(SambaTensor, tensor, None)
        result._marks = marks_of(name, region_name, batch_dim, named_dims, sized_dims)
        return result
    return SambaTensor(
        tensor,
        name=name,
        batch_dim=batch_dim,
        named_dims=named_dims,
        sized_dims=sized_dims,
        region_name=region_name,
    )


from_torch = from_torch_tensor
"""Another name of ``from_torch_tensor``."""

from_torch_tensor_ = from_torch_tensor
"""Another name of ``from_torch_tensor``."""


@overload
def to_torch(obj: torch.Tensor) -> torch.Tensor: ...


@overload
def to_torch(obj: None) -> None: ...


def to_torch(obj: torch.Tensor | None) -> torch.Tensor | None:
    """The torch tensor of a SambaTensor.

    Args:
        obj: A SambaTensor; a torch tensor and None are returned as they are.

    Returns:
        The wrapped tensor; values are made if there are none.

    Raises:
        UsageError: ``obj`` is no tensor, or has neither data nor materializer.
    """
    if isinstance(obj, SambaTensor):
        return obj.torch_tensor()
    # None passes: programs convert optional inputs without looking.
    if obj is not None and not isinstance(obj, torch.Tensor):
        raise UsageError(f"to_torch was given {type(obj).__name__}; it takes a tensor or None")
    return obj


def from_named_dict(tensors: Mapping[str, torch.Tensor]) -> dict[str, SambaTensor]:
    """Wrap tensors, each named by its key.

    Args:
        tensors: Tensors by name. A SambaTensor is taken as it is, with its own name.

    Returns:
        SambaTensors by the same keys.

    Raises:
        UsageError: A value is no tensor.
    """
    return {name: from_torch_tensor(tensor, name=name) for name, tensor in tensors.items()}
