"""How SambaTensors are made: in the memory of a torch tensor, or empty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from samba_onnx.errors import UsageError
from samba_onnx.tensor import native
from samba_onnx.tensor.host_side import HostSide, Materializer

if TYPE_CHECKING:
    from samba_onnx.tensor.samba_tensor import SambaTensor

AnySambaTensor = TypeVar("AnySambaTensor", bound="SambaTensor")


def check_origin(
    kind: str, tensor: Tensor | None, shape: Iterable[int] | None, dtype: torch.dtype | None
) -> None:
    """Make sure that a tensor can be made of what its constructor was given.

    Args:
        kind: Name of the class; named in errors.
        tensor: The tensor to wrap, or None for an empty one.
        shape: The shape of an empty one, or None.
        dtype: The dtype of an empty one, or None for torch's default.

    Raises:
        UsageError: Not exactly one of ``tensor`` and ``shape`` is there, ``tensor`` is no tensor,
            or there is a dtype besides it.
    """
    if (tensor is None) == (shape is None):
        raise UsageError(f"{kind} takes either a tensor or a shape")
    if tensor is None:
        return
    if not isinstance(tensor, Tensor):
        what = f"{type(tensor).__module__}.{type(tensor).__name__}".removeprefix("builtins.")
        make = "torch.from_numpy(array)" if what == "numpy.ndarray" else "torch.tensor(values)"
        raise UsageError(f"{kind} was given {what}; wrap a torch.Tensor, as {make} makes one")
    if dtype is not None:
        raise UsageError(f"{kind} was given a tensor and dtype {dtype}; convert the tensor first")


def wrapper(
    cls: type[AnySambaTensor], tensor: Tensor, materializer: Materializer | None
) -> AnySambaTensor:
    """A SambaTensor in the memory of another tensor.

    Args:
        cls: The class of the result.
        tensor: A torch tensor of any shape and dtype.
        materializer: A function that makes values again after they were cleared, or None.
    """
    if type(tensor) is Tensor and not tensor.requires_grad:
        # Neither traced nor part of a history: no gradient will arrive.
        leaf: AnySambaTensor = Tensor._make_subclass(cls, tensor, False)
        leaf.__dict__["_host"] = HostSide(tensor, materializer)
        return leaf
    result = native.wrap(cls, tensor)
    if result is tensor:  # It is being traced.
        return result
    # The side goes where ``HostField`` would put one that knows of no tensor.
    host = vars(result)["_host"] = HostSide(tensor, materializer)
    if tensor.requires_grad:
        host.tie(result)
    return result


def empty(
    cls: type[AnySambaTensor],
    shape: Iterable[int],
    dtype: torch.dtype | None,
    materializer: Materializer | None,
) -> AnySambaTensor:
    """A SambaTensor without values.

    Args:
        cls: The class of the result.
        shape: Its shape.
        dtype: Its dtype; torch's default when None.
        materializer: A function that makes the values when they are needed, or None.
    """
    result = native.wrap(cls, native.placeholder(tuple(shape), dtype or torch.get_default_dtype()))
    if native.is_traced(result):
        return result
    vars(result)["_host"] = HostSide(materializer=materializer, is_empty=True)
    return result
