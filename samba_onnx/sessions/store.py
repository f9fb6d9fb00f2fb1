"""Device memory by place, as SambaTensors see it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from numpy.typing import NDArray

from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.pef.manifest import Manifest, Symbol
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.device import Device
from samba_onnx.sessions.profiler import GET_TENSORS, SET_TENSORS, Profiler
from samba_onnx.tensor.arrays import compiled_array, from_array, to_array


class SessionStore:
    """The memory of one device.

    A place is the name of a symbol, or else of a region; of several symbols in one region it is
    the first.
    """

    def __init__(self, device: Device, manifest: Manifest, profiler: Profiler) -> None:
        """Show a device's memory.

        Args:
            device: The device.
            manifest: The manifest of the PEF that the device has loaded.
            profiler: Measures reads and writes.
        """
        self._device = device
        self._profiler = profiler
        self._places = places(manifest)

    @property
    def turn(self) -> AbstractContextManager[object]:
        """What keeps other threads from using the device while it is entered."""
        return self._device.lock.mutex

    def has(self, place: str) -> bool:
        """Whether the device has this place."""
        return place in self._places

    def read(self, place: str) -> torch.Tensor:
        """Copy from the device to the host.

        Args:
            place: One that the device has.

        Returns:
            A new tensor in memory that nothing else refers to.

        Raises:
            ScheduleError: It has no value now.
        """
        symbol = self._places[place]
        handle = self._profiler.start_event(GET_TENSORS)
        try:
            return from_array(self._device.read(symbol.name))
        finally:
            self._profiler.end_event(handle)

    def write(self, place: str, tensor: torch.Tensor) -> None:
        """Copy from the host to the device.

        Args:
            place: One that the device has.
            tensor: The new value, of the shape and dtype that the device has there; weights of float32 are
                rounded where the program was compiled to have them in bfloat16.

        Raises:
            InputError: Shape or dtype differ.
        """
        symbol = self._places[place]
        handle = self._profiler.start_event(SET_TENSORS)
        try:
            self._device.write(symbol.name, compiled_values(symbol, to_array(tensor)))
        finally:
            self._profiler.end_event(handle)


def compiled_values(symbol: Symbol, array: NDArray[Any]) -> NDArray[Any]:
    """Return values in the type that a program has them in: weights of float32 maybe in bfloat16.

    Args:
        symbol: Where they go.
        array: The values.
    """
    element = tensor_element(symbol.type)
    # Only what persists is stored in another type; inputs must have theirs.
    if element is None or symbol.kind not in (SymbolKind.WEIGHT, SymbolKind.BUFFER):
        return array
    return compiled_array(array, element.numpy)


def places(manifest: Manifest) -> dict[str, Symbol]:
    """Return the symbols in device memory by the names of their places.

    Args:
        manifest: The manifest of a PEF.

    Returns:
        Symbols by their own names; and the first symbol of each region by the region's, which is
        how a buffer is found that a program writes and never reads.
    """
    named: dict[str, Symbol] = {}
    resident = [symbol for symbol in manifest.symbols if symbol.region]
    for symbol in resident:
        # The first one of a region, as `SessionStore` promises.
        named.setdefault(symbol.region, symbol)
    # Own names win: a region may be called as a symbol of another one is.
    return named | {symbol.name: symbol for symbol in resident}
