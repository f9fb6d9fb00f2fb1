"""When every call and copy of a run begins and ends, where the device overlaps copies and the host's work.

The device executes sections in the order of the schedule, the host fallbacks in theirs, and each direction of the link
carries its copies one after the other. Each begins when what it reads is there and what it needs is free:

* A copy of an input waits for nothing but the link; a copy of what a fallback or section wrote waits for that.
* A copy to the device waits for earlier calls that use its place in device memory, and a section waits for copies to
  the host of what lies where it writes.
* Copies go in the order of the calls that they are made for; an output goes while the section behind its writer runs,
  but after what a fallback behind the writer waits for.

What a target does not overlap waits for all before it, and holds all behind it.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from samba_onnx.pef.manifest import Call, Cause, Direction, Fallback, Graph, Section, Transfer
from samba_onnx.pef.target_summary import TargetSummary

__all__ = ["Resource", "Task", "Timeline", "timeline"]


class Resource(enum.StrEnum):
    """What executes calls or copies, one at a time."""

    RDU = "rdu"
    TO_RDU = "host_to_rdu"
    TO_HOST = "rdu_to_host"
    CPU = "cpu"


@dataclass(frozen=True)
class Task:
    """A call or a copy, with its time."""

    resource: Resource
    call: int
    """The call in whose turn it is."""
    symbol: str
    """What is copied; empty for a call."""
    begin: float
    """Seconds from the begin of the run."""
    end: float


@dataclass(frozen=True)
class Timeline:
    """All calls and copies of a run, in the order in which they are issued."""

    tasks: tuple[Task, ...]

    @property
    def end(self) -> float:
        """When the last one ends."""
        return max((task.end for task in self.tasks), default=0.0)

    def busy(self, *resources: Resource) -> float:
        """Return the seconds in which one of some resources, or several of them, are busy."""
        own = sorted((t.begin, t.end) for t in self.tasks if t.resource in resources)
        total = reached = 0.0
        # Tasks are sorted by their begin: `reached` is the end of what was counted already.
        for begin, end in own:
            total += max(end - max(begin, reached), 0.0)
            reached = max(reached, end)
        return total

    def advances(self) -> Mapping[int, float]:
        """Return by how much each call, with its copies, makes the run longer; all add up to the end."""
        reached, seconds = 0.0, dict.fromkeys((task.call for task in self.tasks), 0.0)
        for task in self.tasks:
            # A call that ends earlier than those before it makes the run no longer.
            seconds[task.call] += max(task.end - reached, 0.0)
            reached = max(reached, task.end)
        return seconds


def timeline(
    graph: Graph,
    stages: Mapping[int, Section | Fallback],
    target: TargetSummary,
    places: Mapping[str, str],
    on_rdu: Mapping[int, float],
) -> Timeline:
    """Return when a run's calls and copies begin and end.

    Args:
        graph: A graph that is not mapped spatially.
        stages: Its sections and fallbacks by id.
        target: Says what the device overlaps.
        places: Regions of device memory, by symbol.
        on_rdu: Seconds of each call of a section, by its id.
    """
    run = _Run(target, places)
    # Without calls all copies are inputs that become outputs.
    for copy in () if graph.calls else graph.run_transfers:
        run.copy(0, copy)
    for call, before, after in _turns(graph, stages):
        for copy in before:
            run.copy(call.id, copy)
        stage = stages[call.stage]
        if isinstance(stage, Section):
            run.section(call.id, stage, on_rdu[call.id])
        else:
            run.fallback(call.id, stage)
        for copy in after:
            run.copy(call.id, copy)
    return Timeline(tuple(run.tasks))


def _turns(
    graph: Graph, stages: Mapping[int, Section | Fallback]
) -> Iterator[tuple[Call, Sequence[Transfer], Sequence[Transfer]]]:
    """Yield every call with the copies that are issued before it and after it."""
    before: dict[int, list[Transfer]] = defaultdict(list)
    written: dict[int, list[Transfer]] = defaultdict(list)
    back: dict[int, list[Transfer]] = defaultdict(list)
    called = {call.id: stages[call.stage] for call in graph.calls}
    for copy in graph.run_transfers if graph.calls else ():
        # Copies without a call are made before the run's first one.
        turn = graph.calls[0].id if copy.call is None else copy.call
        if copy.cause is Cause.OUTPUT:
            written[turn].append(copy)
        elif isinstance(called[turn], Fallback) and copy.direction is Direction.HOST_TO_RDU:
            back[turn].append(copy)
        # Exchanges between RDUs are part of the sections' time, and take neither direction of the
        # host's link.
        elif copy.cause is not Cause.COLLECTIVE:
            before[turn].append(copy)
    outputs: list[Transfer] = []
    for place, call in enumerate(graph.calls):
        is_last = place == len(graph.calls) - 1
        # Behind the last call there is no section beside which its outputs could be copied.
        after = [*back[call.id], *(written[call.id] if is_last else ())]
        yield call, [*before[call.id], *outputs], after
        outputs = written[call.id]


@dataclass
class _Run:
    """What is where by when, as calls and copies are issued one after the other."""

    target: TargetSummary
    places: Mapping[str, str]
    tasks: list[Task] = field(default_factory=list)
    free: dict[Resource, float] = field(default_factory=lambda: dict.fromkeys(Resource, 0.0))
    on_host: dict[str, float] = field(default_factory=dict)
    on_rdu: dict[str, float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    """By region: when the last call has read or written it."""
    copied: dict[str, float] = field(default_factory=dict)
    """By region: when the last copy to the host has read it."""

    def section(self, call: int, stage: Section, seconds: float) -> None:
        """Issue the call of a section."""
        regions = [self._place(name) for name in stage.outputs]
        # What was never written was there before the run.
        ready = [self.on_rdu.get(name, 0.0) for name in stage.inputs]
        # A section must not overwrite a place from which a copy to the host still reads.
        ready += [self.copied.get(region, 0.0) for region in regions]
        end = self._issue(Resource.RDU, call, "", ready, seconds)
        # Weights count as well: the next copy into their region has to wait.
        for name in (*stage.inputs, *stage.weights, *stage.outputs):
            self.used[self._place(name)] = end
        self.on_rdu.update(dict.fromkeys(stage.outputs, end))

    def fallback(self, call: int, stage: Fallback) -> None:
        """Issue the call of a fallback."""
        ready = [self.on_host.get(name, 0.0) for name in stage.inputs]
        end = self._issue(Resource.CPU, call, "", ready, stage.seconds)
        self.on_host.update(dict.fromkeys(stage.outputs, end))

    def copy(self, call: int, copy: Transfer) -> None:
        """Issue a copy between host and device."""
        name, region = copy.symbol, self._place(copy.symbol)
        if copy.direction is Direction.HOST_TO_RDU:
            # The place is free when the last call that read or wrote it, and the last copy from it,
            # have ended.
            ready = [self.on_host.get(name, 0.0), self.used.get(region, 0.0)]
            ready.append(self.copied.get(region, 0.0))
            self.on_rdu[name] = self._issue(Resource.TO_RDU, call, name, ready, copy.seconds)
        else:
            ready = [self.on_rdu.get(name, 0.0)]
            end = self._issue(Resource.TO_HOST, call, name, ready, copy.seconds)
            self.on_host[name], self.copied[region] = end, end

    def _place(self, name: str) -> str:
        # A value on the host only has no region; its name stands for a place of its own.
        return self.places.get(name) or name

    def _issue(
        self, resource: Resource, call: int, name: str, ready: Sequence[float], seconds: float
    ) -> float:
        """Add a task behind the last one of its resource, and return when it ends."""
        # What cannot overlap waits until all is free, and keeps all busy until it ends.
        alone = not self._overlaps(resource)
        begin = max([self.free[resource], *(self.free.values() if alone else ()), *ready])
        end: float = begin + seconds
        self.tasks.append(Task(resource, call, name, begin, end))
        self.free.update(dict.fromkeys(Resource if alone else (resource,), end))
        return end

    def _overlaps(self, resource: Resource) -> bool:
        return {
            Resource.RDU: True,
            Resource.TO_RDU: self.target.overlaps_to_rdu,
            Resource.TO_HOST: self.target.overlaps_to_host,
            Resource.CPU: self.target.overlaps_cpu,
        }[resource]
