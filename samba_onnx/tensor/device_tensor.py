"""The device side of a SambaTensor: reads and writes of its copy on the RDU."""

from __future__ import annotations

import torch

from samba_onnx.errors import InputError, NoDeviceError, UsageError
from samba_onnx.tensor.device import DEVICE
from samba_onnx.tensor.host_tensor import HostTensor, natively


class DeviceTensor(HostTensor):
    """A tensor with a copy on the device.

    Host and device are separate: nothing below happens unless it is asked for, and every read or
    write is a transfer.
    """

    @property
    def sn_data(self) -> torch.Tensor:
        """A new torch tensor with the values on the device; setting it writes them there.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
            InputError: On setting, if shape or dtype differ.
        """
        return DEVICE.store(self.sn_region_name).read(self.sn_region_name)

    @sn_data.setter
    def sn_data(self, value: torch.Tensor) -> None:
        place = self.sn_region_name
        DEVICE.store(place).write(place, self._transferable(value, "sn_data"))

    @property
    def sn_grad(self) -> torch.Tensor:
        """A new torch tensor with the gradient on the device; setting it writes it there.

        Raises:
            NoDeviceError: The tensor or its gradient has no copy on a device.
            InputError: On setting, if shape or dtype differ.
        """
        return DEVICE.store(self._grad_place()).read(self.sn_grad_name)

    @sn_grad.setter
    def sn_grad(self, value: torch.Tensor) -> None:
        place = self._grad_place()
        DEVICE.store(place).write(place, self._transferable(value, "sn_grad"))

    def rdu(self) -> None:
        """Copy the values, and the gradient if there is one, from the host to the device.

        Values that were not made yet are made now.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
            UsageError: It has neither data nor materializer.
        """
        place = self.sn_region_name
        store = DEVICE.store(place)
        self.materialize_()
        store.write(place, self.data)
        if self.grad is not None and DEVICE.has(self.sn_grad_name):
            store.write(self.sn_grad_name, self.grad)

    def cpu(self, inplace: bool = False) -> None:  # type: ignore[override]  # as documented
        """Copy the values, and the gradient if there is one, from the device to the host.

        Args:
            inplace: Write into the memory that the tensor has. Otherwise it gets new memory.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
        """
        place = self.sn_region_name
        store = DEVICE.store(place)
        self._take(store.read(place), inplace)
        if DEVICE.has(self.sn_grad_name):
            self._take_grad(store.read(self.sn_grad_name), inplace)

    def cpu_(self) -> None:
        """``cpu`` into the memory that the tensor has.

        Raises:
            NoDeviceError: The tensor has no copy on a device.
        """
        self.cpu(inplace=True)

    def _take(self, values: torch.Tensor, inplace: bool) -> None:
        if inplace and self.has_data:
            self.data.copy_(values)
        else:
            self.data = values

    def _take_grad(self, values: torch.Tensor, inplace: bool) -> None:
        grad = self.grad
        if inplace and grad is not None:
            grad.data.copy_(values)
        else:
            self.grad = values

    def _grad_place(self) -> str:
        place = self.sn_grad_name
        if DEVICE.has(place):
            return place
        if not self.requires_grad:
            raise NoDeviceError(
                f"tensor {self.name!r} has no gradient on the device: it does not require gradients"
            )
        if DEVICE.has(self.sn_region_name):
            raise NoDeviceError(
                f"tensor {self.name!r} has no gradient on the device: it was compiled without; give "
                "session.compile an optimizer, and a loss that depends on the tensor"
            )
        return place

    def _transferable(self, value: torch.Tensor, member: str) -> torch.Tensor:
        """A plain tensor of this tensor's shape and dtype."""
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"{member} was given {type(value).__name__}; assign a torch.Tensor")
        if value.shape != self.shape or value.dtype != self.dtype:
            raise InputError(
                f"{member} of tensor {self.name!r} was given shape {tuple(value.shape)}, "
                f"{value.dtype}; it has shape {tuple(self.shape)}, {self.dtype}"
            )
        plain = value.torch_tensor() if isinstance(value, HostTensor) else value
        with natively():
            return plain.detach()
