"""How long a training step is modelled to take on several replicas, each with an RDU of its own.

What begins when, and who waits for whom, is what the runtime executes: its own plan of reductions, walked
through with modelled times instead of sessions. Sections and fallbacks follow each other, and each takes by how
much it and its copies make the run of one RDU longer. Reductions
follow each other, too, on the links, beside the sections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from samba_onnx.errors import UsageError
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.passes.timing.schedule_time import call_seconds, places, run_time
from samba_onnx.pef.decoding import reported_as
from samba_onnx.pef.gradients import GradientBucket, gradient_buckets, host_transfer, ring_transfer
from samba_onnx.pef.manifest import Direction, Graph, Manifest, Symbol
from samba_onnx.runtime.reducing import ReductionMode
from samba_onnx.runtime.reduction_plans import ReductionPlan, ReductionPlanner, reduction_place
from samba_onnx.runtime.schedule import GraphSchedule, Step

__all__ = ["ScaledStep", "StepModel"]


@dataclass(frozen=True)
class ScaledStep:
    """A modelled training step of each of several replicas."""

    replicas: int
    """How many there are."""
    mode: ReductionMode
    """When they combine gradients."""
    seconds: float = field(metadata=reported_as("step_seconds"))
    """The whole step."""
    reduction_seconds: float
    """What reductions take, be it beside sections or not."""
    waiting_seconds: float
    """What sections, and the end of the step, wait for them."""
    efficiency: float
    """The seconds of a step of one replica, divided by ``seconds``: which share of so many times the
    samples per second is reached, where each replica keeps its batch."""
    relative_throughput: float
    """How many times the samples per second of one replica."""


class StepModel:
    """The modelled step of one graph, for any number of replicas."""

    def __init__(self, manifest: Manifest, graph: Graph) -> None:
        """Take what a step consists of.

        Args:
            manifest: What the PEF says about itself.
            graph: A graph that trains.

        Raises:
            UsageError: It computes no gradients of weights, or the PEF is for several RDUs.
        """
        if manifest.parallel is not None:
            raise UsageError(
                f"the PEF is one program for {manifest.parallel.rdus} RDUs, and replicas of such programs "
                "are not modelled: give a PEF that was compiled for one RDU"
            )
        self.buckets: Sequence[GradientBucket] = gradient_buckets(manifest, graph)
        """What is reduced, in order."""
        if not self.buckets:
            raise UsageError(
                f"graph {graph.name!r} computes no gradients of weights, so that replicas have nothing to "
                "combine: give a PEF that was compiled for training"
            )
        self._symbols = {symbol.name: symbol for symbol in manifest.symbols}
        self._target = manifest.target
        self._batches = graph.spatial_batches or 1
        self._alone = run_time(manifest, graph)
        regions = places(manifest.symbols)
        self._times, once = call_seconds(graph, manifest.stages(), manifest.target, regions)
        # Copies of residents are made once in a run, however many mini-batches it has.
        self._once = once + self._alone.residents
        self._schedule = GraphSchedule(manifest, graph)
        self._planner = ReductionPlanner(self._schedule, self.buckets)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients that are reduced."""
        return sum(
            self._symbols[name].bytes or 0 for bucket in self.buckets for name in bucket.symbols
        )

    def step(self, replicas: int, mode: ReductionMode, *, on_rdu: bool = True) -> ScaledStep:
        """Return the modelled step.

        Args:
            replicas: How many there are.
            mode: When they combine gradients.
            on_rdu: Whether devices reduce among themselves. If not, each gradient is copied to the host
                and back; what hosts need among themselves, a target does not state, and is not counted.
        """
        alone = self._alone.total
        times: list[float] = []
        # One has nobody to combine gradients with: the step is that of a run alone.
        seconds, waiting = alone, 0.0
        if replicas > 1:
            steps, plan = self._plan(mode)
            times = [self._bucket_seconds(bucket, replicas, on_rdu) for bucket in self.buckets]
            seconds, waiting = _walk(steps, plan, self._times, times)
            seconds, waiting = self._once + self._batches * seconds, self._batches * waiting
        efficiency = alone / seconds if seconds else 1.0
        return ScaledStep(
            replicas=replicas,
            mode=mode,
            seconds=seconds,
            reduction_seconds=self._batches * sum(times, 0.0),
            waiting_seconds=waiting,
            efficiency=efficiency,
            relative_throughput=replicas * efficiency,
        )

    def _plan(self, mode: ReductionMode) -> tuple[list[Step], ReductionPlan]:
        """Return the steps that the runtime executes in a mode, each call with its place, and its plan."""
        calls = self._schedule.graph.calls
        cuts = self._planner.cuts(calls)
        steps = self._planner.ordered(self._schedule.steps(merge=True, cuts=cuts), mode)
        place = reduction_place([step.stages[0].type for step in steps], None)
        plan = self._planner.plan(steps, mode, place)
        assert plan is not None, "there are gradients"
        return steps, plan

    def _bucket_seconds(self, bucket: GradientBucket, replicas: int, on_rdu: bool) -> float:
        own = [self._symbols[name] for name in bucket.symbols]
        sizes = [symbol.bytes or 0 for symbol in own]
        if on_rdu:
            move = ring_transfer(bucket, sizes, _item_bytes(own[0]), replicas, self._target)
            return move.seconds
        return sum(
            host_transfer(symbol.name, size, direction, bucket.call, self._target).seconds
            for direction in (Direction.RDU_TO_HOST, Direction.HOST_TO_RDU)
            for symbol, size in zip(own, sizes, strict=True)
        )


def _item_bytes(symbol: Symbol) -> int:
    element = tensor_element(symbol.type)
    assert element is not None, "gradients are tensors of numbers"
    return element.bits // 8


def _walk(
    steps: Sequence[Step],
    plan: ReductionPlan,
    calls: Mapping[int, float],
    buckets: Sequence[float],
) -> tuple[float, float]:
    """Return when the last step ends, and how long steps waited.

    Args:
        steps: In the order of execution.
        plan: What begins before each, and what each waits for.
        calls: The time of every call.
        buckets: The time of the reduction of every bucket.
    """
    clock = link = waiting = 0.0
    ends: dict[int, float] = {}
    for number in range(len(steps) + 1):
        for start in plan.starts.get(number, ()):
            # A reduction begins when its bucket is complete and the links are done with the one before.
            link = max(link, clock) + buckets[start.bucket.index]
            ends[start.bucket.index] = link
        ready = max((ends[bucket] for bucket in plan.waits.get(number, ())), default=clock)
        waiting += max(0.0, ready - clock)
        clock = max(clock, ready)
        if number < len(steps):
            clock += sum(calls[call] for call in steps[number].calls)
    return clock, waiting
