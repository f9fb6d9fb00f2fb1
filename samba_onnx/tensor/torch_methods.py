"""Methods of torch that SambaFlow documents with a signature of its own.

Each is a function whose first argument is the tensor; ``SambaTensor`` lists them as its methods.
They compute nothing: they check and reorder arguments, and call torch's method of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from samba_onnx.errors import UsageError
from samba_onnx.tensor.marks import Marked
from samba_onnx.tensor.native import natively

if TYPE_CHECKING:
    from samba_onnx.tensor.samba_tensor import SambaTensor


def ours(method: Callable[..., Tensor]) -> Callable[..., SambaTensor]:
    """A method of torch as it is, for type checkers one that gives a SambaTensor.

    Args:
        method: A method of ``torch.Tensor``; the dispatch table decides what it gives.
    """
    return cast("Callable[..., SambaTensor]", method)


def transposed(self: SambaTensor) -> SambaTensor:
    """``samba.t()`` of this tensor: its two dimensions swapped.

    Args:
        self: The tensor.

    Raises:
        RuntimeError: It has more than two dimensions; from torch.
    """
    return cast("SambaTensor", torch.t(self))


def getitem(self: SambaTensor, x: Any) -> SambaTensor:
    """Elements by integers, slices, None, lists, boolean masks and tensors of indices.

    Args:
        self: The tensor.
        x: One of these, or a tuple of them. Indices may be whole numbers in floating point.

    Raises:
        UsageError: Indices are not whole numbers.
        IndexError: They are out of range; from torch.
    """
    return cast("SambaTensor", Tensor.__getitem__(self, _index(x)))


def setitem(self: SambaTensor, x: Any, update: float | Tensor) -> None:
    """Set elements.

    Args:
        self: The tensor.
        x: Indices of the elements, in any form that ``__getitem__`` takes.
        update: A number, or a tensor that broadcasts to the selected elements.

    Raises:
        UsageError: Indices are not whole numbers.
        IndexError: They are out of range; from torch.
    """
    Tensor.__setitem__(self, _index(x), update)


def backward(
    self: SambaTensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Compute gradients on the host, of what the model itself computed there.

    Args:
        self: A tensor that was computed of parameters.
        gradient: Gradient of the tensor; None for one of a single element.
        retain_graph: Keep what another call will need; ``create_graph`` when None.
        create_graph: Whether gradients can be differentiated in turn.
        inputs: Leaves to compute gradients of; None for all.

    Raises:
        UsageError: The tensor was computed on the device, or of no parameter.
    """
    if not self.requires_grad:
        raise UsageError(
            f"backward() of tensor {self.name!r}, which was not computed of parameters on the host, as "
            "results of samba.session.run and traced tensors are not. The device computes gradients "
            "by section type BCKWD, which runs without section_types have: leave backward() out; or "
            "call it on the loss that the model itself returns on the host"
        )
    Tensor.backward(self, gradient, retain_graph, create_graph, inputs)  # type: ignore[no-untyped-call]


def new_empty(
    self: SambaTensor,
    size: int | Iterable[int],
    *sizes: int,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    **options: Any,
) -> SambaTensor:
    """A tensor whose values are not set.

    Args:
        self: The tensor whose dtype it has by default.
        size: Its shape, or its first size.
        *sizes: The other sizes, if ``size`` is the first one.
        dtype: Its dtype; that of ``self`` when None.
        requires_grad: Whether gradients are computed for it.
        **options: Other keywords of torch's method.
    """
    options |= {"dtype": dtype, "requires_grad": requires_grad}
    return cast("SambaTensor", Tensor.new_empty(self, _shape(size, sizes), **options))


def new_ones(
    self: SambaTensor,
    size: int | Iterable[int],
    *sizes: int,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    **options: Any,
) -> SambaTensor:
    """A tensor of ones.

    Args:
        self: The tensor whose dtype it has by default.
        size: Its shape, or its first size.
        *sizes: The other sizes, if ``size`` is the first one.
        dtype: Its dtype; that of ``self`` when None.
        requires_grad: Whether gradients are computed for it.
        **options: Other keywords of torch's method.
    """
    options |= {"dtype": dtype, "requires_grad": requires_grad}
    return cast("SambaTensor", Tensor.new_ones(self, _shape(size, sizes), **options))


def new_zeros(
    self: SambaTensor,
    size: int | Iterable[int],
    *sizes: int,
    dtype: torch.dtype | None = None,
    requires_grad: bool = False,
    **options: Any,
) -> SambaTensor:
    """A tensor of zeros.

    Args:
        self: The tensor whose dtype it has by default.
        size: Its shape, or its first size.
        *sizes: The other sizes, if ``size`` is the first one.
        dtype: Its dtype; that of ``self`` when None.
        requires_grad: Whether gradients are computed for it.
        **options: Other keywords of torch's method.
    """
    options |= {"dtype": dtype, "requires_grad": requires_grad}
    return cast("SambaTensor", Tensor.new_zeros(self, _shape(size, sizes), **options))


def new_full(
    self: SambaTensor,
    size: Iterable[int],
    fill_value: float,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    requires_grad: bool = False,
) -> SambaTensor:
    """A tensor filled with a value.

    Args:
        self: The tensor whose dtype it has by default.
        size: Its shape.
        fill_value: The value.
        dtype: Its dtype; that of ``self`` when None.
        device: Without effect.
        requires_grad: Whether gradients are computed for it.
    """
    del device
    options: Any = {"dtype": dtype, "requires_grad": requires_grad}
    return cast("SambaTensor", Tensor.new_full(self, tuple(size), fill_value, **options))


def type_or_cast(
    self: SambaTensor,
    dtype: str | torch.dtype | None = None,
    non_blocking: bool = False,
    **kwargs: Any,
) -> str | SambaTensor:
    """The tensor's type, or the tensor cast to another.

    Args:
        self: The tensor.
        dtype: The type to cast to; the tensor itself is returned if it has it already.
        non_blocking: Not supported.
        **kwargs: Not supported.

    Returns:
        Without ``dtype``, the name of the tensor's type.

    Raises:
        UsageError: ``non_blocking`` or another keyword is given.
    """
    if non_blocking or kwargs:
        refused = ", ".join(["non_blocking"] * non_blocking + sorted(kwargs))
        raise UsageError(f"SambaTensor.type does not support {refused}: leave it out")
    if dtype is None:
        with natively():  # which needs no values of an empty tensor
            return Tensor.type(self)
    return cast("SambaTensor", Tensor.type(self, dtype))


def type_as(self: SambaTensor, tensor: Tensor) -> SambaTensor:
    """This tensor cast to the dtype of another; itself if it has it already.

    Args:
        self: The tensor.
        tensor: A tensor of the dtype that is wanted.
    """
    return cast("SambaTensor", Tensor.type_as(self, tensor))


def _shape(size: int | Iterable[int], sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (size, *sizes) if isinstance(size, int) else (*size, *sizes)


def _index(x: Any) -> Any:
    """An index as torch takes it: whole numbers in floating point become integers."""
    if isinstance(x, tuple):
        return tuple(_index(part) for part in x)
    if not isinstance(x, Tensor) or not isinstance(x, Marked):
        return x
    with natively():
        if not x.is_floating_point():
            return x
        # Indices that were computed may be floating point: whole numbers are taken for what they
        # mean, and anything else is a mistake.
        whole = x.long()
        if not torch.equal(whole.to(x.dtype), x.as_subclass(Tensor)):
            raise UsageError("a tensor of indices has values that are not whole numbers")
        return whole
