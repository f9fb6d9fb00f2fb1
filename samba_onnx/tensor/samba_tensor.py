"""SambaTensor: what a torch.Tensor is to SambaFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

import torch
from torch import Tensor

from samba_onnx.errors import UsageError
from samba_onnx.tensor.dispatch import call
from samba_onnx.tensor.host_tensor import DType, Materializer, natively, placeholder
from samba_onnx.tensor.marks import Marks, dim_names
from samba_onnx.tensor.typed_tensor import TypedTensor


class SambaTensor(TypedTensor):
    """A torch.Tensor with a name and a copy on the device.

    It shares memory with the tensor that it wraps: what is written through one is seen through the
    other, and gradients that ``backward`` brings to it are the wrapped tensor's. It is itself the
    leaf that ``torch.autograd.grad`` is to be asked about. On the host it computes what torch
    computes; see ``samba_onnx.functional`` for how. The values on the device are separate:
    ``sn_data``, ``sn_grad``, ``rdu()`` and ``cpu()`` copy.

    A tensor made from ``shape`` and ``dtype`` is empty: it takes no memory until its values are
    needed, and then its materializer makes them.

    It pickles as the torch tensor that it wraps, without name.
    """

    def __new__(
        cls,
        torch_tensor: Tensor | None = None,
        shape: Iterable[int] | None = None,
        dtype: DType | None = None,
        name: str | None = None,
        batch_dim: int | None = None,
        named_dims: Iterable[str | None] | None = None,
        sized_dims: Iterable[str | None] | None = None,
        materializer: Materializer | None = None,
        is_complex: bool | None = None,
        region_name: str | None = None,
    ) -> Self:
        """Wrap a tensor, or make an empty one.

        Args:
            torch_tensor: The tensor to wrap, of any shape and dtype.
            shape: Shape of an empty tensor.
            dtype: DType of an empty tensor; torch's default when None.
            name: Name of the tensor, unique among those on the device.
            batch_dim: Deprecated; kept, without effect.
            named_dims: Deprecated; kept, without effect.
            sized_dims: Kept, without effect.
            materializer: Makes the values of an empty tensor when they are needed. It is called
                with the tensor, or with ``shape``, ``dtype`` and ``requires_grad`` if it has
                parameters of these names, and returns a torch.Tensor.
            is_complex: Kept, without effect.
            region_name: Name of the place in device memory; the tensor's name when None.

        Raises:
            UsageError: Not exactly one of ``torch_tensor`` and ``shape`` is given, ``dtype`` is
                given with a tensor, or ``torch_tensor`` is no tensor.
        """
        tensor = cls._made(torch_tensor, shape, dtype)
        tensor._materializer = materializer or tensor._materializer
        tensor._marks = Marks(
            name or "",
            region_name or "",
            batch_dim,
            dim_names(named_dims),
            dim_names(sized_dims),
            is_complex,
        )
        return tensor

    @classmethod
    def _made(cls, tensor: Tensor | None, shape: Iterable[int] | None, dtype: DType | None) -> Self:
        if (tensor is None) == (shape is None):
            raise UsageError(f"{cls.__name__} takes either a tensor or a shape")
        if tensor is None and shape is not None:
            empty = cls._wrap(placeholder(tuple(shape), dtype or torch.get_default_dtype()))
            empty._is_empty = True
            return empty
        if not isinstance(tensor, Tensor):
            raise UsageError(
                f"{cls.__name__} was given {type(tensor).__name__}; wrap a torch.Tensor"
            )
        if dtype is not None:
            raise UsageError(
                f"{cls.__name__} was given a tensor and dtype {dtype}; convert the tensor first"
            )
        if isinstance(tensor, SambaTensor):
            if not tensor.has_data:
                empty = cls._made(None, tensor.shape, tensor.dtype)
                empty._materializer = tensor.materializer
                return empty
            tensor = tensor.torch_tensor()
        wrapped = cls._wrap(tensor)
        wrapped._keep_source(tensor)
        return wrapped

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Dispatch a torch function or method; called by torch."""
        if not all(issubclass(kind, SambaTensor) or issubclass(cls, kind) for kind in types):
            return NotImplemented
        return call(SambaTensor, func, args, kwargs or {})

    @property
    def T(self) -> SambaTensor:  # type: ignore[override]  # noqa: N802  torch's name
        """``samba.t()`` of this tensor: its two dimensions swapped.

        Raises:
            RuntimeError: It has more than two dimensions; from torch.
        """
        transposed: SambaTensor = torch.t(self)  # type: ignore[assignment]
        return transposed

    def __getitem__(self, x: Any) -> SambaTensor:
        """Elements by integers, slices, None, lists, boolean masks and tensors of indices.

        Args:
            x: One of these or a tuple of them. Indices may be whole numbers in floating point.

        Raises:
            UsageError: Indices are not whole numbers.
            IndexError: They are out of range; from torch.
        """
        item: SambaTensor = super().__getitem__(_index(x))  # type: ignore[assignment]
        return item

    def __setitem__(self, x: Any, update: float | Tensor) -> None:
        """Set elements.

        Args:
            x: As of ``__getitem__``.
            update: A number, or a tensor that broadcasts to the selected elements.

        Raises:
            UsageError: Indices are not whole numbers.
            IndexError: They are out of range; from torch.
        """
        super().__setitem__(_index(x), update)

    def new_empty(  # type: ignore[override]  # as documented
        self,
        size: int | Iterable[int],
        *sizes: int,
        dtype: DType | None = None,
        requires_grad: bool = False,
        **options: Any,
    ) -> SambaTensor:
        """A tensor whose values are not set.

        Args:
            size: Its shape, or its first size.
            *sizes: The other sizes, if ``size`` is the first one.
            dtype: Its dtype; this tensor's when None.
            requires_grad: Whether gradients are computed for it.
            **options: What else torch takes.
        """
        options |= {"dtype": dtype, "requires_grad": requires_grad}
        shape = _shape(size, sizes)
        made: SambaTensor = super().new_empty(shape, **options)  # type: ignore[assignment]
        return made

    def new_ones(  # type: ignore[override]  # as documented
        self,
        size: int | Iterable[int],
        *sizes: int,
        dtype: DType | None = None,
        requires_grad: bool = False,
        **options: Any,
    ) -> SambaTensor:
        """A tensor of ones.

        Args:
            size: Its shape, or its first size.
            *sizes: The other sizes, if ``size`` is the first one.
            dtype: Its dtype; this tensor's when None.
            requires_grad: Whether gradients are computed for it.
            **options: What else torch takes.
        """
        options |= {"dtype": dtype, "requires_grad": requires_grad}
        shape = _shape(size, sizes)
        made: SambaTensor = super().new_ones(shape, **options)  # type: ignore[assignment]
        return made

    def new_zeros(  # type: ignore[override]  # as documented
        self,
        size: int | Iterable[int],
        *sizes: int,
        dtype: DType | None = None,
        requires_grad: bool = False,
        **options: Any,
    ) -> SambaTensor:
        """A tensor of zeros.

        Args:
            size: Its shape, or its first size.
            *sizes: The other sizes, if ``size`` is the first one.
            dtype: Its dtype; this tensor's when None.
            requires_grad: Whether gradients are computed for it.
            **options: What else torch takes.
        """
        options |= {"dtype": dtype, "requires_grad": requires_grad}
        shape = _shape(size, sizes)
        made: SambaTensor = super().new_zeros(shape, **options)  # type: ignore[assignment]
        return made

    def new_full(  # type: ignore[override]  # as documented
        self,
        size: Iterable[int],
        fill_value: float,
        dtype: DType | None = None,
        device: torch.device | str | None = None,
        requires_grad: bool = False,
    ) -> SambaTensor:
        """A tensor filled with a value.

        Args:
            size: Its shape.
            fill_value: The value.
            dtype: Its dtype; this tensor's when None.
            device: Without effect.
            requires_grad: Whether gradients are computed for it.
        """
        del device
        full: SambaTensor = super().new_full(  # type: ignore[assignment]
            tuple(size), fill_value, dtype=dtype, requires_grad=requires_grad
        )
        return full

    def type(  # type: ignore[override]  # as documented
        self, dtype: str | DType | None = None, non_blocking: bool = False, **kwargs: Any
    ) -> str | SambaTensor:
        """The tensor's type, or the tensor cast to another.

        Args:
            dtype: The type to cast to; the tensor itself is returned if it has it already.
            non_blocking: Not supported.
            **kwargs: Not supported.

        Returns:
            Without ``dtype``, the name of the tensor's type.

        Raises:
            UsageError: ``non_blocking`` or another keyword is given.
        """
        if non_blocking or kwargs:
            given = ", ".join(["non_blocking"] * non_blocking + sorted(kwargs))
            raise UsageError(f"SambaTensor.type does not support {given}: leave it out")
        if dtype is None:
            name: str = super().type()
            return name
        cast: SambaTensor = super().type(dtype)  # type: ignore[assignment]
        return cast

    def type_as(self, tensor: Tensor) -> SambaTensor:
        """This tensor cast to the dtype of another; itself if it has it already.

        Args:
            tensor: Of the dtype that is wanted.
        """
        cast: SambaTensor = super().type_as(tensor)  # type: ignore[assignment]
        return cast


def _shape(size: int | Iterable[int], sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (size, *sizes) if isinstance(size, int) else (*size, *sizes)


def _index(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(_index(part) for part in x)
    if not isinstance(x, SambaTensor):
        return x
    with natively():
        if not x.is_floating_point():
            return x
        whole = x.long()
        if not torch.equal(whole.to(x.dtype), x.as_subclass(Tensor)):
            raise UsageError("a tensor of indices has values that are not whole numbers")
        return whole
