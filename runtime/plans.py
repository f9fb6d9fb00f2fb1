"""What a run executes: steps with their sessions, which all runs of a device share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from samba_onnx.errors import InputError, ScheduleError, UsageError
from samba_onnx.pef.gradients import gradient_buckets
from samba_onnx.pef.manifest import Manifest
from samba_onnx.pef.reader import Pef
from samba_onnx.program.kinds import LOADED_KINDS, SectionType, SymbolKind
from samba_onnx.runtime.engine.protocol import EngineSettings
from samba_onnx.runtime.engine.steps import DeviceStep, HostStep, StepFactory
from samba_onnx.runtime.exchanges import ExchangeStep, Rdu, refuse_unless_member
from samba_onnx.runtime.inputs import InputSpec
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.mini_batches import refuse_partial_steps
from samba_onnx.runtime.reduction_plans import ReductionPlan, ReductionPlanner, reduction_place
from samba_onnx.runtime.requests import RunRequest
from samba_onnx.runtime.residency import Residency, sharers
from samba_onnx.runtime.schedule import NO_CUTS, GraphSchedule, Step, exchanges
from samba_onnx.runtime.selection import (
    Sweep,
    forward_reads,
    section_types_of,
    select_sweeps,
)

Bound = tuple[Step, DeviceStep | HostStep]
"""A step and the session that executes it."""


@dataclass(frozen=True)
class RunPlan:
    """What a selection of one graph's calls executes."""

    schedule: GraphSchedule
    steps: tuple[Bound, ...]
    needs: Mapping[str, int]
    """Values that must exist before the run, each with the first call that reads it."""
    outputs: tuple[str, ...]
    """Graph outputs that are fetched when the user names none."""
    results: frozenset[str]
    """Values that can be fetched after the run."""
    lost: frozenset[str]
    """Values whose places the run leaves to others."""
    whole: bool
    """Whether it executes the whole schedule."""

    fixed: frozenset[str]
    """Residents whose values the host knows."""
    section_types: frozenset[SectionType]
    """Types of the sections and fallbacks that it executes."""
    forward_reads: frozenset[str]
    """What those of type FWD read, argins among it."""
    reductions: ReductionPlan | None = None
    """What it does with the gradients that replicas share; None where it touches none."""

    @property
    def batches(self) -> int:
        """Mini-batches for each of which the steps are executed; 0 where a run is one batch."""
        return self.schedule.graph.spatial_batches

    @property
    def specs(self) -> Mapping[str, InputSpec]:
        """The graph's inputs, in order."""
        return self.schedule.specs

    # Asked in every run, and found once: to look an enumeration's member up takes as long as a small copy.

    @functools.cached_property
    def goes_forward(self) -> bool:
        """Whether it executes forward sections."""
        return SectionType.FWD in self.section_types

    @functools.cached_property
    def goes_backward(self) -> bool:
        """Whether it executes backward sections."""
        return SectionType.BCKWD in self.section_types

    @functools.cached_property
    def updates(self) -> bool:
        """Whether it executes sections of optimizers."""
        return SectionType.OPT in self.section_types

    @functools.cached_property
    def host_residents(self) -> frozenset[str]:
        """Residents that fallbacks read or write, of which the host keeps no copy after a run."""
        names = {
            name
            for step, _ in self.steps
            if not step.on_rdu
            for name in (*(name for name, _ in step.inputs), *step.outputs)
        }
        return (self.schedule.residents & names) - self.fixed

    @functools.cached_property
    def written(self) -> frozenset[str]:
        """Values that its steps leave for others."""
        return frozenset(name for step, _ in self.steps for name in step.outputs)

    def checked_outputs(self, outputs: Sequence[str] | None) -> tuple[str, ...]:
        """Return the outputs to fetch, each once.

        Args:
            outputs: Names that the user gave, or None.

        Raises:
            UsageError: One does not exist.
        """
        if outputs is None:
            return self.outputs
        known = self.schedule.graph.outputs
        for name in outputs:
            if name not in known:
                listed = ", ".join(map(repr, known))
                raise UsageError(
                    f"output {name!r} does not exist; the graph's outputs are {listed}"
                )
        return tuple(dict.fromkeys(outputs))

    def check_available(
        self, values: Residency, outputs: Sequence[str], inputs: Mapping[str, Any]
    ) -> None:
        """Check that every value exists that the run will read.

        Args:
            values: What there is before the run.
            outputs: Names of graph outputs to fetch.
            inputs: Inputs of this run.

        Raises:
            InputError: An input was never given.
            ScheduleError: Another value was never computed, or is overwritten by the run.
        """
        for name, call in self.needs.items():
            if name not in inputs and not values.has(name):
                raise self._missing(name, f"{self.schedule.title(call)} reads")
        for name in outputs:
            if name in self.lost:
                raise ScheduleError(
                    f"you ask for {name!r}, whose place another section of this run writes: ask "
                    "for it in a run of its own"
                )
            exists = name in self.results or name in inputs or values.has(name)
            if not (exists or self.schedule.is_constant(name)):
                raise self._missing(name, "you ask for")

    def _missing(self, name: str, who: str) -> InputError | ScheduleError:
        spec = self.specs.get(name)
        if spec is not None:
            return InputError(f"input {name!r} was never given; {who} it: give {spec} to run()")
        producer = self.schedule.producers.get(name)
        kind = self.schedule.symbols[name].kind
        if name in self.schedule.residents and kind in LOADED_KINDS:
            mend = "give it to load()"
            if kind is SymbolKind.OPTIMIZER_STATE:
                mend += (
                    ", or trace the model with its optimizer; to run forward only, select the "
                    "sections of type FWD"
                )
            return ScheduleError(f"{who} {kind.words} {name!r}, which has no value: {mend}")
        mend = "write it" if producer is None else f"run {self.schedule.title(producer)}"
        return ScheduleError(f"{who} {name!r}, which has no value on the device: {mend} first")


