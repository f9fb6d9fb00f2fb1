"""What a run of a graph is modelled to take, by what takes it: the one sum that plans, reports and benchmarks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samba_onnx.pef.manifest import Cause, Fallback, Graph, Section
from samba_onnx.pef.timing import SectionTime, Term

__all__ = ["ScheduleTime", "schedule_time"]


@dataclass(frozen=True)
class ScheduleTime:
    """The parts of a run's modelled time, in seconds; nothing of one part is in another."""

    launch: float
    """Launches of sections."""
    compute: float
    """Sections that compute the longest, without launch and fill."""
    on_chip: float
    """Sections that wait for on-chip memory."""
    off_chip: float
    """Sections that wait for off-chip memory."""
    fill: float
    """Filling of the sections' pipelines."""
    collectives: float
    """Exchanges between RDUs."""
    host_transfers: float
    """Copies between host and RDU."""
    cpu: float
    """Fallbacks."""

    @property
    def sections(self) -> float:
        """All calls of sections."""
        return self.launch + self.compute + self.on_chip + self.off_chip + self.fill

    @property
    def on_rdu(self) -> float:
        """Sections and the exchanges between them: what the device is busy with."""
        return self.sections + self.collectives

    @property
    def total(self) -> float:
        """All parts one after the other."""
        return self.on_rdu + self.host_transfers + self.cpu


def schedule_time(graph: Graph, stages: Mapping[int, Section | Fallback]) -> ScheduleTime:
    """Return what a run with all inputs and all outputs is modelled to take.

    Args:
        graph: A graph; in spatial mapping its calls count once for each mini-batch.
        stages: Its sections and fallbacks by id, as ``Manifest.stages`` has them.

    Returns:
        The parts. The longest of a section's compute and traffic counts; the others go on at the same
        time. A section of which only the sum is known counts as compute.
    """
    times = [stages[call.stage] for call in graph.calls]
    sections = [
        stage.time or SectionTime(compute=stage.seconds)
        for stage in times
        if isinstance(stage, Section)
    ]
    repeats = graph.spatial_batches or 1
    longest = dict.fromkeys((Term.COMPUTE, Term.ON_CHIP, Term.OFF_CHIP), 0.0)
    for time in sections:
        longest[time.bound] += time.overlapped
    between = [copy.seconds for copy in graph.run_transfers if copy.cause is Cause.COLLECTIVE]
    return ScheduleTime(
        launch=repeats * sum(time.launch for time in sections),
        compute=repeats * longest[Term.COMPUTE],
        on_chip=repeats * longest[Term.ON_CHIP],
        off_chip=repeats * longest[Term.OFF_CHIP],
        fill=repeats * sum(time.fill for time in sections),
        collectives=sum(between, start=0.0),
        host_transfers=sum(copy.seconds for copy in graph.run_transfers) - sum(between),
        cpu=repeats * sum(stage.seconds for stage in times if isinstance(stage, Fallback)),
    )
