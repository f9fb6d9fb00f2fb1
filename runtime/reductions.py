"""The reductions of one device: gradients in its memory, combined with those of other replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from samba_onnx.errors import UsageError
from samba_onnx.pef.gradients import GradientBucket, gradient_buckets, host_transfer, ring_transfer
from samba_onnx.pef.manifest import Direction, Manifest, Transfer
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.reducing import GradientReducer, GradientReduction, PendingReduction
from samba_onnx.runtime.reduction_plans import ReductionPlan, Start
from samba_onnx.runtime.residency import Residency

NO_NAMES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class _Stretch:
    """Gradients that lie side by side: what is reduced in one go."""

    names: tuple[str, ...]
    values: Array
    """All of them as they lie in device memory, and what is between them."""
    host: Array | None
    """A copy on the host, where the host reduces it."""
    before: tuple[Transfer, ...]
    """The ledger's records of the copies that its reduction begins with."""
    after: tuple[Transfer, ...]
    """Records of the copies that its reduction ends with."""


class Reductions:
    """Reduces gradients where plans say so, and knows which ones are unreduced."""

    def __init__(
        self, manifest: Manifest, memory: DeviceMemory, values: Residency, ledger: Ledger
    ) -> None:
        """Let the gradients of each bucket lie side by side.

        Args:
            manifest: Says what replicas share.
            memory: The device's memory; nothing uses gradients yet.
            values: Told that gradients have new values.
            ledger: Copies are entered there.
        """
        self.buckets = {graph.name: gradient_buckets(manifest, graph) for graph in manifest.graphs}
        """The buckets of each graph, in the order of reduction."""
        self.reducer: GradientReducer | None = None
        """Who takes the means; None for a device that works alone."""
        self._target = manifest.target
        self._memory = memory
        self._values = values
        self._ledger = ledger
        self._unreduced = NO_NAMES
        self._owed = NO_NAMES
        """Unreduced gradients that a run of several replicas left, for another one to reduce."""
        self._latest: ReductionPlan | None = None
        """The plan of the last run that had to do with gradients; runs alike change nothing."""
        self._stretches: dict[tuple[Start, GradientReduction], tuple[_Stretch, ...]] = {}
        for buckets in self.buckets.values():
            for bucket in buckets:
                memory.lay_together(bucket.symbols)

    def check(self, plan: ReductionPlan | None, reduction: GradientReduction | None) -> None:
        """Refuse a run that would let replicas part ways.

        Args:
            plan: What the run does with gradients.
            reduction: How it combines them; None for a run of this device alone.

        Raises:
            UsageError: It would step with gradients that a run of several replicas left unreduced;
                or it is to reduce, and there is nobody to do it.
        """
        if reduction is not None and self.reducer is None:
            raise UsageError(
                f"the run combines gradients of {reduction.replicas} replicas, but the device knows no "
                "others: give device.reductions a reducer"
            )
        if plan is not None and reduction is None and plan.reads & self._owed:
            name = min(plan.reads & self._owed)
            raise UsageError(
                f"a run with data_parallel=True computed gradient {name!r}, and left it unreduced; "
                "this run would update with what this replica alone has: give data_parallel=True "
                "to it, too"
            )

    def begin(
        self,
        plan: ReductionPlan | None,
        reduction: GradientReduction | None,
        *,
        silent: bool = False,
    ) -> ReductionRun | None:
        """Return what reduces gradients between the steps of a run.

        Args:
            plan: What the run does with gradients.
            reduction: How it combines them; None for a run of this device alone.
            silent: Whether somebody else enters the copies in the ledger.

        Returns:
            What the run tells of its steps; None where there is nothing to reduce.
        """
        if plan is None or reduction is None or not plan.starts:
            return None
        assert self.reducer is not None, "check() was called"
        enter = _ignore if silent else self._enter
        return ReductionRun(plan, self.reducer, lambda start: self._find(start, reduction), enter)

    def interleaved(
        self,
        steps: Sequence[Callable[[], None]],
        plan: ReductionPlan,
        reduction: GradientReduction | None,
    ) -> list[Callable[[], None]]:
        """Return steps with what comes between them, for a run that enters its copies itself.

        Args:
            steps: What executes the steps of the run, in order.
            plan: What the run does with gradients; the same whatever ran before.
            reduction: How it combines them; None for a run of this device alone.
        """
        calls: list[Callable[[], None]] = [partial(self.check, plan, reduction)]
        run = self.begin(plan, reduction, silent=True)
        for number in range(len(steps) + 1):
            if run is not None and (number in plan.starts or number in plan.waits):
                calls.append(partial(run.before, number))
            calls += steps[number : number + 1]
        return [*calls, partial(self.note, plan, reduction)]

    def note(self, plan: ReductionPlan, reduction: GradientReduction | None) -> None:
        """Note that a run succeeded.

        Args:
            plan: What it did with gradients.
            reduction: How it combined them; None for a run of this device alone.
        """
        if plan is self._latest:
            return
        self._latest = plan
        self._unreduced = (self._unreduced - plan.settled) | plan.left
        self._owed -= plan.settled
        if reduction is not None:
            self._owed |= plan.left

    def _enter(self, transfers: Iterable[Transfer], names: Sequence[str]) -> None:
        for transfer in transfers:
            self._ledger.enter(transfer)
        # What the host knew of them is old.
        self._values.written_on_device(names)

    def _find(self, start: Start, reduction: GradientReduction) -> tuple[_Stretch, ...]:
        """Return the stretches of memory that a start means now; none if all is reduced already."""
        if start.is_old:
            names = tuple(name for name in start.names if name in self._unreduced)
            start = Start(start.bucket, names)
        key = (start, reduction)
        stretches = self._stretches.get(key)
        if stretches is None:
            stretches = tuple(self._describe(start, reduction))
            self._stretches[key] = stretches
        return stretches

    def _describe(self, start: Start, reduction: GradientReduction) -> Iterator[_Stretch]:
        for names in _neighbours(start.bucket, start.names):
            arrays = [self._memory.tensor(name).items for name in names]
            values = self._memory.stretch(names)
            sizes = [array.nbytes for array in arrays]
            if reduction.on_rdu:
                ring = ring_transfer(
                    start.bucket, sizes, values.itemsize, reduction.replicas, self._target
                )
                yield _Stretch(names, values, None, (ring,), ())
                continue
            up, down = (
                tuple(
                    host_transfer(name, size, direction, start.bucket.call, self._target)
                    for name, size in zip(names, sizes, strict=True)
                )
                for direction in (Direction.HOST_TO_RDU, Direction.RDU_TO_HOST)
            )
            yield _Stretch(names, values, values.copy(), down, up)


