"""The emulated device: loads a PEF, runs its graphs, and accounts for every copy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from samba_onnx.errors import DeviceError, PefChecksumError, ScheduleError
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.pef.lifetimes import Occupancy
from samba_onnx.pef.manifest import Cause
from samba_onnx.pef.reader import Pef
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.runtime.admission import RunValues, check_values
from samba_onnx.runtime.contents import Contents
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.engine.settings import engine_settings
from samba_onnx.runtime.exchanges import Rdu
from samba_onnx.runtime.execution import Execution
from samba_onnx.runtime.inputs import InputSpec, own_copy
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.locking import DeviceLock, Mutex, in_turn, refuse_in_children
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.occupancy import occupancy
from samba_onnx.runtime.plans import RunPlanner
from samba_onnx.runtime.prepared import PreparedRun, PreparedRuns
from samba_onnx.runtime.profile import Profile
from samba_onnx.runtime.reductions import Reductions
from samba_onnx.runtime.registers import Registers
from samba_onnx.runtime.replica_notes import ReplicaNotes
from samba_onnx.runtime.requests import RunRequest, run_request
from samba_onnx.runtime.residency import Residency
from samba_onnx.runtime.selection import SectionIds, SectionTypes
from samba_onnx.runtime.sized_graphs import SizedGraphs

if TYPE_CHECKING:
    from concurrent.futures import Future

_CONSTANT_KINDS = frozenset({SymbolKind.WEIGHT, SymbolKind.CONSTANT})


class Device:
    """An emulated RDU with one PEF loaded.

    Loading reserves device memory, prepares the steps of every graph and enters the copies of weights and constants into
    the ledger; after it the device is ready to run. Use it as a context manager.

    Native code executes the stages, and its crash ends this process: see ``IsolatedDevice``. Any number of threads may use it: what one of them asks for is done in whole before the next one has its turn, and what
    it returns belongs to the caller. A process that was forked from the one that made the device is refused.
    """

    memory: DeviceMemory
    """Device memory with its usage by tier."""
    ledger: Ledger
    """Every copy between host and device."""
    profile: Profile
    """Measured seconds by call; filled when the device times its sections."""
    registers: Registers
    """The argins."""
    reductions: Reductions
    """Combines gradients with those of other replicas, once it has a reducer."""
    runs: PreparedRuns
    """Runs that were made before, for callers that make them many times; they hold ``lock``."""
    lock: DeviceLock
    """Held for as long as something is done; by callers, to do several things in one turn."""

    def __init__(
        self,
        pef: Pef,
        *,
        engine: str = DEFAULT_ENGINE,
        threads: int | None = None,
        prepack: bool = True,
        time_sections: bool = False,
        verify: bool = True,
        mutex: Mutex | None = None,
        custom_ops: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        rdu: Rdu | None = None,
    ) -> None:
        """Load a PEF.

        Args:
            pef: The PEF; it must stay open as long as the device.
            engine: What executes stages: ``onnxruntime``, or ``reference``, which is slow and exact.
            threads: Threads within an operator; one per core when None.
            prepack: Copy weights into the layout that kernels like best; otherwise they stay mapped.
            time_sections: Execute every call on its own and measure it; see ``profile``.
            verify: Compare the checksum of the weights in the background; no result leaves before.
            mutex: Shared with devices that must not work at the same time; None for one of its own.
            custom_ops: Libraries of custom operators for onnxruntime; their code runs in this process.
            rdu: Which of several RDUs it is; None for one that stands alone.

        Raises:
            UsageError: ``threads`` is less than 1, there is no such engine, or it cannot load a library.
            OutOfDeviceMemoryError: The regions do not fit in the target's memory.
            ExecutionError: The engine cannot run a section or fallback.
            PefFormatError: Stages do not agree with the manifest.
            PefChecksumError: The file was replaced while it was loaded.
        """
        settings = engine_settings(threads, prepack=prepack, custom_ops=custom_ops)
        self._verification: Future[None] | None = pef.start_verification() if verify else None
        self._pef, manifest, self._sizes = pef, pef.manifest, SizedGraphs(pef.manifest)
        self.memory = DeviceMemory(manifest.target.tiers, manifest.regions, manifest.symbols)
        self.lock = DeviceLock(mutex)
        self.ledger, self.profile = Ledger(self.lock), Profile(self.lock)
        self._values = Residency(manifest, self.memory, self.ledger)
        self.registers = Registers(manifest, self.memory)
        notes = ReplicaNotes(manifest, self.memory, self.registers)
        self.reductions = Reductions(manifest, self.memory, self._values, self.ledger, notes)
        parts = self._values, self.memory, self.reductions
        self._contents = Contents(pef, self._values, rdu)
        self._contents.load_stored(self.registers)
        self._execution = Execution(self._contents, *parts, self.profile if time_sections else None)
        planner = RunPlanner(pef, self.memory, engine, settings, merge=not time_sections, rdu=rdu)
        self.runs = PreparedRuns(planner, *parts, self.ledger)
        refuse_in_children(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release sessions and values; ledger, profile and memory usage stay readable.

        In a forked process the device of the parent stays as it is.
        """
        if not self.lock.is_foreign:
            self._release()

    @in_turn
    def _release(self) -> None:
        self.runs.close()
        self._values.forget([symbol.name for symbol in self._pef.manifest.symbols])

    @in_turn
    def load(self, values: Mapping[str, Array]) -> None:
        """Copy weights, buffers and optimizer state to the device, as the PEF was loaded with them.

        Each value is one transfer from the host with cause ``weight``, outside any run. A PEF of a torch module has no
        weights inside: load all of them before the first run.

        Args:
            values: Arrays of the compiled dtype and shape, by the names of residents.

        Raises:
            InputError: A value does not fit. The device is unchanged.
            UsageError: There is no such resident. The device is unchanged.
            DeviceError: The device was closed, or is that of a parent process.
        """
        runs = self._open()
        loadable = self._contents.loadable
        checked = {name: loadable(name).check(value) for name, value in values.items()}
        for name in self._contents.in_order(checked):
            self._values.upload(name, checked[name], Cause.WEIGHT, None)
            self._contents.mirror(name, checked[name])
        runs.host_wrote(checked)

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        outputs: str | Sequence[str] | None = None,
        *,
        graph: str | None = None,
        section_ids: SectionIds = None,
        section_types: SectionTypes = None,
        from_call: int | None = None,
        until_call: int | None = None,
        argins: Mapping[str, Any] | None = None,
        detect_anomaly: bool = False,
    ) -> dict[str, Any]:
        """Copy inputs to the device, execute calls, and copy outputs back.

        An input that is not given keeps its last value; one whose region another graph writes has what is there. A
        partial run leaves what it computes on the device, for later runs. After a run of the whole schedule activations
        are not kept: what neighbouring sections pass to each other never leaves their common session. Weights, buffers,
        optimizer state and gradients always stay.

        Args:
            inputs: Values by name: arrays of the compiled dtype and shape; lists for sequences, None for an empty
                optional. One that is left out keeps its last value; one that was never given takes the model's default.
            outputs: Names of graph outputs to return, or one; None for all that the run computes.
            graph: Name of the graph; may be left out when the PEF has one, or one for each of several sizes: the first
                that fits the inputs is taken. They have the model's names.
            section_ids: Execute only sections and fallbacks with these ids, in this order; nested lists are flattened.
                A set is executed in the order of the schedule.
            section_types: Execute only those of these types, as ``FWD``, in any case; in this order, a set in the schedule's.
            from_call: Execute only this call and later ones.
            until_call: Execute only calls before this one.
            argins: Numbers by the names of argins, which keep them for later runs; they may be given among the inputs,
                too. Setting one is no transfer. A spatially mapped graph also takes lists: a number for each mini-batch.
            detect_anomaly: Look for NaN and infinite numbers in what each section and fallback writes; every call then
                runs on its own, and slower.

        Returns:
            Host values by name, in the order asked for; they share no memory with the device.

        Raises:
            InputError: An input or argin does not fit, or was never given. The device is unchanged.
            UsageError: The graph or an output does not exist, an id is no integer, or both ids and
                types are given.
            ScheduleError: A section, type or call does not exist, or a call would read a value that nothing has loaded or
                computed. The device is unchanged.
            AnomalyError: ``detect_anomaly`` found something; names the first section and value.
            ExecutionError: An operator failed; activations and outputs have no reliable values.
            PefChecksumError: A weight differs from what was written.
            DeviceError: The device was closed, or is that of a parent process.
        """
        sized = self._sizes.chosen(graph, inputs or {}) if self._sizes else None
        if sized:
            graph, inputs, outputs = sized.name, sized.inward(inputs or {}), sized.symbols(outputs)
        request = run_request(
            graph,
            inputs,
            outputs,
            section_ids=section_ids,
            section_types=section_types,
            from_call=from_call,
            until_call=until_call,
            single=detect_anomaly,
        )
        with self.lock.mutex:
            results = self._run(self.runs.prepare(request), inputs or {}, argins)
        return sized.outward(results) if sized else results

    @in_turn
    def prepare(self, request: RunRequest) -> PreparedRun:
        """Return what a request executes; nothing is copied or executed.

        Args:
            request: What is asked for.

        Raises:
            UsageError: The graph or an output does not exist, an id is no integer, or both ids and
                types are given.
            ScheduleError: A section, type or call does not exist.
            ExecutionError: The engine cannot run a section or fallback.
            DeviceError: The device was closed, or is that of a parent process.
        """
        return self._open().prepare(request)

    def execute(
        self,
        prepared: PreparedRun,
        inputs: Mapping[str, Any],
        argins: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make a prepared run.

        Args:
            prepared: From :meth:`prepare` of this device.
            inputs: A value for every input that its request names.
            argins: Numbers by the names of argins; see :meth:`run`.

        Returns:
            Host values by name, in the order asked for.

        Raises:
            InputError: As :meth:`run`, like the following.
            ScheduleError: A call would read a value that nothing has loaded or computed.
            AnomalyError: A section wrote NaN or an infinite number, and every call runs on its own.
            ExecutionError: An operator failed.
            PefChecksumError: A weight differs from what was written.
            DeviceError: The device was closed, or is that of a parent process.
        """
        with self.lock.mutex:
            return self._run(prepared, inputs, argins)

    def _run(
        self, prepared: PreparedRun, inputs: Mapping[str, Any], argins: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Make a prepared run: what it is given is checked, and what its plan proves unchanged is skipped."""
        self.runs.check_open()
        values = check_values(self._contents, self.registers, prepared.plan, inputs, argins)
        replay = prepared.replay
        # Asked now: code of the user's that numpy makes arrays of may run the device, too.
        if (
            replay is not None
            and prepared.state is self._values.state
            and replay.inputs == tuple(values.inputs)
        ):
            self.registers.set(values.argins)
            return replay.run(values.inputs.values())
        return self._execute(prepared, values)

    def _execute(self, prepared: PreparedRun, values: RunValues) -> dict[str, Any]:
        """Make a run of which nothing is known yet, and keep it for the next time."""
        runs, state = self._open(), self._values.state
        plan, names = prepared.plan, prepared.outputs
        inputs = self._contents.with_defaults(plan.specs, values.inputs)
        plan.check_available(self._values, names, inputs)
        self.reductions.admit(plan.reductions, prepared.request.reduction)
        self.ledger.begin_run()
        self.registers.set(values.argins)
        for name, value in inputs.items():
            self._execution.take_input(plan.schedule, name, value)
        try:
            self._execution.execute_all(plan, values.series, self.registers, prepared.request)
            self._join_verification()
            results = {name: self._execution.fetch(plan, name) for name in names}
        finally:
            self._values.release_host(plan.host_residents)
        self._values.release_host(plan.results if plan.whole else ())
        runs.keep(prepared, tuple(inputs), state)
        return results

    @in_turn
    def write(self, symbol: str, array: Array) -> None:
        """Copy a host array to a symbol on the device; an ``explicit`` transfer.

        Symbols of the same region, type and shape then have that value, too, activations excepted.

        Args:
            symbol: Any symbol in device memory that is no initializer of a section; an argin is set without a transfer.
            array: The new value, of the symbol's dtype and shape.

        Raises:
            UsageError: There is no such symbol.
            InputError: The array does not fit.
            DeviceError: The symbol is not in device memory or read-only, the device was closed, or is a parent's.
        """
        runs = self._open()
        entry = self._contents.symbol(symbol)
        if symbol in self.registers:
            self.registers.set(self.registers.check({symbol: array}))
            return
        checked = InputSpec(entry).check(array)
        if not entry.region:
            raise DeviceError(f"symbol {symbol!r} lives on the host only; it cannot be written")
        if any(symbol in stage.weights for stage in self._pef.manifest.stages().values()):
            raise DeviceError(
                f"symbol {symbol!r} is read-only: its value is compiled into sections"
            )
        self._values.upload(symbol, checked, Cause.EXPLICIT, None)
        self._values.release_host((symbol,))
        self._contents.mirror(symbol, checked)
        if any(symbol in graph.inputs for graph in self._pef.manifest.graphs):
            self._values.keep_on_host(symbol, own_copy(checked))
        runs.host_wrote((symbol,))

    @in_turn
    def read(self, symbol: str) -> Any:
        """Copy a symbol from the device; an ``explicit`` transfer.

        Args:
            symbol: Any symbol that has a value. Reading an argin is no transfer.

        Returns:
            A fresh host array.

        Raises:
            UsageError: There is no such symbol.
            ScheduleError: It has no value on the device now.
            PefChecksumError: A weight differs from what was written.
            DeviceError: The symbol lives on the host only, the device was closed, or is
                that of a parent process.
        """
        self._open()
        entry = self._contents.symbol(symbol)
        self._join_verification()
        if symbol in self.registers:
            return own_copy(self._values.host_value(symbol))
        if not entry.region:
            raise DeviceError(f"symbol {symbol!r} lives on the host only; ask run() for it")
        if self._values.is_on_device(symbol):
            return self._values.download(symbol, Cause.EXPLICIT, None)
        self._contents.refuse_unloaded(entry)
        if entry.kind in _CONSTANT_KINDS:
            return self._contents.read_constant(symbol)
        raise ScheduleError(
            f"symbol {symbol!r} has no value on the device; run the section that computes it first "
            "(values between merged sections are not kept: select the sections, or use "
            "time_sections)"
        )

    @in_turn
    def occupancy(self) -> Occupancy:
        """Return the bytes of device memory that hold values now, by tier and kind."""
        return occupancy(self._pef.manifest, self.memory, self._values, self._contents.loaded)

    def _open(self) -> PreparedRuns:
        self.runs.check_open()
        return self.runs

    def _join_verification(self) -> None:
        if self._verification is None:
            return
        try:
            self._verification.result()
        except PefChecksumError as error:
            # A fresh one each time: an exception that is raised again grows its traceback.
            raise PefChecksumError(str(error)) from None
        self._verification = None
