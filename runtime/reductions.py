"""The reductions of one device: gradients in its memory, combined with those of other replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from samba_onnx.errors import UsageError
from samba_onnx.pef.gradients import gradient_buckets, host_transfer, ring_transfer
from samba_onnx.pef.manifest import Direction, Manifest, Transfer
from samba_onnx.runtime.elements import Array
from samba_onnx.runtime.ledger import Ledger
from samba_onnx.runtime.memory import DeviceMemory
from samba_onnx.runtime.reducing import GradientReducer, GradientReduction, PendingReduction
from samba_onnx.runtime.reduction_plans import ReductionPlan, Start, neighbours
from samba_onnx.runtime.replica_notes import NOTE_NUMBERS, ReplicaNotes
from samba_onnx.runtime.residency import Residency

NO_NAMES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class _Stretch:
    """Gradients that lie side by side: what is reduced in one go."""

    names: tuple[str, ...]
    values: Array
    """All of them as they lie in device memory, and what is between them."""
    has_note: bool
    """Whether the last of the values are no gradients, but what replicas tell each other."""
    host: Array | None
    """A copy on the host, where the host reduces it."""
    before: tuple[Transfer, ...]
    """The ledger's records of the copies that its reduction begins with."""
    after: tuple[Transfer, ...]
    """Records of the copies that its reduction ends with."""


class Reductions:
    """Reduces gradients where plans say so, and knows which ones are unreduced."""

    def __init__(
        self,
        manifest: Manifest,
        memory: DeviceMemory,
        values: Residency,
        ledger: Ledger,
        notes: ReplicaNotes,
    ) -> None:
        """Let the gradients of each bucket lie side by side.

        Args:
            manifest: Says what replicas share.
            memory: The device's memory; nothing uses gradients yet.
            values: Told that gradients have new values.
            ledger: Copies are entered there.
            notes: What this device tells others of itself.
        """
        self.buckets = {graph.name: gradient_buckets(manifest, graph) for graph in manifest.graphs}
        """The buckets of each graph, in the order of reduction."""
        self._reducer: GradientReducer | None = None
        self._notes = notes
        self._target = manifest.target
        self._memory = memory
        self._values = values
        self._ledger = ledger
        self._unreduced = NO_NAMES
        self._owed = NO_NAMES
        """Unreduced gradients that a run of several replicas left, for another one to reduce."""
        self._latest: ReductionPlan | None = None
        """The plan of the last run that had to do with gradients; runs alike change nothing."""
        self._running: tuple[ReductionPlan, GradientReduction | None] | None = None
        """What began and did not succeed yet, nor was found to have failed."""
        self._told = False
        """Whether notes travelled in the run that goes on, so that all replicas know of its argins."""
        self._flying: dict[int, list[tuple[_Stretch, PendingReduction]]] = {}
        """What was begun and not waited for, by the index of the bucket."""
        self._stretches: dict[tuple[Start, GradientReduction], tuple[_Stretch, ...]] = {}
        for buckets in self.buckets.values():
            for bucket in buckets:
                memory.lay_together(bucket.symbols, NOTE_NUMBERS)

    @property
    def reducer(self) -> GradientReducer | None:
        """Who takes the means; None for a device that works alone.

        It is set when all replicas have the same weights and states of optimizers.
        """
        return self._reducer

    @reducer.setter
    def reducer(self, reducer: GradientReducer | None) -> None:
        self._reducer, self._told = reducer, False
        self._notes.forget()
        # What another reducer began is of replicas that are no more.
        self._flying.clear()

    def host_wrote(self, names: Collection[str]) -> None:
        """Note that the host gave symbols new values.

        Args:
            names: Names of the symbols.
        """
        if self._reducer is not None and self._notes.concerns(names):
            self._notes.may_differ = True

    def admit(self, plan: ReductionPlan | None, reduction: GradientReduction | None) -> None:
        """Let a run begin, unless it would let replicas part ways.

        If the run before failed, what it began to reduce is waited for: it still writes to memory, and
        which gradients are of which replica is not known.

        Args:
            plan: What the run does with gradients.
            reduction: How it combines them; None for a run of this device alone.

        Raises:
            UsageError: It would step with gradients that a run of several replicas left unreduced;
                or it is to reduce, and there is nobody to do it.
            Exception: As :meth:`PendingReduction.wait` raises it.
        """
        self._end_failed_run()
        self._told = False
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
        if plan is not None:
            self._running = plan, reduction

    def _end_failed_run(self) -> None:
        if self._running is not None:
            failed, reduction = self._running
            # How far the run came is not known: all that it touched may be unreduced now.
            self._running = self._latest = None
            self._unreduced |= failed.settled
            if reduction is not None:
                self._owed |= failed.settled
        flights = [flight for bucket in self._flying.values() for flight in bucket]
        self._flying.clear()
        for _, pending in flights:
            pending.wait()

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
        if plan is None:
            return None
        if not silent:
            # Again for each mini-batch: the one before succeeded.
            self._running = plan, reduction
        if reduction is None or not plan.starts:
            return None
        enter = _ignore if silent else self._enter
        find = partial(self._find, reduction=reduction)
        return ReductionRun(plan, self, self._flying, find, enter)

    def start(self, stretch: _Stretch, name: str) -> PendingReduction:
        """Begin to reduce a stretch of memory.

        Args:
            stretch: Gradients with their place.
            name: What people call them.
        """
        assert self._reducer is not None, "admit() was called"
        if stretch.has_note:
            self._told = True
            self._notes.write(stretch.values[-NOTE_NUMBERS:])
        if stretch.host is None:
            return self._reducer.start(stretch.values, name)
        stretch.host[...] = stretch.values
        return self._reducer.start(stretch.host, name)

    def finish(self, stretch: _Stretch) -> None:
        """Put means where the gradients are, and hear of the other replicas.

        Args:
            stretch: What was reduced.

        Raises:
            UsageError: Replicas have different weights, or optimizers are to step with different
                argins.
        """
        if stretch.host is not None:
            stretch.values[...] = stretch.host
        if stretch.has_note:
            assert self._reducer is not None, "start() was called"
            self._notes.read(stretch.values[-NOTE_NUMBERS:], self._reducer)

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
        calls: list[Callable[[], None]] = [partial(self.admit, plan, reduction)]
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
        self._running = None
        if reduction is None and (plan.uses_own or plan.reads & self._unreduced):
            self._notes.may_differ = self._reducer is not None
        if plan.updates and not self._told and self._reducer is not None:
            self._notes.stepped_untold()
        # A run alike left the same gradients unreduced, and small models run in microseconds.
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
        for names in neighbours(start.bucket, start.names):
            arrays = [self._memory.tensor(name).items for name in names]
            values = self._memory.stretch(names, NOTE_NUMBERS)
            # Notes lie behind the last gradient of a bucket, and travel with that one only.
            has_note = names[-1] == start.bucket.symbols[-1]
            values = values if has_note else values[:-NOTE_NUMBERS]
            sizes = [array.nbytes for array in arrays]
            if reduction.on_rdu:
                ring = ring_transfer(
                    start.bucket, sizes, values.itemsize, reduction.replicas, self._target
                )
                yield _Stretch(names, values, has_note, None, (ring,), ())
                continue
            up, down = (
                tuple(
                    host_transfer(name, size, direction, start.bucket.call, self._target)
                    for name, size in zip(names, sizes, strict=True)
                )
                for direction in (Direction.HOST_TO_RDU, Direction.RDU_TO_HOST)
            )
            yield _Stretch(names, values, has_note, values.copy(), down, up)


