"""Which of the calls that a run executes share a session of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from samba_onnx.pef.exchanges import RduCall, rdu_calls
from samba_onnx.pef.manifest import Call, Fallback, Graph, Manifest, Section
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.inputs import InputSpec

NO_CUTS: Final[Mapping[int, int]] = MappingProxyType({})
"""Steps end for no other reason than those of :class:`GraphSchedule`."""
_TRANSIENT = frozenset({SymbolKind.ACTIVATION, SymbolKind.INPUT, SymbolKind.OUTPUT})


@dataclass(frozen=True)
class Step:
    """Neighbouring calls of one home that execute together."""

    on_rdu: bool
    calls: tuple[int, ...]
    stages: tuple[Section | Fallback, ...]
    inputs: tuple[tuple[str, int], ...]
    """Values that come from outside the step, each with the first call that reads it."""
    outputs: tuple[str, ...]
    """Values that something outside the step may read."""
    hidden: tuple[str, ...]
    """Values that are written but can be read by nothing afterwards."""

    @property
    def title(self) -> str:
        """What messages call the step."""
        first, last = self.stages[0], self.stages[-1]
        kind = "section" if self.on_rdu else "fallback"
        if first is last:
            return f"{kind} {first.id} ({first.name})"
        return f"{kind}s {first.id} ({first.name}) to {last.id} ({last.name})"


class GraphSchedule:
    """The schedule of one graph, indexed by the values that its calls read and write."""

    def __init__(self, manifest: Manifest, graph: Graph) -> None:
        self.graph = graph
        self._target = manifest.target
        self.stages = manifest.stages()
        self.symbols = {symbol.name: symbol for symbol in manifest.symbols}
        self.rdu_stages = frozenset(section.id for section in manifest.sections)
        self.residents = manifest.residents()
        self.specs = {
            name: InputSpec(self.symbols[name], graph.index_demands) for name in graph.inputs
        }
        self.producers: dict[str, int] = {}
        self.rdu_readers: dict[str, int] = {}
        self.host_readers: dict[str, int] = {}
        for call in graph.calls:
            self._index(call)
        # A value kept for another graph of the PEF counts as read by that graph's stages.
        self._readers: dict[str, set[int]] = {}
        for stage in self.stages.values():
            for name in stage.inputs:
                self._readers.setdefault(name, set()).add(stage.id)

    def steps(
        self,
        calls: Sequence[Call] | None = None,
        *,
        merge: bool,
        cuts: Mapping[int, int] = NO_CUTS,
    ) -> tuple[Step, ...]:
        """Group calls into steps.

        Args:
            calls: In the schedule's order; all when None.
            merge: Whether neighbouring calls of one home may share a step.
            cuts: Numbers by the ids of calls; calls with different ones do not share a step.

        Returns:
            The steps in order; every call is in exactly one.
        """
        groups: list[_Group] = []
        for call in self.graph.calls if calls is None else calls:
            stage = self.stages[call.stage]
            group = groups[-1] if merge and groups else None
            if (
                group is None
                or cuts.get(group.calls[-1]) != cuts.get(call.id)
                or not group.may_take(stage)
            ):
                group = _Group(self)
                groups.append(group)
            group.take(call.id, stage)
        return tuple(self._step(group) for group in groups)

    @cached_property
    def rdu_calls(self) -> Mapping[int, RduCall]:
        """What each call of a section is modelled to take on the RDU, by its id."""
        return rdu_calls(self.graph, self.stages, self._target)

    def title(self, call: int) -> str:
        """Return what messages call the stage of a call."""
        stage = next(self.stages[c.stage] for c in self.graph.calls if c.id == call)
        kind = "section" if stage.id in self.rdu_stages else "fallback"
        return f"{kind} {stage.id} ({stage.name})"

    def is_constant(self, name: str) -> bool:
        """Return whether a graph output is neither computed nor an input."""
        return name not in self.producers and name not in self.graph.inputs

    def _index(self, call: Call) -> None:
        stage = self.stages[call.stage]
        readers = self.rdu_readers if stage.id in self.rdu_stages else self.host_readers
        for name in stage.inputs:
            readers.setdefault(name, call.id)
        for name in stage.outputs:
            self.producers[name] = call.id

    def region(self, name: str) -> str:
        """Return the region of a symbol; empty for a value on the host."""
        return self.symbols[name].region

    def _step(self, group: _Group) -> Step:
        inside = {stage.id for stage in group.stages}
        # Of several values in one region only the last one is left after the step.
        last = {self.region(name) or name: name for name in group.results}
        visible = [
            name
            for name in group.results
            if last[self.region(name) or name] == name and self._is_read_outside(name, inside)
        ]
        return Step(
            on_rdu=group.stages[0].id in self.rdu_stages,
            calls=tuple(group.calls),
            stages=tuple(group.stages),
            inputs=tuple(group.inputs.items()),
            # A session must have an output, even where nobody reads one.
            outputs=tuple(visible) or tuple(group.results)[-1:],
            hidden=tuple(name for name in group.results if name not in visible),
        )

    def _is_read_outside(self, name: str, inside: set[int]) -> bool:
        return (
            name in self.graph.outputs
            or self.symbols[name].kind not in _TRANSIENT
            or not self._readers.get(name, set()) <= inside
        )


def exchanges(stage: Section | Fallback) -> bool:
    """Return whether a stage is a collective of several RDUs."""
    return isinstance(stage, Section) and stage.collective is not None


class _Group:
    """Calls that will share a step."""

    def __init__(self, schedule: GraphSchedule) -> None:
        self._schedule = schedule
        self.calls: list[int] = []
        self.stages: list[Section | Fallback] = []
        self.inputs: dict[str, int] = {}
        self.results: dict[str, None] = {}
        self._read: set[str] = set()
        self._written: set[str] = set()

    def may_take(self, stage: Section | Fallback) -> bool:
        """Return whether a stage may follow in the same session."""
        last, on_rdu = self.stages[-1], self._schedule.rdu_stages
        # Types are run one by one in training; their sessions serve whole runs too.
        if (last.id in on_rdu) != (stage.id in on_rdu) or last.type is not stage.type:
            return False
        if exchanges(last) or exchanges(stage):
            return False  # no engine knows other RDUs
        # What a fallback writes to a resident is copied to the device before the next one begins.
        if stage.id not in on_rdu and not self._schedule.residents.isdisjoint(self.results):
            return False
        # onnxruntime orders nodes by the names of their values, and knows nothing of regions: one
        # that an earlier stage reads must not be overwritten in the same session, and one that an
        # earlier stage writes must not be read under another name.
        region = self._schedule.region
        reads = {region(name) for name in stage.inputs if name not in self.results} - {""}
        writes = {region(name) for name in stage.outputs if self._is_exposed(stage, name)} - {""}
        return not (writes & self._read or reads & self._written)

    def _is_exposed(self, stage: Section | Fallback, name: str) -> bool:
        """Whether nothing but the order of stages keeps the old value of a region from a writer.

        An optimizer's parts read a weight before its update, which depends on what they read: in
        one session that is proven in place, or else goes through a buffer.
        """
        if stage.type is not SectionType.OPT:
            return True
        return self._schedule.symbols[name].kind in _TRANSIENT

    def take(self, call: int, stage: Section | Fallback) -> None:
        """Add a call."""
        region = self._schedule.region
        for name in stage.inputs:
            if name not in self.results:
                self.inputs.setdefault(name, call)
                self._read.add(region(name))
        for name in stage.outputs:
            self.results[name] = None
            self._written.add(region(name))
        self.calls.append(call)
        self.stages.append(stage)
