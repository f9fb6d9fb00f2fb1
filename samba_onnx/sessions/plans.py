"""What a call of ``run`` asks for, resolved once for every way in which it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.program.kinds import SectionType
from samba_onnx.runtime.selection import (
    SectionIds,
    SectionTypes,
    section_types_of,
    select_passes,
)
from samba_onnx.tensor.marks import Marks


@dataclass(frozen=True)
class Fetched:
    """An output of a run."""

    symbol: str
    marks: Marks
    """Of the tensor that is returned."""
    computed: bool
    """Whether the graph has it as an output; else it is read when the run is over."""


@dataclass(frozen=True)
class RunPlan:
    """A way in which a graph is run."""

    graph: Graph
    section_ids: SectionIds
    """Ids that were asked for, empty for all; with types and bounds what selects the calls."""
    section_types: SectionTypes
    bounds: tuple[int | None, int | None]
    outputs: tuple[Fetched, ...]
    forward: bool
    """Whether forward sections are among what is executed."""
    step: bool
    """Whether optimizer sections are."""
    last_outputs: tuple[str, ...]
    """What the device is asked for."""

    def selection(self) -> dict[str, Any]:
        """Return what selects the calls, as keywords of ``Device.run``."""
        begin, end = self.bounds
        return {
            "section_ids": self.section_ids or None,
            "section_types": self.section_types or None,
            "from_call": begin,
            "until_call": end,
        }


def make_plan(
    manifest: Manifest,
    graph: Graph,
    outputs: tuple[Fetched, ...],
    section_ids: SectionIds,
    section_types: SectionTypes,
    from_call: int | None,
    until_call: int | None,
) -> RunPlan:
    """Resolve a run.

    Args:
        manifest: Of the PEF.
        graph: What is run.
        outputs: What the host wants.
        section_ids: Sections to execute, in this order; nested lists are flattened. All if empty.
        section_types: Types of sections to execute, in this order. All if empty.
        from_call: The first call to execute; from the beginning when None.
        until_call: The call before which to stop; to the end when None.

    Returns:
        The plan.

    Raises:
        UsageError: Both ids and types are given, or an id is no integer.
        ScheduleError: A section, type or call does not exist.
    """
    stages = manifest.stages()
    passes = select_passes(stages, graph, section_ids, section_types, from_call, until_call)
    executed = section_types_of(stages, passes)
    return RunPlan(
        graph,
        section_ids,
        section_types,
        (from_call, until_call),
        outputs,
        SectionType.FWD in executed,
        SectionType.OPT in executed,
        tuple(output.symbol for output in outputs if output.computed),
    )
