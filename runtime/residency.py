"""Where the current value of every symbol is, and the copies between host and device.

This is the only module that moves data over the link; every copy enters the ledger here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.pef.manifest import (
    Cause,
    Direction,
    Manifest,
    Symbol,
    SymbolKind,
    Transfer,
)

_STATE = frozenset(
    {SymbolKind.WEIGHT, SymbolKind.GRADIENT, SymbolKind.OPTIMIZER_STATE, SymbolKind.BUFFER}
)


class Residency:
    """The current values of one device: on the host, on the device, or both."""

    def __init__(self, manifest: Manifest, memory: DeviceMemory, ledger: Ledger) -> None:
        self._target = manifest.target
        self._memory = memory
        self._ledger = ledger
        self._symbols = {symbol.name: symbol for symbol in manifest.symbols}
        self._sharers = _sharers(manifest.symbols)
        self._records: dict[tuple[str, Direction, Cause, int | None], Transfer] = {}
        self.on_device: set[str] = set()
        """Symbols whose current value is in device memory."""
        self.on_host: dict[str, Any] = {}
        """Current values that the host has; no array is shared with the user."""

    def has(self, name: str) -> bool:
        """Return whether a symbol has a value anywhere."""
        return name in self.on_device or name in self.on_host

    def load(self, name: str, array: Any) -> None:
        """Fill a tensor while the PEF is loaded; the ledger knows of it already."""
        self._memory.tensor(name).store(array)
        self.written_on_device((name,))

    def upload(self, name: str, array: Any, cause: Cause, call: int | None) -> None:
        """Copy a host array to the device.

        Args:
            name: Symbol of that shape and type.
            array: What to copy.
            cause: Why.
            call: The call that reads it; None on request.
        """
        self._memory.tensor(name).store(array)
        self._ledger.enter(self.record(name, Direction.HOST_TO_RDU, cause, call))
        self._displace(name)
        self.on_device.add(name)

    def download(self, name: str, cause: Cause, call: int | None) -> Any:
        """Copy a value from the device.

        Args:
            name: A symbol whose value is on the device.
            cause: Why.
            call: The call that produced it or needs it; None on request.

        Returns:
            A fresh host array.
        """
        array = self._memory.tensor(name).load()
        self._ledger.enter(self.record(name, Direction.RDU_TO_HOST, cause, call))
        return array

    def written_on_device(self, names: Iterable[str]) -> None:
        """Note that sections wrote these symbols."""
        for name in names:
            self._displace(name)
            self.on_device.add(name)
            self.on_host.pop(name, None)

    def written_on_host(self, name: str, value: Any) -> None:
        """Note that a fallback or the user made this value; the array must not be shared."""
        self.on_host[name] = value
        self.on_device.discard(name)

    def forget(self, names: Iterable[str]) -> None:
        """Note that these symbols have no value any more."""
        for name in names:
            self.on_device.discard(name)
            self.on_host.pop(name, None)

    def release_host(self, names: Iterable[str]) -> None:
        """Drop the host's copies of these symbols, to free memory."""
        for name in names:
            self.on_host.pop(name, None)

    def record(self, name: str, direction: Direction, cause: Cause, call: int | None) -> Transfer:
        """Return the record of a copy; equal copies share one."""
        key = (name, direction, cause, call)
        record = self._records.get(key)
        if record is None:
            size = self._symbols[name].bytes or 0
            seconds = self._target.transfer_seconds(size)
            record = Transfer(name, size, direction, cause, seconds, call)
            self._records[key] = record
        return record

    def _displace(self, name: str) -> None:
        """Update the symbols that share the region of a symbol that was just written."""
        for other, same in self._sharers.get(name, ()):
            self.on_host.pop(other, None)
            if same:
                self.on_device.add(other)
            else:
                self.on_device.discard(other)


def _sharers(symbols: Iterable[Symbol]) -> dict[str, list[tuple[str, bool]]]:
    """Return for every symbol those of its region, and whether they are two names of one value."""
    regions: dict[str, list[Symbol]] = {}
    for symbol in symbols:
        if symbol.region:
            regions.setdefault(symbol.region, []).append(symbol)
    return {
        symbol.name: [(other.name, _same(symbol, other)) for other in group if other is not symbol]
        for group in regions.values()
        if len(group) > 1
        for symbol in group
    }


def _same(one: Symbol, other: Symbol) -> bool:
    """Whether sharing is meant to show one value under two names, as a weight and its update.

    Other symbols share a region only because their lives do not overlap.
    """
    state = one.kind in _STATE and other.kind in _STATE
    return state and (one.type, one.shape) == (other.type, other.shape)
