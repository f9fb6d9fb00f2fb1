"""SambaTensors as torch itself sees them: memory, history, gradient."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

_DATA: Final[Any] = torch.Tensor.data
_GRAD: Final[Any] = torch.Tensor.grad
_REQUIRES_GRAD: Final[Any] = torch.Tensor.requires_grad

AnyTensor = TypeVar("AnyTensor", bound=Tensor)

natively = torch._C.DisableTorchFunctionSubclass
"""Context in which torch treats SambaTensors as plain ones and returns plain tensors."""


def placeholder(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of any size that takes the memory of one element.

    Args:
        shape: Its shape.
        dtype: Its dtype.
    """
    # With strides of 0 all elements are the only one that there is.
    return torch.zeros((), dtype=dtype).expand(shape)


def is_traced(tensor: Any) -> bool:
    """Whether torch has made a tensor to trace a module with: it has sizes and a type only.

    Such a tensor stays as it is wherever others would be wrapped: a graph knows no names, no copy
    on the device and no class of ours.

    Args:
        tensor: Anything.
    """
    return isinstance(tensor, FakeTensor)


def wrap(cls: type[AnyTensor], tensor: Tensor, requires_grad: bool | None = None) -> AnyTensor:
    """A tensor of a class in the memory of another tensor.

    Args:
        cls: The class of the result.
        tensor: Any tensor.
        requires_grad: True and False make a leaf of its own, which requires gradients or not.
            None keeps the history of a tensor that has one.

    Returns:
        The new tensor; one that is being traced is returned as it is.
    """
    if is_traced(tensor):
        return tensor  # type: ignore[return-value]
    with natively():
        if requires_grad is None:
            if not tensor.is_leaf:
                return tensor.as_subclass(cls)
            requires_grad = tensor.requires_grad
        leaf: AnyTensor = torch.Tensor._make_subclass(cls, tensor, requires_grad)
        return leaf


def plain(tensor: Tensor) -> Tensor:
    """A tensor as a plain one: the same history, and the same memory unless it is sparse.

    Args:
        tensor: Any tensor.
    """
    with natively():
        if tensor.layout != torch.strided:
            # A sparse tensor has no storage that an alias could share.
            return tensor.clone()
        return tensor.as_subclass(Tensor)


def describes_the_same_memory(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors see the same memory in the same way.

    Args:
        one: Any tensor.
        other: A tensor that wraps ``one``; a sparse one cannot have come apart from it.
    """
    with natively():
        if other.layout != torch.strided:
            return True
        # An equal address alone would not do: a view may begin where its tensor does.
        return (
            one.data_ptr() == other.data_ptr()
            and one.shape == other.shape
            and one.dtype == other.dtype
            and one.stride() == other.stride()
        )


def data(tensor: Tensor) -> Tensor:
    """The values of a tensor as a plain tensor without history, in the same memory.

    Args:
        tensor: Any tensor.
    """
    with natively():
        values: Tensor = _DATA.__get__(tensor)
        return values


def set_data(tensor: Tensor, values: Tensor) -> None:
    """Let a tensor have other memory.

    Args:
        tensor: The tensor; it keeps its history, and takes shape and dtype of ``values``.
        values: The tensor whose memory it gets.
    """
    with natively():
        _DATA.__set__(tensor, values)


def gradient(tensor: Tensor) -> Tensor | None:
    """The gradient that autograd has brought to this very tensor; None when there is none.

    Args:
        tensor: Any tensor.
    """
    with natively():
        value: Tensor | None = _GRAD.__get__(tensor)
        return value


def set_gradient(tensor: Tensor, value: Tensor | None) -> None:
    """Set the gradient of this very tensor.

    Args:
        tensor: Any tensor.
        value: A tensor of its shape and dtype, or None for no gradient.
    """
    with natively():
        _GRAD.__set__(tensor, value)


def requires_grad(tensor: Tensor) -> bool:
    """Whether autograd computes gradients for a tensor.

    Args:
        tensor: Any tensor.
    """
    with natively():
        answer: bool = _REQUIRES_GRAD.__get__(tensor)
        return answer


def set_requires_grad(tensor: Tensor, answer: bool) -> None:
    """Set whether autograd computes gradients for a tensor.

    Args:
        tensor: A leaf.
        answer: Whether it does.

    Raises:
        RuntimeError: The tensor is no leaf, or its dtype has no gradients; from torch.
    """
    with natively():
        _REQUIRES_GRAD.__set__(tensor, answer)
