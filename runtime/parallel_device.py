"""Several emulated RDUs that execute one program together, each with memory and ledger of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from samba_onnx.errors import LostRduError, UsageError
from samba_onnx.pef.lifetimes import Occupancy
from samba_onnx.pef.manifest import Symbol
from samba_onnx.pef.reader import Pef
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.exchanges import Exchange, Rdu
from samba_onnx.runtime.inputs import InputSpec
from samba_onnx.runtime.locking import DeviceLock, Mutex, refuse_in_children
from samba_onnx.runtime.prepared import PreparedRun, PreparedRuns
from samba_onnx.runtime.requests import RunRequest
from samba_onnx.runtime.shards import assembled, shard_of

__all__ = ["ParallelDevice", "open_device"]

Result = TypeVar("Result")

_CORES: Final = os.cpu_count() or 1


class ParallelDevice(Device):
    """All emulated RDUs that a PEF was compiled for.

    It is used as a :class:`Device` is: values are given and returned whole, and each RDU gets its shards.
    Every RDU executes in a thread of its own; where the schedule has an exchange, all of them meet. Ledger,
    memory, profile and registers are those of the first RDU: the others copy, use and have as much.
    """

    devices: tuple[Device, ...]
    """The RDUs, in their order."""

    def __init__(
        self, pef: Pef, *, threads: int | None = None, mutex: Mutex | None = None, **options: Any
    ) -> None:
        """Load a PEF onto all RDUs.

        Args:
            pef: The PEF; it must stay open as long as the device.
            threads: Threads within an operator, on each RDU; all cores shared between them when None.
            mutex: Shared with devices that must not work at the same time; None for one of its own.
            **options: As :class:`Device` takes them.

        Raises:
            UsageError: The PEF is for one RDU, or an option cannot be used.
            OutOfDeviceMemoryError: The regions of an RDU do not fit in its memory.
            ExecutionError: The engine cannot run a section or fallback.
            PefFormatError: Stages do not agree with the manifest.
            PefChecksumError: The file was replaced while it was loaded.
        """
        parallel = pef.manifest.parallel
        if parallel is None:
            raise UsageError("the PEF was compiled for one RDU: load it onto a Device")
        self.lock = DeviceLock(mutex)
        self._exchange = Exchange(parallel.rdus)
        self._symbols = {symbol.name: symbol for symbol in pef.manifest.symbols}
        own = max(1, _CORES // parallel.rdus) if threads is None else threads
        self.devices = tuple(
            Device(pef, threads=own, rdu=Rdu(number, self._exchange), **options)
            for number in range(parallel.rdus)
        )
        first = self.devices[0]
        self.ledger, self.memory, self.profile = first.ledger, first.memory, first.profile
        self.registers, self.reductions, self.runs = first.registers, first.reductions, _NoReplays()
        self._pool = ThreadPoolExecutor(parallel.rdus, thread_name_prefix="rdu")
        refuse_in_children(self)

    def close(self) -> None:
        """Release sessions and values of all RDUs."""
        for device in self.devices:
            device.close()
        self._pool.shutdown()

    def occupancy(self) -> Occupancy:
        """Return the bytes of the first RDU's memory that hold values now, by tier and kind."""
        return self.devices[0].occupancy()

    def load(self, values: Mapping[str, Array]) -> None:
        """Copy weights, buffers and optimizer state to the RDUs, to each what it holds of them.

        Args:
            values: Whole arrays of the compiled dtype, by the names of residents.

        Raises:
            InputError: A value does not fit. The device is unchanged.
            UsageError: There is no such resident. The device is unchanged.
            DeviceError: The device was closed.
        """
        whole = {name: self._checked(name, value) for name, value in values.items()}
        self._all(lambda number, device: device.load(self._shards(whole, number)))

    def prepare(self, request: RunRequest) -> PreparedRun:
        """Return what a request executes on the first RDU; the others execute the same.

        Args:
            request: What is asked for.

        Raises:
            SambaError: As :meth:`Device.prepare` raises it.
        """
        return self._all(lambda number, device: device.prepare(request))[0]

    def execute(
        self,
        prepared: PreparedRun,
        inputs: Mapping[str, Any],
        argins: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make a prepared run on all RDUs.

        Args:
            prepared: From :meth:`prepare` of this device.
            inputs: A whole value for every input that its request names.
            argins: Numbers by the names of argins.

        Returns:
            Whole host values by name, in the order asked for.

        Raises:
            SambaError: As :meth:`Device.execute` raises it.
        """
        whole = {name: self._checked(name, value) for name, value in inputs.items()}
        request = prepared.request

        def one(number: int, device: Device) -> dict[str, Any]:
            return device.execute(device.prepare(request), self._shards(whole, number), argins)

        return self._joined(self._all(one))

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Copy inputs to the RDUs, execute calls on all of them, and put the outputs together.

        Args:
            inputs: Whole values by name.
            outputs: Names of graph outputs to return; None for all that the run computes.
            **options: As :meth:`Device.run` takes them.

        Returns:
            Whole host values by name, in the order asked for.

        Raises:
            SambaError: As :meth:`Device.run` raises it.
        """
        whole = {name: self._checked(name, value) for name, value in (inputs or {}).items()}

        def one(number: int, device: Device) -> dict[str, Any]:
            return device.run(self._shards(whole, number), outputs, **options)

        return self._joined(self._all(one))

    def _joined(self, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Put the outputs of all RDUs together."""
        return {
            name: self._assembled(name, [each[name] for each in results]) for name in results[0]
        }

    def read(self, symbol: str) -> Any:
        """Copy a symbol from the RDUs, of each what it holds.

        Args:
            symbol: Any symbol that has a value.

        Returns:
            A fresh whole host array.

        Raises:
            SambaError: As :meth:`Device.read` raises it.
        """
        shards = self._all(lambda number, device: device.read(symbol))
        return self._assembled(symbol, shards)

    def write(self, symbol: str, array: Array) -> None:
        """Copy a whole host array to a symbol on the RDUs, to each what it holds.

        Args:
            symbol: As :meth:`Device.write` takes it.
            array: The new value.

        Raises:
            SambaError: As :meth:`Device.write` raises it.
        """
        whole = {symbol: self._checked(symbol, array)}
        self._all(lambda number, device: device.write(symbol, self._shards(whole, number)[symbol]))

    def _all(self, work: Callable[[int, Device], Result]) -> list[Result]:
        """Let every RDU do something at the same time, and return what each of them returned."""

        def one(number: int) -> Result:
            try:
                return work(number, self.devices[number])
            # Otherwise the others would wait at the next exchange for ever.
            except BaseException:
                self._exchange.give_up()
                raise

        with self.lock.mutex:
            futures = [self._pool.submit(one, number) for number in range(len(self.devices))]
            # Asked of every one, and so waited for: an exchange is renewed when nobody is in it.
            failures = [each for each in map(Future.exception, futures) if each is not None]
            if failures:
                self._exchange.renew()
        if failures:
            # A lost RDU only says that another one failed. What that one says is the reason.
            own = [failure for failure in failures if not isinstance(failure, LostRduError)]
            raise (own or failures)[0]
        return [future.result() for future in futures]

    def _symbol(self, name: str) -> Symbol | None:
        return self._symbols.get(name)

    def _checked(self, name: str, value: Any) -> Any:
        """Check a value of which RDUs get shards; others are checked by each of them."""
        symbol = self._symbol(name)
        if symbol is None or symbol.sharded is None:
            return value
        return InputSpec(symbol.whole()).check(value)

    def _shards(self, values: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return what one RDU gets of values."""
        shards = {}
        for name, value in values.items():
            symbol = self._symbol(name)
            sharded = None if symbol is None else symbol.sharded
            shards[name] = shard_of(value, sharded, number)
        return shards

    def _assembled(self, name: str, shards: Sequence[Any]) -> Any:
        symbol = self._symbol(name)
        return assembled(shards, None if symbol is None else symbol.sharded)


class _NoReplays(PreparedRuns):
    """The prepared runs of several RDUs, each of which keeps its own."""

    def __init__(self) -> None:
        """Begin with none, and stay so."""
        self._runs = {}

    def ready(self, request: tuple[Hashable, ...]) -> PreparedRun | None:
        """Return None: each RDU replays its own run.

        Args:
            request: Any.
        """
        return None


def open_device(pef: Pef, **options: Any) -> Device:
    """Load a PEF onto as many RDUs as it was compiled for.

    Args:
        pef: The PEF; it must stay open as long as the device.
        **options: As :class:`Device` takes them.

    Raises:
        SambaError: As :class:`Device` raises it.
    """
    return (
        Device(pef, **options) if pef.manifest.parallel is None else ParallelDevice(pef, **options)
    )
