"""The emulated device: loads a PEF, runs its graphs, and accounts for every copy."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from samba_onnx.errors import DeviceError, InputError, ScheduleError, UsageError
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.executor import (
    DeviceStep,
    HostStep,
    SessionFactory,
    SessionSettings,
    initializer,
)
from samba_onnx.runtime.inputs import InputSpec, check_inputs, own_copy
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.pef.manifest import Call, Cause, Direction, Section, Symbol, SymbolKind
from samba_onnx.runtime.profile import CallTime, Profile
from samba_onnx.runtime.residency import Residency
from samba_onnx.runtime.schedule import GraphSchedule, Step

if TYPE_CHECKING:
    from concurrent.futures import Future

    from samba_onnx.runtime.pef.reader import Pef


@dataclass(frozen=True)
class _Program:
    """What a selection of calls executes."""

    steps: tuple[tuple[Step, DeviceStep | HostStep], ...]
    needs: dict[str, int]
    """Values that must exist before the run, each with the first call that reads it."""
    outputs: tuple[str, ...]
    """Graph outputs that are fetched when the user names none."""
    made: frozenset[str]
    """Values that can be fetched after the run."""
    whole: bool
    """Whether it executes the whole schedule."""


class Device:
    """An emulated RDU with one PEF loaded.

    Loading reserves device memory, makes the onnxruntime sessions of every graph and enters the
    copies of weights and constants into the ledger; after it the device is ready to run. Use it as
    a context manager, from one thread at a time.
    """

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
        self._time_sections = time_sections
        self._settings = SessionSettings(threads, prepack)
        manifest = pef.manifest
        self.memory = DeviceMemory(manifest.target.tiers, manifest.regions, manifest.symbols)
        """Device memory with its usage by tier."""
        self.ledger = Ledger()
        """Every copy between host and device."""
        self.profile = Profile()
        """Measured seconds by call, when ``time_sections``."""
        self._symbols = {symbol.name: symbol for symbol in manifest.symbols}
        self._values = Residency(manifest, self.memory, self.ledger)
        self._schedules = {graph.name: GraphSchedule(manifest, graph) for graph in manifest.graphs}
        self._specs = {
            graph.name: {name: InputSpec(self._symbols[name]) for name in graph.inputs}
            for graph in manifest.graphs
        }
        self._programs: dict[tuple[str, tuple[Call, ...]], _Program] = {}
        self._open = True
        self._load_weights()
        self._load_argins()
        self._make_programs()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release sessions and memory; the ledger stays readable."""
        self._open = False
        self._programs.clear()
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
                None for an empty optional.
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
            ExecutionError: An operator failed.
            PefChecksumError: A weight differs from what was written.
            DeviceError: The device was closed.
        """
        self._check_open()
        schedule = self._schedule(graph)
        calls = schedule.select(section_ids, section_types, from_call, until_call)
        program = self._program(schedule, calls)
        given = check_inputs(self._specs[schedule.graph.name], inputs or {})
        names = _checked_outputs(schedule, program, outputs)
        self._check_available(schedule, program, names, given)
        self.ledger.begin_run()
        for name, value in given.items():
            self._take_input(schedule, name, value)
        for step, session in program.steps:
            self._execute(schedule, step, session)
        self._join_verification()
        results = {name: self._fetch(schedule, name, keep=not program.whole) for name in names}
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
        self._check_open()
        found = self._symbol(symbol)
        checked = InputSpec(found).check(array)
        if not found.region:
            raise DeviceError(f"symbol {symbol!r} lives on the host only; it cannot be written")
        if any(symbol in stage.weights for stage in self._pef.manifest.stages().values()):
            raise DeviceError(
                f"symbol {symbol!r} is read-only: its value is compiled into sections"
            )
        self._values.on_host.pop(symbol, None)
        self._values.upload(symbol, checked, Cause.EXPLICIT, None)
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
        self._check_open()
        found = self._symbol(symbol)
        self._join_verification()
        if not found.region:
            raise DeviceError(f"symbol {symbol!r} lives on the host only; ask run() for it")
        if symbol in self._values.on_device:
            return self._values.download(symbol, Cause.EXPLICIT, None)
        if found.kind in (SymbolKind.WEIGHT, SymbolKind.CONSTANT):
            record = self._values.record(symbol, Direction.RDU_TO_HOST, Cause.EXPLICIT, None)
            self.ledger.enter(record)
            return self._constant(symbol)
        raise ScheduleError(
            f"symbol {symbol!r} has no value on the device; run the section that computes it first "
            "(values between merged sections are not kept: select the sections or use "
            "time_sections)"
        )

    def _check_open(self) -> None:
        if not self._open:
            raise DeviceError("the device was closed; make a new one")

    def _symbol(self, name: str) -> Symbol:
        symbol = self._symbols.get(name)
        if symbol is None:
            raise UsageError(f"symbol {name!r} does not exist in {self._pef.path.name}")
        return symbol

    def _schedule(self, graph: str | None) -> GraphSchedule:
        if graph is None and len(self._schedules) == 1:
            return next(iter(self._schedules.values()))
        known = ", ".join(self._schedules)
        if graph is None:
            raise UsageError(f"the PEF has several graphs; name one of {known}")
        schedule = self._schedules.get(graph)
        if schedule is None:
            raise UsageError(f"graph {graph!r} does not exist; the PEF has {known}")
        return schedule

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
        for name in sorted(loaded, key=_position(planned)):
            cause = _load_cause(self._symbols[name])
            record = self._values.record(name, Direction.HOST_TO_RDU, cause, None)
            self.ledger.enter(record)

    def _load_argins(self) -> None:
        for argin in self._pef.manifest.argins:
            spec = InputSpec(self._symbols[argin.name])
            shape = [size for size in spec.shape or () if isinstance(size, int)]
            value = np.full(shape, argin.default, spec.dtype)
            self._values.on_host[argin.name] = value
            if self._symbols[argin.name].region:
                self._values.load(argin.name, value)
                self._values.on_host[argin.name] = value

    def _make_programs(self) -> None:
        merge = not self._time_sections
        steps = [
            schedule.steps(schedule.graph.calls, merge=merge)
            for schedule in self._schedules.values()
        ]
        factory = SessionFactory(self._pef, self._settings, several=sum(map(len, steps)) > 1)
        for schedule, planned in zip(self._schedules.values(), steps, strict=True):
            calls = schedule.graph.calls
            program = self._make_program(schedule, calls, planned, factory)
            self._programs[schedule.graph.name, calls] = program

    def _program(self, schedule: GraphSchedule, calls: tuple[Call, ...]) -> _Program:
        key = (schedule.graph.name, calls)
        program = self._programs.get(key)
        if program is None:
            steps = schedule.steps(calls, merge=not self._time_sections)
            factory = SessionFactory(self._pef, self._settings, several=True)
            program = self._make_program(schedule, calls, steps, factory)
            self._programs[key] = program
        return program

    def _make_program(
        self,
        schedule: GraphSchedule,
        calls: tuple[Call, ...],
        steps: tuple[Step, ...],
        factory: SessionFactory,
    ) -> _Program:
        sessions = tuple(
            (
                step,
                factory.device_step(step, self.memory) if step.on_rdu else factory.host_step(step),
            )
            for step in steps
        )
        self._pef.ensure_unchanged()
        needs: dict[str, int] = {}
        made: set[str] = set()
        for step in steps:
            for name, call in step.inputs:
                if name not in made:
                    needs.setdefault(name, call)
            made.update(step.outputs)
        whole = calls == schedule.graph.calls
        outputs = schedule.graph.outputs
        if not whole:
            outputs = tuple(name for name in outputs if name in made)
        return _Program(sessions, needs, outputs, frozenset(made), whole)

    def _check_available(
        self,
        schedule: GraphSchedule,
        program: _Program,
        outputs: Sequence[str],
        given: Mapping[str, Any],
    ) -> None:
        values = self._values
        for name, call in program.needs.items():
            if not (name in given or name in values.on_device or name in values.on_host):
                self._refuse(schedule, name, f"{schedule.title(call)} reads")
        for name in outputs:
            known = name in program.made or name in values.on_device or name in values.on_host
            if not (known or name in given or self._is_constant(schedule, name)):
                self._refuse(schedule, name, "you ask for")

    def _refuse(self, schedule: GraphSchedule, name: str, who: str) -> None:
        spec = self._specs[schedule.graph.name].get(name)
        if spec is not None:
            raise InputError(f"input {name!r} was never given; {who} it: give {spec} to run()")
        producer = schedule.producers.get(name)
        source = "write it first" if producer is None else f"run {schedule.title(producer)} first"
        raise ScheduleError(f"{who} {name!r}, which has no value on the device: {source}")

    def _is_constant(self, schedule: GraphSchedule, name: str) -> bool:
        return name not in schedule.producers and name not in schedule.graph.inputs

    def _take_input(self, schedule: GraphSchedule, name: str, value: Any) -> None:
        call = schedule.rdu_readers.get(name)
        if call is not None:
            self._values.upload(name, value, Cause.INPUT, call)
        if call is None or name in schedule.host_readers or name in schedule.graph.outputs:
            self._values.on_host[name] = own_copy(value)

    def _execute(self, schedule: GraphSchedule, step: Step, session: DeviceStep | HostStep) -> None:
        values = self._values
        if isinstance(session, DeviceStep):
            for name, call in step.inputs:
                if name not in values.on_device:
                    values.upload(name, values.on_host[name], Cause.FALLBACK, call)
            begin = time.perf_counter()
            session.run()
            end = time.perf_counter()
            values.forget(step.hidden)
            values.written_on_device(step.outputs)
        else:
            for name, call in step.inputs:
                if name not in values.on_host:
                    values.on_host[name] = values.download(name, Cause.FALLBACK, call)
            begin = time.perf_counter()
            results = session.run({name: values.on_host[name] for name, _ in step.inputs})
            end = time.perf_counter()
            values.forget(step.hidden)
            for name, result in zip(step.outputs, results, strict=True):
                values.written_on_host(name, result)
        if self._time_sections:
            self.profile.add(schedule.graph.name, _call_time(step, end - begin))

    def _fetch(self, schedule: GraphSchedule, name: str, *, keep: bool) -> Any:
        values = self._values
        if name in values.on_host:
            value = values.on_host[name]
            return own_copy(value) if keep or name in schedule.graph.inputs else value
        if name in values.on_device:
            return values.download(name, Cause.OUTPUT, schedule.producers.get(name))
        return self._constant(name)

    def _constant(self, name: str) -> Any:
        if self._symbols[name].stored is not None:
            return np.array(self._pef.weight(name), order="C")
        return initializer(self._pef, name)

    def _join_verification(self) -> None:
        if self._verification is not None:
            self._verification.result()
            self._verification = None


def _call_time(step: Step, seconds: float) -> CallTime:
    (call,), (stage,) = step.calls, step.stages
    modelled = stage.seconds if isinstance(stage, Section) else None
    return CallTime(call, stage.id, stage.name, step.on_rdu, 1, seconds, seconds, modelled)


def _load_cause(symbol: Symbol) -> Cause:
    return Cause.CONSTANT if symbol.kind is SymbolKind.CONSTANT else Cause.WEIGHT


def _position(planned: Sequence[str]) -> Any:
    """Return a sort key: the place in the plan, and after it by name what the plan lacks."""
    places = {name: place for place, name in reversed(list(enumerate(planned)))}
    return lambda name: (places.get(name, len(places)), name)


def _checked_outputs(
    schedule: GraphSchedule, program: _Program, outputs: Sequence[str] | None
) -> Sequence[str]:
    if outputs is None:
        return program.outputs
    if isinstance(outputs, str):
        raise UsageError(f"outputs is the text {outputs!r}; give a list of names")
    for name in outputs:
        if name not in schedule.graph.outputs:
            known = ", ".join(map(repr, schedule.graph.outputs))
            raise UsageError(f"output {name!r} does not exist; the graph's outputs are {known}")
    return outputs
