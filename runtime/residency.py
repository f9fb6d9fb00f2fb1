"""Where the current value of every symbol is, and the copies between host and device.

This is the only module that moves data over the link; every copy enters the ledger here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from samba_onnx.pef.manifest import Cause, Direction, Manifest, Symbol, Transfer
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.elements import moved_bytes
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.memory import DeviceMemory

# Beyond, all are forgotten, and runs are recorded anew: no loop may make this grow for ever.
_MOST_STATES = 64
_OVERLAID = frozenset({SymbolKind.ACTIVATION, SymbolKind.CONSTANT})
"""Kinds whose symbols may share a region only because their lives do not overlap."""


class Residency:
    """The current values of one device: on the host, on the device, or both."""

    def __init__(self, manifest: Manifest, memory: DeviceMemory, ledger: Ledger) -> None:
        self._target = manifest.target
        self._memory = memory
        self._ledger = ledger
        self._sharers = sharers(manifest.symbols)
        self._records: dict[tuple[str, int, Direction, Cause, int | None], Transfer] = {}
        self._on_device: set[str] = set()
        self._on_host: dict[str, Any] = {}
        self._states: dict[tuple[frozenset[str], frozenset[str]], object] = {}
        self.state: object | None = None
        """Stands for which values are where; None until :meth:`settle` after a change."""

    def has(self, name: str) -> bool:
        """Return whether a symbol has a value anywhere."""
        return name in self._on_device or name in self._on_host

    def is_on_device(self, name: str) -> bool:
        """Return whether a symbol's current value is in device memory."""
        return name in self._on_device

    def is_on_host(self, name: str) -> bool:
        """Return whether the host has a symbol's current value."""
        return name in self._on_host

    def host_value(self, name: str) -> Any:
        """Return a value that the host has; it must not be shared with the user."""
        return self._on_host[name]

    def settle(self) -> object:
        """Return what stands for which values are where: equal places, the same object."""
        if self.state is None:
            # One object for equal places: whether a replay fits is then seen by comparing two pointers.
            key = frozenset(self._on_device), frozenset(self._on_host)
            if len(self._states) >= _MOST_STATES:
                self._states.clear()
            self.state = self._states.setdefault(key, object())
        return self.state

    def sharers(self, name: str) -> tuple[str, ...]:
        """Return the symbols of a symbol's region, itself included."""
        return (name, *(other for other, _ in self._sharers.get(name, ())))

    def load(self, name: str, array: Any) -> int:
        """Fill a tensor while the PEF is loaded; who does enters that in the ledger.

        Args:
            name: Symbol of that shape and type.
            array: What to copy.

        Returns:
            The number of bytes that were copied.
        """
        tensor = self._memory.whole(name)
        tensor.store(array)
        self.written_on_device((name,))
        return moved_bytes(array, tensor.element)

    def upload(self, name: str, array: Any, cause: Cause, call: int | None) -> None:
        """Copy a host array to the device; what the host has of the symbol stays as it is.

        Args:
            name: Symbol of that shape and type.
            array: What to copy.
            cause: Why.
            call: The call that reads or wrote it; None on request.
        """
        tensor = self._memory.whole(name)
        tensor.store(array)
        size = moved_bytes(array, tensor.element)
        self.enter(name, size, Direction.HOST_TO_RDU, cause, call)
        self._place(name)

    def download(self, name: str, cause: Cause, call: int | None) -> Any:
        """Copy a value from the device.

        Args:
            name: A symbol whose value is on the device.
            cause: Why.
            call: The call that produced it or needs it; None on request.

        Returns:
            A fresh host array.
        """
        tensor = self._memory.whole(name)
        array = tensor.load()
        size = moved_bytes(array, tensor.element)
        self.enter(name, size, Direction.RDU_TO_HOST, cause, call)
        return array

    def written_on_device(self, names: Iterable[str]) -> None:
        """Note that sections wrote these symbols."""
        for name in names:
            self._place(name)
            self._drop(name)

    def written_on_host(self, name: str, value: Any) -> None:
        """Note that a fallback or the user made this value; the array must not be shared."""
        self.keep_on_host(name, value)
        self._leave(name)

    def keep_on_host(self, name: str, value: Any) -> None:
        """Note that the host has the current value, too; the array must not be shared."""
        if name not in self._on_host:
            self.state = None
        self._on_host[name] = value

    def forget(self, names: Iterable[str]) -> None:
        """Note that these symbols have no value any more."""
        for name in names:
            self._leave(name)
            self._drop(name)

    def release_host(self, names: Iterable[str]) -> None:
        """Drop the host's copies of these symbols, to free memory."""
        for name in names:
            self._drop(name)

    def enter(
        self, name: str, size: int, direction: Direction, cause: Cause, call: int | None
    ) -> None:
        """Enter a copy in the ledger; equal copies share one record.

        Args:
            name: Name of the symbol that was copied.
            size: Bytes of the array that was copied. What the manifest says of the symbol is not
                asked: plan and ledger agree because the planner was right.
            direction: From where to where.
            cause: Why.
            call: The call that it was made for; None at load or on request.
        """
        key = (name, size, direction, cause, call)
        record = self._records.get(key)
        if record is None:
            seconds = self._target.transfer_seconds(size)
            record = self._records[key] = Transfer(name, size, direction, cause, seconds, call)
        self._ledger.enter(record)

    def enter_exchange(self, name: str, size: int, steps: int, call: int) -> None:
        """Enter what this RDU sent to others.

        Args:
            name: The value that all have now.
            size: Bytes that were sent.
            steps: Messages that waited for each other.
            call: The call that exchanged.
        """
        seconds = self._target.exchange_seconds(size, steps)
        way = Direction.RDU_TO_RDU
        self._ledger.enter(Transfer(name, size, way, Cause.COLLECTIVE, seconds, call))

    def _place(self, name: str) -> None:
        """Note that a symbol was written on the device, and what that is to its sharers."""
        self._enter(name)
        for other, same in self._sharers.get(name, ()):
            self._drop(other)
            if same:
                self._enter(other)
            else:
                self._leave(other)

    def _enter(self, name: str) -> None:
        if name not in self._on_device:
            self._on_device.add(name)
            self.state = None

    def _leave(self, name: str) -> None:
        if name in self._on_device:
            self._on_device.remove(name)
            self.state = None

    def _drop(self, name: str) -> None:
        if name in self._on_host:
            del self._on_host[name]
            self.state = None


def sharers(symbols: Iterable[Symbol]) -> dict[str, list[tuple[str, bool]]]:
    """Return for every symbol those of its region, and whether they are two names of one value.

    Args:
        symbols: The symbols of a PEF.
    """
    regions: dict[str, list[Symbol]] = {}
    for symbol in symbols:
        if symbol.region:
            regions.setdefault(symbol.region, []).append(symbol)
    return {
        symbol.name: [(other.name, _same(symbol, other)) for other in group if other is not symbol]
        for group in regions.values()
        for symbol in group
    }


def _same(one: Symbol, other: Symbol) -> bool:
    """Whether sharing is meant to show one value under two names.

    So it is with a weight and its update, and with an output of one graph that is an input of
    another one.
    """
    overlaid = one.kind in _OVERLAID or other.kind in _OVERLAID
    return not overlaid and (one.type, one.shape) == (other.type, other.shape)
