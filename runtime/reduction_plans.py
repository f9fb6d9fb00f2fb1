"""Where in a run gradients are reduced: before which step each bucket begins, and who waits for it.

A gradient is *unreduced* from the moment in which BCKWD writes it until it was reduced. REDUCE comes
after BCKWD where a run executes the whole schedule or asks for the type; and in any case before
GRADNORM and OPT, if they would read gradients that are unreduced, be they of this run or of one
before. So BCKWD may run several times before OPT, to add gradients up, and only then they are sent.

All of it follows from what a run was asked for: every replica reduces the same in the same order,
and none waits for what another one never sends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from samba_onnx.pef.gradients import GradientBucket
from samba_onnx.pef.manifest import Call
from samba_onnx.program.kinds import SectionType
from samba_onnx.runtime.reducing import ReductionMode
from samba_onnx.runtime.schedule import GraphSchedule, Step
from samba_onnx.runtime.selection import SectionTypes, type_names

READERS: Final = frozenset({SectionType.GRADNORM, SectionType.OPT})
"""Types of sections that must see gradients of all replicas."""


@dataclass(frozen=True)
class Start:
    """Gradients of one bucket that are reduced together."""

    bucket: GradientBucket
    names: tuple[str, ...]
    """Gradients of the bucket, in its order."""
    is_old: bool = False
    """Whether they are of earlier runs, so that only those are reduced that are unreduced."""


@dataclass(frozen=True)
class ReductionPlan:
    """What a run does with the gradients that replicas share."""

    starts: Mapping[int, tuple[Start, ...]] = field(default_factory=dict)
    """What begins before a step, by its number; before the end, by the number of steps."""
    waits: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Indices of the buckets that must be reduced before a step, in the same way."""
    reads: frozenset[str] = frozenset()
    """Gradients of earlier runs that GRADNORM or OPT reads and this run does not reduce."""
    settled: frozenset[str] = frozenset()
    """Gradients that are not unreduced any more, whatever they were."""
    left: frozenset[str] = frozenset()
    """Gradients that are unreduced after the run, because its BCKWD wrote them."""

    uses_own: bool = False
    """Whether GRADNORM or OPT reads a gradient that the run computes and does not reduce."""
    updates: bool = False
    """Whether GRADNORM or OPT reads any gradient."""

    @property
    def is_fixed(self) -> bool:
        """Whether the run reduces the same whatever ran before."""
        return not any(start.is_old for starts in self.starts.values() for start in starts)


def reduction_place(types: Sequence[SectionType], selection: SectionTypes) -> int | None:
    """Return the number of the step before which a run of selected types asks for REDUCE.

    Args:
        types: The type of each step.
        selection: Types that the run was asked for, in their order; in a set REDUCE has its place in
            the schedule, behind BCKWD; as it has in a run of the whole schedule, which is None.

    Returns:
        The number; None where REDUCE is not asked for.
    """
    before = {SectionType.BCKWD.value}
    if selection is None:
        if SectionType.BCKWD not in types:
            return None
    else:
        names = type_names(selection)
        if SectionType.REDUCE not in names:
            return None
        if not isinstance(selection, Set):
            before = set(names[: names.index(SectionType.REDUCE)])
    return 1 + max((number for number, kind in enumerate(types) if kind in before), default=-1)