class RunPlanner:
    """Plans the runs of one PEF; the sessions of its sections are shared between them."""

    def __init__(
        self,
        pef: Pef,
        memory: DeviceMemory,
        engine: str,
        settings: EngineSettings,
        *,
        merge: bool,
        rdu: Rdu | None = None,
    ) -> None:
        """Make the sessions that execute whole graphs.

        Args:
            pef: The PEF.
            memory: Where sections read and write.
            engine: Name of the engine that executes steps.
            settings: How the engine prepares the steps.
            merge: Whether neighbouring calls may share a session.
            rdu: Which of several RDUs it is; None for one that stands alone.

        Raises:
            UsageError: There is no such engine, or the PEF is for another number of RDUs.
            ExecutionError: The engine cannot run a stage.
            PefFormatError: Stages do not agree with the manifest.
            PefChecksumError: The file was replaced meanwhile.
        """
        manifest = pef.manifest
        refuse_unless_member(manifest.parallel, rdu)
        self._pef, self._rdu, self._memory, self._merge = pef, rdu, memory, merge
        self._constant = _frozen_residents(manifest) if settings.prepack else frozenset()
        self._fixed = manifest.fixed_residents()
        self._sharers = sharers(manifest.symbols)
        self._schedules = {graph.name: GraphSchedule(manifest, graph) for graph in manifest.graphs}
        self._reductions = {
            name: ReductionPlanner(schedule, gradient_buckets(manifest, schedule.graph))
            for name, schedule in self._schedules.items()
        }
        steps = [
            (graph, step)
            for graph, schedule in self._schedules.items()
            for step in schedule.steps(merge=merge)
        ]
        settings = dataclasses.replace(settings, several=len(steps) > 1)
        self._factory = StepFactory(pef, engine, settings)
        self._sessions: dict[tuple[str, tuple[int, ...]], DeviceStep | HostStep] = {}
        for graph, step in steps:
            self._session(graph, step)
        # The engine opened the file by its path.
        pef.ensure_unchanged()

    @property
    def merges(self) -> bool:
        """Whether neighbouring calls may share a session."""
        return self._merge

    def plan(self, request: RunRequest) -> RunPlan:
        """Return what a request executes.

        Args:
            request: Its graph and its selection of calls; outputs are not looked at.

        Raises:
            UsageError: The graph does not exist, an id is no integer, or both ids and types are
                given.
            ScheduleError: A section, type or call does not exist, none is left, or one would read
                what an earlier one overwrites, or of several mini-batches what another run made.
            ExecutionError: The engine cannot run a stage.
        """
        schedule = self._schedules[self._graph_name(request.graph)]
        sweeps = select_sweeps(
            schedule.stages,
            schedule.graph,
            request.section_ids,
            request.section_types,
            request.from_call,
            request.until_call,
        )
        merge = self._merge and not request.single
        mode = None if request.reduction is None else request.reduction.mode
        planner = self._reductions[schedule.graph.name]
        steps = planner.ordered(
            [
                step
                for calls in sweeps
                for step in schedule.steps(
                    calls, merge=merge, cuts=NO_CUTS if mode is None else planner.cuts(calls)
                )
            ],
            mode,
        )
        place = None if mode is None else _reduction_place(request, steps)
        return self._plan(schedule, sweeps, steps, planner.plan(steps, mode, place))

    def forget_values(self, names: Collection[str]) -> None:
        """Let sessions go that have one of these residents for a constant.

        Args:
            names: Names of the symbols that the host gave new values.
        """
        if not self._fixed.isdisjoint(names):
            for session in self._sessions.values():
                if not session.frozen.isdisjoint(names):
                    session.forget_values()

    def _graph_name(self, graph: str | None) -> str:
        if graph in self._schedules:
            return graph
        known = ", ".join(self._schedules)
        if graph is not None:
            raise UsageError(f"graph {graph!r} does not exist; the PEF has {known}")
        if len(self._schedules) > 1:
            raise UsageError(f"the PEF has several graphs; name one of {known}")
        return known

    def _plan(
        self,
        schedule: GraphSchedule,
        sweeps: tuple[Sweep, ...],
        steps: Sequence[Step],
        reductions: ReductionPlan | None,
    ) -> RunPlan:
        needs, results, lost = self._flow(schedule, steps)
        bound = tuple((step, self._session(schedule.graph.name, step)) for step in steps)
        # Sessions may be new ones, for which the file was opened by its path.
        self._pef.ensure_unchanged()
        whole, types = sweeps == (schedule.graph.calls,), section_types_of(schedule.stages, sweeps)
        if schedule.graph.spatial_batches:
            refuse_partial_steps(schedule, needs, types)
        outputs = schedule.graph.outputs
        return RunPlan(
            schedule=schedule,
            steps=bound,
            needs=needs,
            outputs=outputs if whole else tuple(name for name in outputs if name in results),
            results=results,
            lost=lost,
            whole=whole,
            fixed=self._fixed,
            section_types=types,
            forward_reads=forward_reads(schedule.stages, sweeps),
            reductions=reductions,
        )

    def _flow(
        self, schedule: GraphSchedule, steps: Sequence[Step]
    ) -> tuple[dict[str, int], frozenset[str], frozenset[str]]:
        """What steps read from before the run, by name with the first call, leave, and overwrite.

        Raises:
            ScheduleError: A step of a later sweep reads what is overwritten by then.
        """
        needs: dict[str, int] = {}
        results: set[str] = set()
        readable: set[str] = set()
        lost: set[str] = set()
        for step in steps:
            for name, call in step.inputs:
                if name in lost:
                    raise _overwritten(schedule, name, call)
                if name not in readable:
                    needs.setdefault(name, call)
            written, overwritten = set(step.outputs), set(step.hidden)
            for name in step.outputs:
                # What is written under one name can be read under others, as a zeroed gradient is.
                for other, same in self._sharers.get(name, ()):
                    (written if same else overwritten).add(other)
            overwritten -= written
            readable |= written
            readable -= overwritten
            lost |= overwritten
            lost -= written
            results |= set(step.outputs)
            results -= overwritten
        return needs, frozenset(results), frozenset(lost)

    def _session(self, graph: str, step: Step) -> DeviceStep | HostStep:
        # With the graph, as each numbers its calls from 0.
        key = (graph, step.calls)
        session = self._sessions.get(key)
        if session is None:
            if exchanges(step.stages[0]) and self._rdu is not None:
                session = ExchangeStep(step, self._memory, self._rdu)
            elif step.on_rdu:
                session = self._factory.device_step(step, self._memory, self._constant)
            else:
                session = self._factory.host_step(step, self._fixed)
            self._sessions[key] = session
        return session


def _overwritten(schedule: GraphSchedule, name: str, call: int) -> ScheduleError:
    producer = schedule.producers.get(name)
    mend = "give it in a run of its own" if producer is None else f"run {schedule.title(producer)}"
    return ScheduleError(
        f"{schedule.title(call)} reads {name!r}, whose place another section of this run writes "
        f"before: {mend} first"
    )


def _reduction_place(request: RunRequest, steps: Sequence[Step]) -> int | None:
    """Return the number of the step before which a request asks for REDUCE, if it does."""
    if request.section_types is None and (
        request.section_ids is not None or (request.from_call, request.until_call) != (None, None)
    ):
        return None
    return reduction_place([step.stages[0].type for step in steps], request.section_types)


def _frozen_residents(manifest: Manifest) -> frozenset[str]:
    """Return the residents that sessions may take for constants."""
    # Only where weights may be prepacked: a session copies what is frozen into the layout of its
    # kernels, and whoever wants no second copy of weights wants none of these.
    stored = {symbol.name for symbol in manifest.symbols if symbol.stored is not None}
    return manifest.fixed_residents() - stored
