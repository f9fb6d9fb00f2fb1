"""What a call of ``run`` asks for, resolved once for every way in which it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from samba_onnx.errors import ScheduleError, UsageError
from samba_onnx.pef.manifest import Graph, Manifest
from samba_onnx.program.kinds import SectionType
from samba_onnx.sessions.selection import Selection
from samba_onnx.tensor.marks import Marks

SectionIds: TypeAlias = Sequence[int | Sequence[int]]


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
    selections: tuple[Selection, ...]
    """Executed one after the other."""
    outputs: tuple[Fetched, ...]
    forward: bool
    """Whether forward sections are among what is executed."""
    step: bool
    """Whether optimizer sections are."""
    last_outputs: tuple[str, ...]
    """What the last selection is asked for."""


def make_plan(
    manifest: Manifest,
    graph: Graph,
    outputs: tuple[Fetched, ...],
    section_ids: SectionIds,
    section_types: Sequence[str],
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
        UsageError: Both ids and types are given, or one is of the wrong kind.
        ScheduleError: A section, type or call does not exist.
    """
    ids, types = _flat_ids(section_ids), _types(section_types)
    if ids and types:
        raise UsageError(
            f"run was given section_ids {ids} and section_types {[str(t) for t in types]}; give "
            "one of them"
        )
    stages = manifest.stages()
    _check_calls(graph, from_call, until_call)
    bounds = (from_call, until_call)
    if ids:
        places = {call.stage: call.id for call in graph.calls}
        _check_known(ids, places, "section", graph)
        runs = _ascending(ids, lambda number: places[number])
        selections = [Selection(section_ids=run, bounds=bounds) for run in runs]
    elif types:
        firsts: dict[SectionType, int] = {}
        for call in graph.calls:
            firsts.setdefault(stages[call.stage].type, call.id)
        _check_known(types, firsts, "section type", graph)
        orders = _ascending(types, lambda kind: firsts[kind])
        selections = [Selection(section_types=order, bounds=bounds) for order in orders]
    else:
        selections = [Selection(bounds=bounds)]
    executed = {
        stages[call.stage].type
        for call in graph.calls
        if (from_call or 0) <= call.id < (len(graph.calls) if until_call is None else until_call)
        and (not ids or call.stage in ids)
        and (not types or stages[call.stage].type in types)
    }
    return RunPlan(
        graph,
        tuple(selections),
        outputs,
        SectionType.FWD in executed,
        SectionType.OPT in executed,
        tuple(output.symbol for output in outputs if output.computed),
    )


def _flat_ids(section_ids: SectionIds) -> list[int]:
    if isinstance(section_ids, int):
        return [section_ids]
    flat: list[int] = []
    for item in section_ids:
        if isinstance(item, int) and not isinstance(item, bool):
            flat.append(item)
        elif isinstance(item, (list, tuple)):
            flat += _flat_ids(item)
        else:
            raise UsageError(f"section_ids has {item!r}; give integers, or lists of integers")
    return flat


def _types(section_types: Sequence[str]) -> list[SectionType]:
    given = [section_types] if isinstance(section_types, str) else section_types
    known = {kind.value: kind for kind in SectionType}
    for kind in given:
        if str(kind).upper() not in known:
            raise ScheduleError(
                f"section type {kind!r} does not exist; the types are {', '.join(known)}"
            )
    return [known[str(kind).upper()] for kind in given]


def _check_known(items: Iterable[Any], places: dict[Any, int], what: str, graph: Graph) -> None:
    for item in items:
        if item not in places:
            known = ", ".join(str(key) for key in sorted(places))
            raise ScheduleError(
                f"{what} {item} does not exist in graph {graph.name!r}, which has {known}"
            )


def _check_calls(graph: Graph, *calls: int | None) -> None:
    for call in calls:
        if call is None:
            continue
        if not isinstance(call, int) or not 0 <= call <= len(graph.calls):
            raise ScheduleError(
                f"call {call!r} does not exist in graph {graph.name!r}, whose calls are 0 to "
                f"{len(graph.calls) - 1}"
            )


def _ascending(items: Sequence[Any], place: Callable[[Any], int]) -> list[tuple[Any, ...]]:
    """Cut a sequence where it goes back in the schedule."""
    runs: list[list[Any]] = []
    for item in items:
        if not runs or place(item) <= place(runs[-1][-1]):
            runs.append([])
        runs[-1].append(item)
    return [tuple(run) for run in runs]