class ReductionRun:
    """The reductions of one run, in the order that its plan has."""

    def __init__(
        self,
        plan: ReductionPlan,
        device: Reductions,
        flying: dict[int, list[tuple[_Stretch, PendingReduction]]],
        find: Callable[[Start], tuple[_Stretch, ...]],
        enter: Callable[[Iterable[Transfer], Sequence[str]], None],
    ) -> None:
        """Begin before the first step.

        Args:
            plan: What begins and what is waited for before each step.
            device: Takes the means.
            flying: Where to keep what was begun, which may outlive a run that fails.
            find: Returns the memory that is reduced.
            enter: Is told of the copies, and whose values they are.
        """
        self._plan = plan
        self._device = device
        self._find = find
        self._enter = enter
        self._flying = flying

    def before(self, step: int) -> None:
        """Do what comes before a step: begin some reductions, and wait for some.

        Args:
            step: Its number in the run; the number of steps for the end of the run.
        """
        for start in self._plan.starts.get(step, ()):
            flights = self._flying.setdefault(start.bucket.index, [])
            name = start.bucket.name
            for stretch in self._find(start):
                flights.append((stretch, self._begin(stretch, name)))  # each may fail
        # In the order of the buckets, as on all other replicas.
        for bucket in sorted(self._plan.waits.get(step, ())):
            flights = self._flying.get(bucket, [])
            while flights:
                # Taken out first: one that fails here is not waited for again by the next run.
                stretch, pending = flights.pop(0)
                pending.wait()
                self._device.finish(stretch)
                self._enter(stretch.after, stretch.names)

    def _begin(self, stretch: _Stretch, name: str) -> PendingReduction:
        self._enter(stretch.before, ())
        return self._device.start(stretch, name)


def _ignore(_transfers: Iterable[Transfer], _names: Sequence[str]) -> None:
    """Enter nothing: a run that is replayed enters all its copies at once."""
