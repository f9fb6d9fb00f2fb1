"""The emulated device: loads a PEF, runs its graphs, and accounts for every copy."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from samba_onnx.errors import DeviceError, PefChecksumError, ScheduleError, UsageError
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.executor import DeviceStep, SessionSettings, initializer
from samba_onnx.runtime.inputs import InputSpec, check_inputs, own_copy
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.pef.manifest import Cause, Direction, Section, Symbol, SymbolKind
from samba_onnx.runtime.pef.reader import Pef
from samba_onnx.runtime.profile import CallTime, Profile
from samba_onnx.runtime.programs import Bound, Program, Programs
from samba_onnx.runtime.residency import Residency
from samba_onnx.runtime.schedule import GraphSchedule, Step

if TYPE_CHECKING:
    from concurrent.futures import Future

_CONSTANT_KINDS = frozenset({SymbolKind.WEIGHT, SymbolKind.CONSTANT})


class Device:
    """An emulated RDU with one PEF loaded.

    Loading reserves device memory, makes the onnxruntime sessions of every graph and enters the
    copies of weights and constants into the ledger; after it the device is ready to run. Use it as
    a context manager, from one thread at a time.
    """

    memory: DeviceMemory
    """Device memory with its usage by tier."""
    ledger: Ledger
    """Every copy between host and device."""
    profile: Profile
    """Measured seconds by call; filled when the device times its sections."""

    def __init__(
        self,
        pef: Pef,
        *,
        threads: int | None = None,
        prepack: bool = True,
        time_sections: bool = False,
        verify: bool = True,
    ) -> None:
        """Load a PEF.

        Args:
            pef: The PEF; it must stay open as long as the device.
            threads: Threads within an operator; one per core when None.
            prepack: Copy weights into the layout that kernels like best. Otherwise they stay
                mapped from the PEF: quick to load, half the memory, slower to run.
            time_sections: Execute every call on its own and measure it; see ``profile``.
            verify: Compare the checksum of the weights, in the background while sessions are made;
                no result leaves the device before that has succeeded.

        Raises:
            UsageError: ``threads`` is less than 1.
            OutOfDeviceMemoryError: The regions do not fit in the target's memory.
            ExecutionError: onnxruntime refuses a section or fallback.
            PefFormatError: Stages do not agree with the manifest.
            PefChecksumError: The file was replaced while it was loaded.
        """
        if threads is not None and threads < 1:
            raise UsageError(f"threads is {threads}; give 1 or more, or None for one per core")
        self._verification: Future[None] | None = pef.start_verification() if verify else None
        self._pef = pef
        manifest = pef.manifest
        self._symbols = {symbol.name: symbol for symbol in manifest.symbols}
        self.memory = DeviceMemory(manifest.target.tiers, manifest.regions, manifest.symbols)
        self.ledger = Ledger()
        self.profile = Profile()
        self._time_sections = time_sections
        self._values = Residency(manifest, self.memory, self.ledger)
        self._load_weights()
        self._load_argins()
        settings = SessionSettings(threads, prepack)
        self._programs: Programs | None = Programs(
            pef, self.memory, settings, merge=not time_sections
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release sessions and values; ledger, profile and memory usage stay readable."""
        self._programs = None
        self._values.forget(tuple(self._symbols))

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        *,
        graph: str | None = None,
        section_ids: Collection[int] | None = None,
        section_types: Collection[str] | None = None,
        from_call: int | None = None,
        until_call: int | None = None,
    ) -> dict[str, Any]:
        """Copy inputs to the device, execute calls, and copy outputs back.

        An input that is not given keeps its last value. A partial run leaves what it computes on
        the device, for later runs. After a run of the whole schedule it is not kept: what
        neighbouring sections pass to each other never leaves their common session.

        Args:
            inputs: Values by name: arrays of the compiled dtype and shape; lists for sequences,
                None for an empty optional. One that is left out keeps its last value; one that was
                never given takes the model's default, where the model has one.
            outputs: Names of graph outputs to return; None for all that the run computes.
            graph: Name of the graph; may be left out when the PEF has one.
            section_ids: Execute only sections and fallbacks with these ids.
            section_types: Execute only those of these types, as ``FWD``, in any case.
            from_call: Execute only this call and later ones.
            until_call: Execute only calls before this one.

        Returns:
            Host values by name, in the order asked for; they share no memory with the device.

        Raises:
            InputError: An input does not fit, or was never given. The device is unchanged.
            UsageError: The graph or an output does not exist, or both ids and types are given.
            ScheduleError: A section, type or call does not exist, or a call would read a value
                that nothing has computed. The device is unchanged.
            ExecutionError: An operator failed; activations and outputs have no reliable values.
            PefChecksumError: A weight differs from what was written.
            DeviceError: The device was closed.
        """
        program = self._open_programs().get(
            graph,
            section_ids=section_ids,
            section_types=section_types,
            from_call=from_call,
            until_call=until_call,
        )
        given = check_inputs(
            program.specs, self._with_defaults(program.schedule.graph.inputs, inputs or {})
        )
        names = program.checked_outputs(outputs)
        program.check_available(self._values, names, given)
        self.ledger.begin_run()
        for name, value in given.items():
            self._take_input(program.schedule, name, value)
        for bound in program.steps:
            self._execute(program.schedule, bound)
        self._join_verification()
        results = {name: self._fetch(program, name) for name in names}
        if program.whole:
            self._values.release_host(program.made)
        return results

    def write(self, symbol: str, array: Array) -> None:
        """Copy a host array to a symbol on the device; an ``explicit`` transfer.

        Args:
            symbol: A graph input, or a weight, state or activation that sections read as input.
            array: Of the symbol's dtype and shape.

        Raises:
            UsageError: There is no such symbol.
            InputError: The array does not fit.
            DeviceError: The symbol is not in device memory or read-only, or the device was closed.
        """
        self._open_programs()
        found = self._symbol(symbol)
        checked = InputSpec(found).check(array)
        if not found.region:
            raise DeviceError(f"symbol {symbol!r} lives on the host only; it cannot be written")
        if any(symbol in stage.weights for stage in self._pef.manifest.stages().values()):
            raise DeviceError(
                f"symbol {symbol!r} is read-only: its value is compiled into sections"
            )
        self._values.upload(symbol, checked, Cause.EXPLICIT, None)
        self._values.release_host((symbol,))
        if any(symbol in graph.inputs for graph in self._pef.manifest.graphs):
            self._values.on_host[symbol] = own_copy(checked)

    def read(self, symbol: str) -> Any:
        """Copy a symbol from the device; an ``explicit`` transfer.

        Args:
            symbol: Any symbol that has a value.

        Returns:
            A fresh host array.

        Raises:
            UsageError: There is no such symbol.
            ScheduleError: It has no value on the device now.
            PefChecksumError: A weight differs from what was written.
            DeviceError: The symbol lives on the host only, or the device was closed.
        """
        self._open_programs()
        found = self._symbol(symbol)
        self._join_verification()
        if not found.region:
            raise DeviceError(f"symbol {symbol!r} lives on the host only; ask run() for it")
        if symbol in self._values.on_device:
            return self._values.download(symbol, Cause.EXPLICIT, None)
        if found.kind in _CONSTANT_KINDS:
            record = self._values.record(symbol, Direction.RDU_TO_HOST, Cause.EXPLICIT, None)
            self.ledger.enter(record)
            return self._constant(symbol)
        raise ScheduleError(
            f"symbol {symbol!r} has no value on the device; run the section that computes it first "
            "(values between merged sections are not kept: select the sections, or use "
            "time_sections)"
        )

    def _open_programs(self) -> Programs:
        if self._programs is None:
            raise DeviceError("the device was closed; make a new one")
        return self._programs

    def _symbol(self, name: str) -> Symbol:
        symbol = self._symbols.get(name)
        if symbol is None:
            raise UsageError(f"symbol {name!r} does not exist in {self._pef.path.name}")
        return symbol

    def _load_weights(self) -> None:
        manifest = self._pef.manifest
        inputs = {name for graph in manifest.graphs for name in graph.inputs}
        read = [name for section in manifest.sections for name in section.weights]
        for section in manifest.sections:
            for name in section.inputs:
                if name not in inputs and self._symbols[name].stored is not None:
                    self._values.load(name, self._pef.weight(name))
                    read.append(name)
        loaded = {name for name in read if not self._symbols[name].baked}
        planned = [move.symbol for graph in manifest.graphs for move in graph.load_transfers]
        # All happens at one moment, so that the plan's order is as good as any.
        order = {name: place for place, name in reversed(list(enumerate(planned)))}
        for name in sorted(loaded, key=lambda name: (order.get(name, len(order)), name)):
            constant = self._symbols[name].kind is SymbolKind.CONSTANT
            cause = Cause.CONSTANT if constant else Cause.WEIGHT
            self.ledger.enter(self._values.record(name, Direction.HOST_TO_RDU, cause, None))

    def _load_argins(self) -> None:
        """Give argins their defaults; these are part of the program, and no transfer."""
        for argin in self._pef.manifest.argins:
            spec = InputSpec(self._symbols[argin.name])
            shape = [size for size in spec.shape or () if isinstance(size, int)]
            value = np.full(shape, argin.default, spec.dtype)
            if self._symbols[argin.name].region:
                self._values.load(argin.name, value)
            self._values.on_host[argin.name] = value

    def _with_defaults(self, names: Sequence[str], inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the model's own defaults for inputs that nobody ever gave."""
        missing = [name for name in names if name not in inputs and not self._values.has(name)]
        defaults = {name: self._pef.weight(name) for name in missing if self._symbols[name].stored}
        return {**defaults, **inputs} if defaults else inputs

    def _take_input(self, schedule: GraphSchedule, name: str, value: Any) -> None:
        call = schedule.rdu_readers.get(name)
        if call is not None:
            self._values.upload(name, value, Cause.INPUT, call)
        if call is None or name in schedule.host_readers or name in schedule.graph.outputs:
            self._values.on_host[name] = own_copy(value)

    def _execute(self, schedule: GraphSchedule, bound: Bound) -> None:
        values = self._values
        step, session = bound
        if isinstance(session, DeviceStep):
            for name, call in step.inputs:
                if name not in values.on_device:
                    values.upload(name, values.on_host[name], Cause.FALLBACK, call)
            begin = time.perf_counter()
            session.run()
            seconds = time.perf_counter() - begin
            values.forget(step.hidden)
            values.written_on_device(step.outputs)
        else:
            for name, call in step.inputs:
                if name not in values.on_host:
                    values.on_host[name] = values.download(name, Cause.FALLBACK, call)
            begin = time.perf_counter()
            results = session.run({name: values.on_host[name] for name, _ in step.inputs})
            seconds = time.perf_counter() - begin
            values.forget(step.hidden)
            for name, result in zip(step.outputs, results, strict=True):
                values.written_on_host(name, result)
        if self._time_sections:
            self.profile.add(schedule.graph.name, _call_time(step, seconds))

    def _fetch(self, program: Program, name: str) -> Any:
        values = self._values
        if name in values.on_host:
            value = values.on_host[name]
            # What the host keeps for later runs must not be shared with the user.
            return value if program.whole and name in program.made else own_copy(value)
        if name in values.on_device:
            return values.download(name, Cause.OUTPUT, program.schedule.producers.get(name))
        return self._constant(name)

    def _constant(self, name: str) -> Array:
        if self._symbols[name].stored is not None:
            return np.array(self._pef.weight(name), order="C")
        content: Array = initializer(self._pef, name)
        return content

    def _join_verification(self) -> None:
        if self._verification is None:
            return
        try:
            self._verification.result()
        except PefChecksumError as error:
            # A fresh one each time: an exception that is raised again grows its traceback.
            raise PefChecksumError(str(error)) from None
        self._verification = None


def _call_time(step: Step, seconds: float) -> CallTime:
    (call,), (stage,) = step.calls, step.stages
    modelled = stage.seconds if isinstance(stage, Section) else None
    return CallTime(call, stage.id, stage.name, step.on_rdu, 1, seconds, seconds, modelled)