def neighbours(bucket: GradientBucket, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield names that follow each other in a bucket.

    Args:
        bucket: The bucket.
        names: Some of its gradients, in its order.
    """
    places: Mapping[str, int] = {name: place for place, name in enumerate(bucket.symbols)}
    group: list[str] = []
    for name in names:
        if group and places[name] != places[group[-1]] + 1:
            yield tuple(group)
            group = []
        group.append(name)
    if group:
        yield tuple(group)


class ReductionPlanner:
    """Plans reductions of one graph."""

    def __init__(self, schedule: GraphSchedule, buckets: Sequence[GradientBucket]) -> None:
        """Take the gradients that replicas share.

        Args:
            schedule: The schedule of the graph.
            buckets: Its buckets, in the order of reduction.
        """
        self._schedule = schedule
        self._buckets = tuple(buckets)
        self._bucket_of = {name: bucket for bucket in buckets for name in bucket.symbols}
        self._owners = {schedule.region(name): name for name in self._bucket_of}

    def cuts(self, calls: Sequence[Call]) -> dict[int, int]:
        """Return numbers by call: calls with different ones do not share a step.

        A bucket can be reduced while the next step runs only if the one before ends where the bucket
        is complete; and an optimizer need not wait for all buckets only if it has a step for each.
        All modes have the same steps, so that they compute the same bits.

        Args:
            calls: The calls of one sweep.
        """
        numbers: dict[int, int] = {}
        for call in calls:
            stage = self._schedule.stages[call.stage]
            if stage.type is SectionType.BCKWD:
                # So many buckets are complete before the call: where the number grows, one can be sent.
                numbers[call.id] = sum(bucket.call < call.id for bucket in self._buckets)
            elif stage.type in READERS:
                numbers[call.id] = self._last_bucket(self._gradients(stage.inputs))
        return numbers

    def ordered(self, steps: Sequence[Step], mode: ReductionMode | None) -> list[Step]:
        """Return steps in the order in which a mode executes them.

        Args:
            steps: In the order in which they were asked for.
            mode: The mode of the reduction; None for a run without.
        """
        if mode is not ReductionMode.OPTIMAL:
            return list(steps)
        ordered: list[Step] = []
        waiting: list[Step] = []
        for step in steps:
            # The first stage tells: those of a step are all of one type.
            if step.stages[0].type in READERS:
                waiting.append(step)
                continue
            ordered += self._soonest_first(waiting)
            waiting = []
            ordered.append(step)
        return ordered + self._soonest_first(waiting)

    def plan(
        self, steps: Sequence[Step], mode: ReductionMode | None, reduce_at: int | None
    ) -> ReductionPlan | None:
        """Return what a run does with gradients.

        Args:
            steps: What it executes, in order.
            mode: The mode of the reduction; None for a run that reduces nothing.
            reduce_at: The number of the step before which REDUCE was asked for; None if it was not.

        Returns:
            The plan; None where no step has to do with gradients.
        """
        walk = _Walk(self._bucket_of, mode)
        for number, step in enumerate(steps):
            kind = step.stages[0].type
            read = self._gradients(name for name, _ in step.inputs) if kind in READERS else ()
            written = self._gradients((*step.outputs, *step.hidden))
            # An optimizer must not see gradients of one replica, whether REDUCE was asked for or not.
            if number == reduce_at or (mode is not None and walk.is_unreduced(read)):
                walk.reduce(number)
            # In this order, as a step reads before it writes: what it reads may be unreduced, and what
            # it writes is new afterwards.
            walk.read(number, read)
            walk.write(number, written, is_backward=kind is SectionType.BCKWD)
        if reduce_at == len(steps):
            walk.reduce(len(steps))
        walk.finish(len(steps))
        return walk.plan()

    def _gradients(self, names: Iterable[str]) -> list[str]:
        owners = (self._owners.get(self._schedule.region(name)) for name in names)
        return list(dict.fromkeys(name for name in owners if name is not None))

    def _last_bucket(self, gradients: Sequence[str]) -> int:
        return max((self._bucket_of[name].index for name in gradients), default=-1)

    def _soonest_first(self, steps: Sequence[Step]) -> list[Step]:
        """Order steps by the last bucket that each reads, but behind those that it depends on."""
        left, ordered = list(steps), list[Step]()
        while left:
            free = [step for step in left if not any(self._depends(step, other) for other in left)]
            # Of equal ones the first: all replicas have to come to the same order.
            chosen = min(free, key=self._needed)
            left.remove(chosen)
            ordered.append(chosen)
        return ordered

    def _needed(self, step: Step) -> int:
        return self._last_bucket(self._gradients(name for name, _ in step.inputs))

    def _depends(self, step: Step, other: Step) -> bool:
        """Whether another step, which comes before in the schedule, must come before."""
        if other is step or other.calls > step.calls:
            return False
        region = self._schedule.region
        # A value on the host has no region, and stands for itself.
        reads, writes = ({region(n) or n for n in names} for names in _values(step))
        others_reads, others_writes = ({region(n) or n for n in names} for names in _values(other))
        return bool(others_writes & (reads | writes) or others_reads & writes)


class _Walk:
    """What becomes of gradients, step by step."""

    def __init__(self, bucket_of: Mapping[str, GradientBucket], mode: ReductionMode | None) -> None:
        self._bucket_of = bucket_of
        self._mode = mode
        self._fresh: dict[str, int] = {}
        """Unreduced gradients of this run, with the number of the step that wrote each last."""
        self._settled: set[str] = set()
        """Gradients of which it does not matter what they were before the run."""
        self._flying: set[int] = set()
        self._starts: dict[int, list[Start]] = defaultdict(list)
        self._waits: dict[int, set[int]] = defaultdict(set)
        self._reads: set[str] = set()
        self._uses_own = False
        self._updates = False

    def is_unreduced(self, names: Sequence[str]) -> bool:
        return any(name in self._fresh or name not in self._settled for name in names)

    def reduce(self, number: int) -> None:
        """Reduce all that may be unreduced before a step."""
        fresh: dict[int, list[str]] = defaultdict(list)
        old: dict[int, list[str]] = defaultdict(list)
        for name, bucket in self._bucket_of.items():
            if name in self._fresh:
                fresh[bucket.index].append(name)
            elif name not in self._settled:
                old[bucket.index].append(name)
        for names in old.values():
            self._start(number, names, is_old=True)
        for names in fresh.values():
            # Behind the last step that wrote one of them; only NORMAL waits for the end of BCKWD.
            soonest = 1 + max(self._fresh[name] for name in names)
            self._start(number if self._mode is ReductionMode.NORMAL else soonest, names)
        self._settled |= self._bucket_of.keys()
        self._fresh.clear()
        # In OPTIMAL each reader waits for the buckets that it reads, and for no others.
        if self._mode is not ReductionMode.OPTIMAL:
            self.finish(number)

    def read(self, number: int, names: Sequence[str]) -> None:
        self._wait(number, names)
        self._updates |= bool(names)
        if self._mode is None:
            self._uses_own |= not self._fresh.keys().isdisjoint(names)
            self._reads |= {name for name in names if name not in self._settled | set(self._fresh)}

    def write(self, number: int, names: Sequence[str], *, is_backward: bool) -> None:
        self._wait(number, names)
        self._settled.update(names)
        for name in names:
            # What anything but BCKWD wrote, as zeros, is the same on all replicas.
            self._fresh.pop(name, None)
            if is_backward:
                self._fresh[name] = number

    def finish(self, number: int) -> None:
        """Wait for all that is being reduced."""
        if self._flying:
            self._waits[number] |= self._flying
            self._flying.clear()

    def plan(self) -> ReductionPlan | None:
        if not (self._starts or self._reads or self._settled):
            return None
        return ReductionPlan(
            starts={number: tuple(starts) for number, starts in self._starts.items()},
            waits={number: frozenset(waits) for number, waits in self._waits.items()},
            reads=frozenset(self._reads),
            settled=frozenset(self._settled),
            left=frozenset(self._fresh),
            uses_own=self._uses_own,
            updates=self._updates,
        )

    def _start(self, number: int, names: Sequence[str], *, is_old: bool = False) -> None:
        bucket = self._bucket_of[names[0]]
        self._starts[number].append(Start(bucket, tuple(names), is_old))
        self._flying.add(bucket.index)

    def _wait(self, number: int, names: Sequence[str]) -> None:
        buckets = {self._bucket_of[name].index for name in names} & self._flying
        if buckets:
            self._waits[number] |= buckets
            self._flying -= buckets


def _values(step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(name for name, _ in step.inputs), (*step.outputs, *step.hidden)