class ReductionRun:
    """The reductions of one run, in the order that its plan has."""

    def __init__(
        self,
        plan: ReductionPlan,
        reducer: GradientReducer,
        find: Callable[[Start], tuple[_Stretch, ...]],
        enter: Callable[[Iterable[Transfer], Sequence[str]], None],
    ) -> None:
        """Begin before the first step.

        Args:
            plan: What begins and what is waited for before each step.
            reducer: Takes the means.
            find: Returns the memory that is reduced.
            enter: Is told of the copies, and whose values they are.
        """
        self._plan = plan
        self._reducer = reducer
        self._find = find
        self._enter = enter
        self._flying: dict[int, list[tuple[_Stretch, PendingReduction]]] = {}

    def before(self, step: int) -> None:
        """Do what comes before a step: begin some reductions, and wait for some.

        Args:
            step: Its number in the run; the number of steps for the end of the run.
        """
        for start in self._plan.starts.get(step, ()):
            flights = self._flying.setdefault(start.bucket.index, [])
            name = start.bucket.name
            flights += [(one, self._begin(one, name)) for one in self._find(start)]
        for bucket in sorted(self._plan.waits.get(step, ())):
            for stretch, pending in self._flying.pop(bucket, ()):
                pending.wait()
                if stretch.host is not None:
                    stretch.values[...] = stretch.host
                self._enter(stretch.after, stretch.names)

    def _begin(self, stretch: _Stretch, name: str) -> PendingReduction:
        self._enter(stretch.before, ())
        if stretch.host is None:
            return self._reducer.start(stretch.values, name)
        stretch.host[...] = stretch.values
        return self._reducer.start(stretch.host, name)


def _ignore(_transfers: Iterable[Transfer], _names: Sequence[str]) -> None:
    """Enter nothing: a run that is replayed enters all its copies at once."""


def _neighbours(bucket: GradientBucket, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield names that follow each other in a bucket."""
    places: Mapping[str, int] = {name: place for place, name in enumerate(bucket.symbols)}
    group: list[str] = []
    for name in names:
        if group and places[name] != places[group[-1]] + 1:
            yield tuple(group)
            group = []
        group.append(name)
    if group:
        yield tuple(group)
