"""The device side of SambaTensors: reads and writes of their copies on the RDU."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from samba_onnx.errors import InputError, NoDeviceError, ScheduleError, UsageError
from samba_onnx.tensor.device import DeviceConnection
from samba_onnx.tensor.host_writes import HOST_WRITES
from samba_onnx.tensor.native import natively


class Copied(Protocol):
    """A tensor on the host, and the names of its copies on the device."""

    @property
    def name(self) -> str:
        """The name by which errors call the tensor."""
        ...

    @property
    def sn_region_name(self) -> str:
        """The place of its values; empty when it has none."""
        ...

    @property
    def sn_grad_name(self) -> str:
        """The place of its gradient; empty when it has none."""
        ...

    @property
    def shape(self) -> torch.Size:
        """Its shape on the host, which is that on the device."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Its dtype on the host, which is that on the device."""
        ...

    @property
    def requires_grad(self) -> bool:
        """Whether it has a gradient at all."""
        ...

    @property
    def has_data(self) -> bool:
        """Whether it has values on the host."""
        ...

    data: Tensor
    """Its values on the host."""
    grad: Tensor | None
    """Its gradient on the host."""

    def materialize_(self) -> None:
        """Make the values on the host, if there are none."""
        ...


class DeviceSide:
    """Copies between the host and the device; each is one transfer.

    One object serves all tensors of a connection: what a tensor has on the device lies there, and
    here it is only looked up by the tensor's names.
    """

    def __init__(self, connection: DeviceConnection) -> None:
        """Serve the tensors of a connection.

        Args:
            connection: The connection that knows their device, if there is any.
        """
        self._connection = connection

    def read(self, tensor: Copied) -> Tensor:
        """Copy the values to the host.

        Args:
            tensor: The tensor whose values are wanted.

        Returns:
            A new plain tensor of its shape and dtype.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
        """
        place = tensor.sn_region_name
        values = self._connection.store(place).read(place)
        # What computes in another precision than its module has weights of fewer digits.
        rounded = values.dtype is torch.bfloat16 and tensor.dtype is torch.float32
        return values.float() if rounded else values

    def write(self, tensor: Copied, values: Tensor) -> None:
        """Copy values to the device.

        Args:
            tensor: The tensor whose copy gets them.
            values: A plain tensor of its shape and dtype.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
            UsageError: ``values`` is no tensor.
            InputError: Shape or dtype differ.
        """
        place = tensor.sn_region_name
        store = self._connection.store(place)
        store.write(place, _transferable(tensor, values, "sn_data"))

    def has_gradient(self, tensor: Copied) -> bool:
        """Whether there is a copy of the gradient.

        Args:
            tensor: The tensor whose gradient is asked about.
        """
        return self._connection.has(tensor.sn_grad_name)

    def read_gradient(self, tensor: Copied) -> Tensor:
        """Copy the gradient to the host.

        Args:
            tensor: The tensor whose gradient is wanted.

        Returns:
            A new plain tensor of its shape and dtype.

        Raises:
            NoDeviceError: The tensor or its gradient has no copy on a device.
        """
        place = self._gradient_place(tensor)
        return self._connection.store(place).read(place)

    def write_gradient(self, tensor: Copied, gradient: Tensor) -> None:
        """Copy a gradient to the device.

        Args:
            tensor: The tensor whose gradient it becomes.
            gradient: A plain tensor of its shape and dtype.

        Raises:
            NoDeviceError: The tensor or its gradient has no copy on a device.
            UsageError: ``gradient`` is no tensor.
            InputError: Shape or dtype differ.
        """
        place = self._gradient_place(tensor)
        store = self._connection.store(place)
        store.write(place, _transferable(tensor, gradient, "sn_grad"))

    def upload(self, tensor: Copied) -> None:
        """Copy the values, and the gradient if there is one on both sides, to the device.

        Args:
            tensor: The tensor; values that were not made yet are made now.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
            UsageError: It has neither data nor materializer.
        """
        # Asked first: without a device, nothing that may be large is made in vain.
        self._connection.store(tensor.sn_region_name)
        with self._connection.turn:
            tensor.materialize_()
            self.write(tensor, tensor.data)
            if tensor.grad is not None and self.has_gradient(tensor):
                self.write_gradient(tensor, tensor.grad)
        HOST_WRITES.forget(tensor)

    def download(self, tensor: Copied, inplace: bool) -> None:
        """Copy the values, and the gradient if the device has computed one, to the host.

        Args:
            tensor: The tensor. Its gradient on the host stays before the first backward pass.
            inplace: Write into the memory that it has. Otherwise it gets new memory.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
        """
        with self._connection.turn:
            # Both of one moment: no other thread's run comes between.
            values = self.read(tensor)
            gradient = self._computed_gradient(tensor)
        if inplace and tensor.has_data:
            tensor.data.copy_(values)
        else:
            tensor.data = values
        HOST_WRITES.forget(tensor)
        if gradient is not None:
            if inplace and tensor.grad is not None:
                tensor.grad.data.copy_(gradient)
            else:
                tensor.grad = gradient

    def _computed_gradient(self, tensor: Copied) -> Tensor | None:
        """Return the gradient on the device; None if there is none, or no value of it yet."""
        if not self.has_gradient(tensor):
            return None
        try:
            return self.read_gradient(tensor)
        # The device has a place for it, but no backward pass has written there yet.
        except ScheduleError:
            return None

    def _gradient_place(self, tensor: Copied) -> str:
        if self.has_gradient(tensor):
            return tensor.sn_grad_name
        if not tensor.requires_grad:
            raise NoDeviceError(
                f"tensor {tensor.name!r} has no gradient on the device: it does not require "
                "gradients"
            )
        if self._connection.has(tensor.sn_region_name):
            raise NoDeviceError(
                f"tensor {tensor.name!r} has no gradient on the device: it was compiled without; "
                "give session.compile an optimizer, or an input that requires gradients, and a "
                "loss that depends on the tensor"
            )
        return tensor.sn_grad_name


def _transferable(tensor: Copied, value: Tensor, member: str) -> Tensor:
    """A value without history, if it has the tensor's shape and dtype.

    Integers of another width are left to the device, which converts them if they fit.
    """
    if not isinstance(value, Tensor):
        raise UsageError(f"{member} was given {type(value).__name__}; assign a torch.Tensor")
    is_type = value.dtype == tensor.dtype or (_is_integer(value) and _is_integer(tensor))
    if value.shape != tensor.shape or not is_type:
        raise InputError(
            f"{member} of tensor {tensor.name!r} was given shape {tuple(value.shape)}, "
            f"{value.dtype}; it has shape {tuple(tensor.shape)}, {tensor.dtype}"
        )
    with natively():
        return value.detach()


def _is_integer(tensor: Copied | Tensor) -> bool:
    dtype = tensor.dtype
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
