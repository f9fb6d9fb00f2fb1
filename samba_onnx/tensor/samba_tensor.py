"""SambaTensor: what a torch.Tensor is to SambaFlow."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeAlias

import torch
from torch import Tensor

from samba_onnx.tensor import as_value, native, torch_methods
from samba_onnx.tensor.construction import check_origin, empty, wrapper
from samba_onnx.tensor.device import DEVICE, FAST_ACCESS
from samba_onnx.tensor.device_side import DeviceSide
from samba_onnx.tensor.dispatch import call
from samba_onnx.tensor.host_side import HostField, Materializer
from samba_onnx.tensor.host_writes import HOST_WRITES, host_gradient
from samba_onnx.tensor.marks import (
    NO_MARKS,
    DimNames,
    FastAccess,
    Mark,
    Marks,
    anonymous_name,
    marks_of,
    memory_type,
)
from samba_onnx.tensor.torch_methods import ours

# Names that methods of the class below hide.
_bool: TypeAlias = bool
_int: TypeAlias = int
DType: TypeAlias = torch.dtype


class SambaTensor(torch.Tensor):
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

    # The fields work without a constructor: torch's results become SambaTensors by setting their class.
    _marks: Marks = NO_MARKS
    _host = HostField()
    _device: ClassVar[DeviceSide] = DeviceSide(DEVICE)
    _anonymous_name: str = ""
    _repr_name: ClassVar[str] = "SambaTensor"

    def __new__(
        cls,
        torch_tensor: Tensor | None = None,
        shape: Iterable[_int] | None = None,
        dtype: DType | None = None,
        name: str | None = None,
        batch_dim: _int | None = None,
        named_dims: Iterable[str | None] | None = None,
        sized_dims: Iterable[str | None] | None = None,
        materializer: Materializer | None = None,
        is_complex: _bool | None = None,
        region_name: str | None = None,
    ) -> Self:
        """Wrap a tensor, or make an empty one; what is being traced stays a tensor of torch.

        Args:
            torch_tensor: The tensor to wrap, of any shape and dtype.
            shape: Shape of an empty tensor.
            dtype: DType of an empty tensor; torch's default when None.
            name: Name of the tensor, unique among those on the device.
            batch_dim: Deprecated; kept, without effect.
            named_dims: Deprecated; kept, without effect.
            sized_dims: Kept, without effect.
            materializer: Makes the values of an empty tensor when they are needed; the property
                of this name says what it is called with.
            is_complex: Kept, without effect.
            region_name: Name of the place in device memory; the tensor's name when None.

        Raises:
            UsageError: Not exactly one of ``torch_tensor`` and ``shape`` is given, ``dtype`` is
                given with a tensor, or ``torch_tensor`` is no tensor.
        """
        check_origin(cls.__name__, torch_tensor, shape, dtype)
        if isinstance(torch_tensor, SambaTensor):
            if torch_tensor.has_data:
                torch_tensor = torch_tensor.torch_tensor()
            else:
                shape, dtype = torch_tensor.shape, torch_tensor.dtype
                materializer = materializer or torch_tensor.materializer
                torch_tensor = None
        if torch_tensor is None:
            tensor = empty(cls, shape or (), dtype, materializer)
        else:
            tensor = wrapper(cls, torch_tensor, materializer)
        if native.is_traced(tensor):
            return tensor
        tensor._marks = marks_of(name, region_name, batch_dim, named_dims, sized_dims, is_complex)
        return tensor

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[builtins.type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Dispatch a torch function or method; called by torch."""
        if not all(issubclass(kind, SambaTensor) or issubclass(cls, kind) for kind in types):
            return NotImplemented
        return call(SambaTensor, func, args, kwargs or {})

    # Names, places and hints.

    sn_name: Mark[str] = Mark(
        "name", "Name of the tensor, unique among those on the device; empty when it has none."
    )
    sn_region_name: Mark[str] = Mark(
        "region_name",
        """Name of the tensor's place in device memory; ``sn_name`` unless it was given one.

        Tensors with the same region name share memory on the device.
        """,
        read="place",
    )
    sn_grad_name: Mark[str] = Mark(
        "gradient_place",
        "Name of the tensor's gradient; empty when the tensor has no name.",
        read_only=True,
    )
    batch_dim: Mark[_int | None] = Mark(
        "batch_dim", "Which dimension is the batch; deprecated, without effect."
    )
    named_dims: Mark[DimNames] = Mark(
        "named_dims", "Names of the dimensions; deprecated, without effect.", read_only=True
    )
    sized_dims: Mark[DimNames] = Mark(
        "sized_dims", "Names of the sizes that may vary; without effect.", read_only=True
    )
    host_memory: Mark[_bool] = Mark(
        "host_memory", "Whether the device should read the tensor from host memory directly."
    )
    mem_type: Mark[str | None] = Mark(
        "mem_type",
        """Memory that should hold the tensor: ``DDR``, ``HBM``, ``Host``, or None for any.

        Raises:
            UsageError: On setting, if there is no such memory.
        """,
        check=memory_type,
    )

    @property
    def name(self) -> str:
        """``sn_name``, or a made-up name that stays the same as long as the tensor exists."""
        if self._marks.name:
            return self._marks.name
        if not self._anonymous_name:
            self._anonymous_name = anonymous_name()
        return self._anonymous_name

    fast_access = FastAccess(
        """Whether the tensor uses pinned memory.

        Raises:
            UsageError: On setting, if the tensor has no name.
        """
    )

    @staticmethod
    def is_fast_access(name: str) -> _bool:
        """Whether the tensor of a name uses pinned memory.

        Args:
            name: An ``sn_name``.
        """
        return name in FAST_ACCESS

    # On the host.

    @property
    def data(self) -> Tensor:
        """The values as a plain torch tensor without history; setting it replaces them.

        The wrapped torch tensor follows.
        """
        HOST_WRITES.expose(self)
        return native.data(self)

    @data.setter
    def data(self, data: Tensor) -> None:
        HOST_WRITES.expose(self)
        self._host.write(self, data, isinstance(data, SambaTensor) and not data.has_data)

    @property
    def grad(self) -> Tensor | None:
        """Gradient of the wrapped tensor on the host, a plain tensor or None; may be set."""
        return host_gradient(self)

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        self._host.set_gradient(self, native.plain(grad) if isinstance(grad, SambaTensor) else grad)

    @grad.deleter
    def grad(self) -> None:
        self._host.set_gradient(self, None)

    @property
    def requires_grad(self) -> _bool:
        """Whether gradients are computed for this tensor; may be set on a leaf."""
        return native.requires_grad(self)

    @requires_grad.setter
    def requires_grad(self, requires_grad: _bool) -> None:
        self._host.set_requires_grad(self, requires_grad)

    def requires_grad_(self, requires_grad: _bool = True) -> Self:
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
    def has_data(self) -> _bool:
        """Whether the tensor has values on the host."""
        return not self._host.is_empty

    @property
    def materializer(self) -> Materializer | None:
        """Makes the values when they are needed, as a torch.Tensor; may be set.

        It is called with this tensor, and a ``MultithreadedRNG`` if it needs two arguments; or
        with ``shape``, ``dtype`` and ``requires_grad`` if it has parameters of these names.
        """
        return self._host.materializer

    @materializer.setter
    def materializer(self, materializer: Materializer | None) -> None:
        self._host.materializer = materializer

    @property
    def materializer_provided(self) -> _bool:
        """Whether the tensor has a materializer."""
        return self._host.materializer is not None

    def clear_data(self) -> None:
        """Drop the values on the host; shape, dtype, names and materializer stay."""
        self._host.clear(self)

    def materialize_(self) -> None:
        """Make the values if there are none.

        Raises:
            UsageError: There are none and no materializer, or it made something else.
        """
        self._host.materialize(self)

    def torch(self) -> Tensor:
        """The torch tensor that this one wraps: same memory, and part of the same history.

        Raises:
            UsageError: The tensor has no data and no materializer.
        """
        return self._host.torch_tensor(self)

    def torch_tensor(self) -> Tensor:
        """The wrapped torch tensor; a tensor made for the purpose when there is no data.

        Without data, every call makes a new one and this tensor stays empty: two calls differ if
        the materializer draws random values.

        Raises:
            UsageError: The tensor has no data and no materializer.
        """
        return self._host.torch_tensor(self)

    def reusable(self) -> _bool:
        """Whether the memory can be handed to the device as it is: it is contiguous."""
        with native.natively():
            return self.has_data and self.is_contiguous()

    # On the device.

    @property
    def sn_data(self) -> Tensor:
        """A new torch tensor with the values on the device; setting it writes them there.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
            InputError: On setting, if shape or dtype differ.
        """
        return self._device.read(self)

    @sn_data.setter
    def sn_data(self, value: Tensor) -> None:
        self._device.write(self, _plain(value))

    @property
    def sn_grad(self) -> Tensor:
        """A new torch tensor with the gradient on the device; setting it writes it there.

        Raises:
            NoDeviceError: The tensor or its gradient has no copy on a device.
            InputError: On setting, if shape or dtype differ.
        """
        return self._device.read_gradient(self)

    @sn_grad.setter
    def sn_grad(self, value: Tensor) -> None:
        self._device.write_gradient(self, _plain(value))

    def rdu(self) -> None:
        """Copy the values, and the gradient if there is one, from the host to the device.

        Values that were not made yet are made now.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
            UsageError: It has neither data nor materializer.
        """
        self._device.upload(self)
        self._host.note_sent(self)

    def cpu(self, inplace: _bool = False) -> None:  # type: ignore[override]  # as documented
        """Copy the values, and the gradient if there is one, from the device to the host.

        Args:
            inplace: Write into the memory that the tensor has. Otherwise it gets new memory.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
        """
        self._device.download(self, inplace)

    def cpu_(self) -> None:
        """``cpu`` into the memory that the tensor has.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
        """
        self.cpu(inplace=True)

    # As a value of Python.

    __copy__ = as_value.shallow_copy
    __deepcopy__ = as_value.deep_copy
    __reduce_ex__ = as_value.reduce
    __format__ = as_value.formatted
    __repr__ = as_value.described  # type: ignore[assignment]
    _repr_html_ = as_value.table
    _saved = as_value.saved
    _like = as_value.like

    T = property(torch_methods.transposed)
    backward = torch_methods.backward
    __getitem__ = torch_methods.getitem
    __setitem__ = torch_methods.setitem
    new_empty = torch_methods.new_empty  # type: ignore[assignment]
    new_ones = torch_methods.new_ones  # type: ignore[assignment]
    new_zeros = torch_methods.new_zeros  # type: ignore[assignment]
    new_full = torch_methods.new_full  # type: ignore[assignment]
    type = torch_methods.type_or_cast  # type: ignore[assignment]
    type_as = torch_methods.type_as  # type: ignore[assignment]

    # Torch's, by way of the dispatch table; its type information does not know that they give ours.
    clone = ours(Tensor.clone)
    contiguous = ours(Tensor.contiguous)
    detach = ours(Tensor.detach)
    bfloat16 = ours(Tensor.bfloat16)
    bool = ours(Tensor.bool)
    float = ours(Tensor.float)
    int = ours(Tensor.int)
    long = ours(Tensor.long)
    short = ours(Tensor.short)
    to = ours(Tensor.to)
    view_as = ours(Tensor.view_as)
    permute = ours(Tensor.permute)
    reshape = ours(Tensor.reshape)


def _plain(value: Tensor) -> Tensor:
    """A value that is to be copied to the device, as a plain tensor."""
    return value.torch_tensor() if isinstance(value, SambaTensor) else value
