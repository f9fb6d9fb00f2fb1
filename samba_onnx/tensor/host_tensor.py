"""The host side of a SambaTensor: the torch tensor that it wraps, or the promise of one."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor

from samba_onnx.errors import UsageError
from samba_onnx.tensor.marked_tensor import MarkedTensor

DType = torch.dtype
Materializer = Callable[..., Tensor]

_KEYWORDS: Final = frozenset({"shape", "dtype", "requires_grad"})
_NATIVE_DATA: Final[Any] = torch.Tensor.data
_NATIVE_GRAD: Final[Any] = torch.Tensor.grad
_NATIVE_REQUIRES_GRAD: Final[Any] = torch.Tensor.requires_grad

natively = torch._C.DisableTorchFunctionSubclass
"""Context in which torch treats SambaTensors as plain ones and returns plain tensors."""


def placeholder(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of any size that takes the memory of one element.

    Args:
        shape: Its shape.
        dtype: Its dtype.
    """
    return torch.zeros((), dtype=dtype).expand(shape)


class HostTensor(MarkedTensor):
    """A tensor that wraps a torch tensor and shares its memory, or has no data yet."""

    _source: Tensor | None = None
    _materializer: Materializer | None = None
    _is_empty: bool = False
    _is_tied: bool = False
    _repr_name: ClassVar[str] = "SambaTensor"

    @classmethod
    def _wrap(cls, tensor: Tensor, requires_grad: bool | None = None) -> Self:
        """A tensor of this class in the memory of another.

        Args:
            tensor: Any tensor.
            requires_grad: Makes a leaf of its own, which requires gradients or not. None keeps
                the history of a tensor that has one.
        """
        with natively():
            if requires_grad is None:
                if not tensor.is_leaf:
                    return tensor.as_subclass(cls)
                requires_grad = tensor.requires_grad
            wrapped: Self = torch.Tensor._make_subclass(cls, tensor, requires_grad)
            return wrapped

    def _keep_source(self, source: Tensor) -> None:
        """Remember what was wrapped: ``torch()`` returns it, and gradients belong to it."""
        self._source = source
        self._tie()

    def _tie(self) -> None:
        """Hand gradients that arrive here on to the wrapped leaf."""
        source = self._leaf_source()
        with natively():
            if source is None or self._is_tied or not (self.is_leaf and self.requires_grad):
                return
            self.register_post_accumulate_grad_hook(_hand_over)  # type: ignore[no-untyped-call]
            self._is_tied = True

    def _leaf_source(self) -> Tensor | None:
        source = self._source
        return source if source is not None and source.is_leaf else None

    def _plain(self) -> Tensor:
        """This tensor as a plain one: same history, and same memory unless it is sparse."""
        with natively():
            if self.layout != torch.strided:
                # A sparse tensor has no storage that an alias could share.
                return self.clone()
            return self.as_subclass(torch.Tensor)

    def _mirrors(self, source: Tensor) -> bool:
        """Whether the wrapped tensor still describes the same memory in the same way."""
        with natively():
            if self.layout != torch.strided:
                return True
            return (
                source.data_ptr() == self.data_ptr()
                and source.shape == self.shape
                and source.dtype == self.dtype
                and source.stride() == self.stride()
            )

    @property
    def data(self) -> Tensor:
        """The values as a plain torch tensor without history; setting it replaces them.

        The wrapped torch tensor follows.
        """
        with natively():
            tensor: Tensor = _NATIVE_DATA.__get__(self)
            return tensor

    @data.setter
    def data(self, data: Tensor) -> None:
        with natively():
            _NATIVE_DATA.__set__(self, data)
        if self._source is not None:
            self._source.data = self.data
        self._is_empty = isinstance(data, HostTensor) and data._is_empty

    @property
    def grad(self) -> Tensor | None:
        """Gradient of the wrapped tensor on the host, a plain tensor or None; may be set."""
        source = self._leaf_source()
        with natively():
            grad: Tensor | None = _NATIVE_GRAD.__get__(self) if source is None else source.grad
        return grad

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        source = self._leaf_source()
        value = grad._plain() if isinstance(grad, HostTensor) else grad
        with natively():
            if source is None:
                _NATIVE_GRAD.__set__(self, value)
            else:
                source.grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are computed for this tensor; may be set on a leaf."""
        with natively():
            answer: bool = _NATIVE_REQUIRES_GRAD.__get__(self)
            return answer

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        source = self._leaf_source()
        with natively():
            _NATIVE_REQUIRES_GRAD.__set__(self, requires_grad)
            if source is not None:
                source.requires_grad = requires_grad
        self._tie()

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether gradients are computed for this tensor.

        Args:
            requires_grad: Whether they are.

        Returns:
            This tensor.

        Raises:
            RuntimeError: The tensor is not a leaf, or its dtype has no gradients; from torch.
        """
        self.requires_grad = requires_grad
        return self

    @property
    def has_data(self) -> bool:
        """Whether the tensor has values on the host."""
        return not self._is_empty

    @property
    def materializer(self) -> Materializer | None:
        """Makes the values when they are needed: a function of this tensor; may be set."""
        return self._materializer

    @materializer.setter
    def materializer(self, materializer: Materializer | None) -> None:
        self._materializer = materializer

    @property
    def materializer_provided(self) -> bool:
        """Whether the tensor has a materializer."""
        return self._materializer is not None

    def clear_data(self) -> None:
        """Drop the values on the host; shape, dtype, names and materializer stay."""
        self._empty(tuple(self.shape), self.dtype)

    def _empty(self, shape: tuple[int, ...], dtype: DType) -> None:
        self._source = None
        self.data = placeholder(shape, dtype)
        self._is_empty = True

    def materialize_(self) -> None:
        """Make the values if there are none.

        Raises:
            UsageError: There are none and no materializer, or it made something else.
        """
        if self._is_empty:
            self.data = self._materialized()

    def _detached(self) -> Self:
        """An empty tensor like this one, without gradients."""
        other = self._like(placeholder(tuple(self.shape), self.dtype))
        other.requires_grad = False
        return other

    def _allocate(self) -> None:
        """Make room for values that are about to be written."""
        if self._is_empty:
            self.data = torch.empty(self.shape, dtype=self.dtype)

    def _materialized(self) -> Tensor:
        make = self._materializer
        if make is None:
            raise UsageError(
                f"tensor {self.name!r} of shape {tuple(self.shape)} has no data: set its data, or "
                "give it a materializer"
            )
        if inspect.signature(make).parameters.keys() >= _KEYWORDS:
            shape = tuple(self.shape)
            made = make(shape=shape, dtype=self.dtype, requires_grad=self.requires_grad)
        else:
            made = make(self)
        if not isinstance(made, torch.Tensor) or made.shape != self.shape:
            what = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
            raise UsageError(
                f"the materializer of tensor {self.name!r} made {what}; it must make a tensor of "
                f"shape {tuple(self.shape)}"
            )
        with natively():
            return made.detach().to(self.dtype).as_subclass(torch.Tensor)

    def torch(self) -> Tensor:
        """The torch tensor that this one wraps: the same memory, and part of the same history.

        Raises:
            UsageError: The tensor has no data and no materializer.
        """
        return self.torch_tensor()

    def torch_tensor(self) -> Tensor:
        """The wrapped torch tensor; a tensor made for the purpose when there is no data.

        Without data, every call makes a new one and this tensor stays empty: two calls differ if
        the materializer draws random values.

        Raises:
            UsageError: The tensor has no data and no materializer.
        """
        if self._is_empty:
            return self._materialized()
        source = self._source
        return source if source is not None and self._mirrors(source) else self._plain()

    def reusable(self) -> bool:
        """Whether the memory can be handed to the device as it is: it is contiguous."""
        with natively():
            return self.has_data and self.is_contiguous()

    def _like(self, data: Tensor) -> Self:
        """A leaf with other memory and all that this tensor carries besides values."""
        other = self._wrap(data, self.requires_grad)
        other._marks = self._marks
        other._materializer = self._materializer
        other._is_empty = self._is_empty
        return other

    def __copy__(self) -> Self:
        if not self.is_leaf:
            return self._plain().as_subclass(type(self))
        return self._like(self.data)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if id(self) in memo:
            known: Self = memo[id(self)]
            return known
        if self.is_leaf and self._is_empty:
            twin = self._like(placeholder(tuple(self.shape), self.dtype))
        elif self.is_leaf:
            # Through a plain tensor: torch keeps memory that tensors share shared in the copy.
            twin = self._like(copy.deepcopy(self.data, memo))
        else:
            raise RuntimeError(
                "only tensors that are leaves of the graph can be copied deeply: detach() first"
            )
        if self.grad is not None:
            twin.grad = copy.deepcopy(self.grad, memo)
        memo[id(self)] = twin
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a plain tensor, so that ``torch.load`` needs to know nothing of this class."""
        return self._saved().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def _saved(self) -> Tensor:
        tensor = self.torch_tensor()
        with natively():
            return tensor.detach().requires_grad_(self.requires_grad)

    def __format__(self, format_spec: str) -> str:
        """A number for a tensor without dimensions, as torch formats it; else the repr."""
        if self.dim() or self._is_empty:
            return object.__format__(self, format_spec)
        return format(self._plain(), format_spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        plain: Any = self._plain()
        values = "" if self._is_empty else f"{plain.__repr__(tensor_contents=tensor_contents)}\n"
        return (
            f"{values}samba.{self._repr_name}(name: {self.name}, shape: {self.shape}, "
            f"dtype: {self.dtype}, batch_dim: {self.batch_dim}, named_dims: {self.named_dims}, "
            f"keep_data: {self.has_data}, materializer_provided: {self.materializer_provided})"
        )


def _hand_over(tensor: torch.Tensor) -> None:
    """Move a gradient from a wrapper to the leaf that it wraps."""
    source = tensor._leaf_source() if isinstance(tensor, HostTensor) else None
    if source is None:
        return
    with natively():
        arrived = _NATIVE_GRAD.__get__(tensor)
        source.grad = arrived if source.grad is None else source.grad + arrived
        _NATIVE_GRAD.__set__(tensor, None)
