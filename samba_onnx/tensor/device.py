"""The device side of SambaTensors: where their copies on the RDU are read and written."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

import torch

from samba_onnx.errors import NoDeviceError


class DeviceStore(Protocol):
    """Device memory by place.

    A place is a region's name: a tensor's ``sn_region_name``, or the ``sn_grad_name`` of its
    gradient. Every read and every write is one transfer.
    """

    @property
    def turn(self) -> AbstractContextManager[object]:
        """What keeps other threads from using the device while it is entered."""
        ...

    def has(self, place: str) -> bool:
        """Whether the device has this place.

        Args:
            place: Name of a region.
        """
        ...

    def read(self, place: str) -> torch.Tensor:
        """Copy from the device to the host.

        Args:
            place: Name of a region that it has.

        Returns:
            A new tensor in memory that nothing else refers to.
        """
        ...

    def write(self, place: str, tensor: torch.Tensor) -> None:
        """Copy from the host to the device.

        Args:
            place: Name of a region that it has.
            tensor: A plain tensor of the shape and dtype that the device has there.

        Raises:
            InputError: Shape or dtype differ.
        """
        ...


class DeviceConnection:
    """The device that the SambaTensors of this process talk to, if there is one."""

    def __init__(self) -> None:
        self._store: DeviceStore | None = None

    @property
    def attached(self) -> bool:
        """Whether there is a device."""
        return self._store is not None

    def attach(self, store: DeviceStore) -> None:
        """Let tensors read and write this device from now on.

        Args:
            store: The device's memory.
        """
        self._store = store

    def detach(self) -> None:
        """Let tensors have no device."""
        self._store = None

    def store(self, place: str) -> DeviceStore:
        """The device, for a tensor that wants its copy there.

        Args:
            place: Where the tensor's copy is; named in errors.

        Returns:
            The attached device.

        Raises:
            NoDeviceError: The tensor has no name, nothing is attached, or the device that is has
                no such place.
        """
        if not place:
            raise NoDeviceError(
                "a tensor without a name has no copy on the device: give it one, as in "
                "samba.from_torch_tensor(tensor, name='x')"
            )
        # Asked for once: another thread may detach it.
        store = self._store
        if store is None:
            raise NoDeviceError(
                f"tensor {place!r} has no copy on a device: no program is loaded; trace one first"
            )
        if not store.has(place):
            raise NoDeviceError(
                f"tensor {place!r} has no copy on the device: the loaded program has no such tensor"
            )
        return store

    def has(self, place: str) -> bool:
        """Whether a device is attached and has this place.

        Args:
            place: Name of a region.
        """
        store = self._store
        return bool(place) and store is not None and store.has(place)

    @property
    def turn(self) -> AbstractContextManager[object]:
        """What keeps other threads from using the device, for who copies several things at once."""
        store = self._store
        return nullcontext() if store is None else store.turn


DEVICE: Final = DeviceConnection()
"""The connection of this process; the session attaches to it."""

FAST_ACCESS: Final[set[str]] = set()
"""Names of the tensors that use pinned memory."""
